//! Cached denials: what reaches the store, and `Retry-After`.

use super::*;

/// Design decision 9: denials are cached, so a flood of denied requests costs the store nothing.
#[test]
fn s_35_a_flood_of_denied_requests_does_not_reach_the_store() {
    let node = FleetTest::new(vec![per_hour(10)]);
    assert_eq!(node.admitted("alice", 1_000), 10);
    assert_eq!(
        node.remote.calls(),
        10,
        "the last admission exhausted the limit"
    );
    assert_eq!(node.fleet().totals().cached_denials, 990);
    let denied = node.check("alice");
    let state = denied.limits().first().unwrap();
    assert_eq!((state.status.limit, state.status.remaining), (10, 0));
    assert_eq!(state.retry_after(), Some(Nanos::from_secs(360)));
    node.clock.advance(Nanos::from_secs(360));
    assert!(
        node.check("alice").is_admitted(),
        "the denial expires exactly"
    );
}

/// The guarantee: traffic at a hundred times the limit makes no more calls than the admitted requests of all nodes,
/// plus one for each key, node and second.
#[test]
fn s_35_at_a_hundred_times_the_limit_calls_are_bounded_by_admitted_requests() {
    const LIMIT: u64 = 20;
    const KEYS: u64 = 10;
    const SECONDS: u64 = 5;
    let limits = || vec![limit("burst", per_second(LIMIT))];
    let first = FleetTest::new(limits());
    let nodes = [
        first.other_node(limits()),
        first.other_node(limits()),
        first,
    ];
    let mut admitted = 0;
    // Every millisecond two requests for each key, alternating between the nodes: a hundred times the limit of twenty.
    for milli in 0..SECONDS * 1_000 {
        for request in 0..KEYS * 2 {
            let node = &nodes[usize::try_from((milli + request) % 3).unwrap()];
            let user = format!("caller {}", request % KEYS);
            admitted += u64::from(node.check(&user).is_admitted());
        }
        nodes[0].clock.advance(Nanos::from_nanos(1_000_000));
    }
    let calls = nodes[0].remote.calls();
    assert!(admitted >= KEYS * LIMIT * SECONDS, "{admitted}");
    assert!(admitted <= KEYS * LIMIT * (SECONDS + 1), "{admitted}");
    assert!(
        calls <= admitted * 3 + KEYS * 3 * SECONDS,
        "{calls} calls for {admitted} admitted"
    );
}

/// Regression, found by the history checker: `Retry-After` of a cached denial counted from when the call was sent. So
/// clients retried one round trip too early and were denied again.
#[test]
fn i_03_waiting_for_a_cached_retry_after_is_enough() {
    let node = FleetTest::new(vec![per_hour(10)]);
    assert_eq!(node.admitted("alice", 9), 9);
    node.remote.delay.store(7, Ordering::Relaxed);
    assert_eq!(node.admitted("alice", 1), 1);
    let calls = node.remote.calls();
    let denied = node.check("alice");
    let state = denied.limits().first().unwrap();
    assert_eq!(node.remote.calls(), calls, "it was cached");
    node.clock.advance(state.retry_after().unwrap());
    node.remote.delay.store(0, Ordering::Relaxed);
    assert!(node.check("alice").is_admitted());
}
