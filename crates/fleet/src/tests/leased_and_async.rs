//! Leased limits, and `async` limits.

use super::*;

fn leased(units: u64) -> LimitRule {
    LimitRule {
        consistency: Consistency::Leased.into(),
        ..per_hour(units)
    }
}

#[test]
fn leased_limits_are_spent_locally_and_never_beyond_the_quota() {
    let (ledger, clock) = (
        Arc::default(),
        Arc::new(ManualClock::at(crate::testing::START)),
    );
    let nodes = [(); 3].map(|()| FleetTest::with_broker(vec![leased(3_000)], &ledger, &clock));
    for node in &nodes {
        node.fleet().set_nodes(3);
    }
    let mut admitted = 0;
    for round in 0..4_000 {
        let node = &nodes[round % 3];
        admitted += usize::from(node.check("alice").is_admitted());
        poll_once(node.fleet().maintain_leases(|| clock.now())).unwrap();
    }
    assert!(admitted <= 3_000, "{admitted}");
    assert!(admitted >= 2_400, "{admitted}");
    let calls = ledger.requests.load(Ordering::Relaxed);
    assert!(calls * 20 <= 4_000, "{calls} calls");
    assert!(nodes.iter().all(|node| node.remote.calls() == 0));
}

/// I-11 with leases: a request that another limit denies is not charged to a lease.
#[test]
fn i_11_a_charge_to_a_lease_is_refunded_if_another_limit_denies() {
    let (ledger, clock) = (
        Arc::default(),
        Arc::new(ManualClock::at(crate::testing::START)),
    );
    let exact = limit("exact", quota(Algorithm::TokenBucket, &[(5, Nanos::HOUR)]));
    let node = FleetTest::with_broker(vec![leased(100), exact], &ledger, &clock);
    assert_eq!(node.admitted("alice", 1), 1);
    let mut remaining_before = None;
    for _ in 0..50 {
        node.engine.control().clear_cached_denials();
        let verdict = node.check("alice");
        let leased = verdict
            .limits()
            .iter()
            .find(|state| state.status.limit == 100);
        if !verdict.is_admitted() {
            let remaining = leased.unwrap().status.remaining;
            assert_eq!(*remaining_before.get_or_insert(remaining), remaining);
        }
    }
    assert!(remaining_before.is_some());
}

#[test]
fn leases_last_while_the_broker_is_unavailable_and_then_the_fallback_decides() {
    let (ledger, clock): (Arc<BrokerLedger>, _) = (
        Arc::default(),
        Arc::new(ManualClock::at(crate::testing::START)),
    );
    let node = FleetTest::with_broker(vec![leased(100)], &ledger, &clock);
    assert_eq!(node.admitted("alice", 10), 10);
    ledger.is_gone.store(true, Ordering::Relaxed);
    let admitted = node.admitted("alice", 1_000);
    assert!(
        (50..=90).contains(&admitted),
        "half of it, plus the leased units: {admitted}"
    );
    assert!(node.check("alice").degraded().store);
    assert!(node.fleet().is_degraded());
}

/// Design decision 8: counted locally and reported periodically; over-admission is at most (N − 1) · (B + r ·
/// interval).
#[test]
fn async_limits_are_counted_locally_and_reported_periodically() {
    let rule = || LimitRule {
        consistency: Consistency::Async(Nanos::SECOND).into(),
        ..per_hour(100)
    };
    let one = FleetTest::new(vec![rule()]);
    let two = one.other_node(vec![rule()]);
    for node in [&one, &two] {
        node.fleet().set_nodes(2);
    }
    assert_eq!(
        one.admitted("alice", 1_000),
        100,
        "its own count never exceeds the quota"
    );
    assert_eq!(one.remote.calls(), 0);
    let now = |node: &FleetTest| node.engine.store().now();
    one.clock.advance(Nanos::from_millis(500));
    poll_once(one.fleet().reconcile(|| now(&one))).unwrap();
    assert_eq!(one.remote.calls(), 1);
    // The other node learns of it with its own first report.
    assert!(two.check("alice").is_admitted());
    two.clock.advance(Nanos::from_millis(500));
    poll_once(two.fleet().reconcile(|| now(&two))).unwrap();
    let beyond = two.admitted("alice", 1_000);
    assert!(
        beyond <= 5,
        "{beyond} after the node knew that the limit was exhausted"
    );
    // Without the store it continues with its own count.
    one.remote.fail(Fault::Gone);
    assert!(one.admitted("bob", 1_000) == 100);
}

/// A request with more than 32 quotas was answered 503 for ever, whatever their consistency.
#[test]
fn exact_leased_and_async_quotas_of_one_large_request_are_decided_together() {
    for count in [64, 128] {
        let (ledger, clock) = (
            Arc::default(),
            Arc::new(ManualClock::at(crate::testing::START)),
        );
        let limits = (0..count).map(|n| LimitRule {
            consistency: match n % 3 {
                0 => Consistency::Exact.into(),
                1 => Consistency::Leased.into(),
                _ => Consistency::Async(Nanos::SECOND).into(),
            },
            ..limit(
                &format!("limit-{n}"),
                quota(
                    Algorithm::TokenBucket,
                    &[(if n == 60 { 5 } else { 1_000 }, Nanos::HOUR)],
                ),
            )
        });
        let node = FleetTest::with_broker(limits.collect(), &ledger, &clock);
        let admitted = node.check("bob");
        assert_eq!(admitted.limits().len(), count);
        assert_eq!(node.admitted("alice", 20), 5, "{count} limits");
        // The denial is cached on the node and reports only the limit that denied.
        let denied = node.check("alice");
        assert_eq!(
            (denied.status(), denied.rule_name()),
            (Some(429), Some("limit-60"))
        );
    }
}
