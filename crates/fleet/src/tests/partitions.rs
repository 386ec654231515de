//! Stores with several partitions, one of which is unavailable.

use super::*;

#[test]
fn s_17_only_the_unavailable_partition_uses_the_fallback() {
    let node = FleetTest::with_partitions(vec![per_hour(100)], 2);
    node.remote.faults.lock().unwrap()[0] = Fault::Gone;
    // The last letter of the name selects the partition: b is even, a is odd.
    assert_eq!(node.admitted("b", 1_000), 50);
    assert_eq!(node.admitted("a", 1_000), 100);
    assert!(!node.check("a").degraded().store && node.check("b").degraded().store);
    let closed: Vec<bool> = node
        .fleet()
        .breakers()
        .iter()
        .map(Breaker::is_closed)
        .collect();
    assert_eq!(closed, [false, true]);
}

/// Regression, I-11: a fallback charge for one partition was replayed although another partition denied the request.
#[test]
fn i_11_a_fallback_charge_is_not_replayed_if_another_partition_denied() {
    // The last letter of the key selects the partition: `b` the first, `a` the second.
    let keyed_by = |name, header: &str, units| LimitRule {
        key: tollgate_testkit::test_requests::key(&[header]),
        ..limit(name, quota(Algorithm::TokenBucket, &[(units, Nanos::HOUR)]))
    };
    let limits = vec![
        keyed_by("wide", "header.b", 100),
        keyed_by("narrow", "header.a", 1),
    ];
    let node = FleetTest::with_partitions(limits, 2);
    let caller = TestCaller::default()
        .with("header.a", "a")
        .with("header.b", "b");
    let check = || poll_once(node.fleet_engine().check(&caller, CheckOptions::default())).unwrap();
    assert!(check().is_admitted());
    node.remote.faults.lock().unwrap()[0] = Fault::Gone;
    for _ in 0..20 {
        node.engine.control().clear_cached_denials();
        assert!(!check().is_admitted());
    }
    assert!(!node.fleet().breakers()[0].is_closed());
    node.remote.faults.lock().unwrap()[0] = Fault::None;
    node.clock.advance(Nanos::from_secs(1));
    node.probe();
    assert_eq!(node.fleet().totals().replayed, 0);
}
