//! Limits that are leased, and limits that are counted on each node.

use super::*;

fn leased(units: u64) -> LimitRule {
    LimitRule {
        consistency: Consistency::Leased.into(),
        ..per_hour(units)
    }
}

#[test]
fn leased_limits_are_spent_here_and_never_beyond_the_quota() {
    let (books, clock) = (
        Arc::default(),
        Arc::new(ManualClock::at(crate::testing::START)),
    );
    let nodes = [(); 3].map(|()| FleetTest::with_broker(vec![leased(3_000)], &books, &clock));
    for node in &nodes {
        node.fleet().set_nodes(3);
    }
    let mut admitted = 0;
    for round in 0..4_000 {
        let node = &nodes[round % 3];
        admitted += usize::from(node.ask("alice").is_admitted());
        poll_once(node.fleet().maintain_leases(|| clock.now())).unwrap();
    }
    assert!(admitted <= 3_000, "{admitted}");
    assert!(admitted >= 2_400, "{admitted}");
    let calls = books.errands.load(Ordering::Relaxed);
    assert!(calls * 20 <= 4_000, "{calls} calls");
    assert!(nodes.iter().all(|node| node.remote.calls() == 0));
}

/// I-11, with slices: what another limit refuses is not spent of a slice either.
#[test]
fn i_11_what_was_taken_from_a_slice_goes_back_into_it() {
    let (books, clock) = (
        Arc::default(),
        Arc::new(ManualClock::at(crate::testing::START)),
    );
    let exact = limit("exact", quota(Algorithm::TokenBucket, &[(5, Nanos::HOUR)]));
    let rig = FleetTest::with_broker(vec![leased(100), exact], &books, &clock);
    assert_eq!(rig.admitted("alice", 1), 1);
    let mut left = None;
    for _ in 0..50 {
        rig.engine.control().clear_cached_denials();
        let verdict = rig.ask("alice");
        let leased = verdict
            .limits()
            .iter()
            .find(|state| state.status.limit == 100);
        if !verdict.is_admitted() {
            let remaining = leased.unwrap().status.remaining;
            assert_eq!(*left.get_or_insert(remaining), remaining);
        }
    }
    assert!(left.is_some());
}

#[test]
fn slices_last_while_the_lender_is_away_and_then_the_share_decides() {
    let (books, clock): (Arc<BrokerLedger>, _) = (
        Arc::default(),
        Arc::new(ManualClock::at(crate::testing::START)),
    );
    let rig = FleetTest::with_broker(vec![leased(100)], &books, &clock);
    assert_eq!(rig.admitted("alice", 10), 10);
    books.is_gone.store(true, Ordering::Relaxed);
    let admitted = rig.admitted("alice", 1_000);
    assert!(
        (50..=90).contains(&admitted),
        "half of it, and what was borrowed: {admitted}"
    );
    assert!(rig.ask("alice").degraded().store);
    assert!(rig.fleet().is_degraded());
}

/// Decision 8: counted here, told every so often; over-admission within (N − 1) · (B + r · interval).
#[test]
fn async_limits_are_counted_here_and_told_every_so_often() {
    let rule = || LimitRule {
        consistency: Consistency::Async(Nanos::SECOND).into(),
        ..per_hour(100)
    };
    let one = FleetTest::new(vec![rule()]);
    let two = one.other_node(vec![rule()]);
    for rig in [&one, &two] {
        rig.fleet().set_nodes(2);
    }
    assert_eq!(
        one.admitted("alice", 1_000),
        100,
        "its own count never exceeds the quota"
    );
    assert_eq!(one.remote.calls(), 0);
    let now = |rig: &FleetTest| rig.engine.store().now();
    one.clock.advance(Nanos::from_millis(500));
    poll_once(one.fleet().reconcile(|| now(&one))).unwrap();
    assert_eq!(one.remote.calls(), 1);
    // The other one hears of it when it first tells something itself.
    assert!(two.ask("alice").is_admitted());
    two.clock.advance(Nanos::from_millis(500));
    poll_once(two.fleet().reconcile(|| now(&two))).unwrap();
    let beyond = two.admitted("alice", 1_000);
    assert!(
        beyond <= 5,
        "{beyond} after the fleet was known to be at its limit"
    );
    // Without the store it goes on by its own count.
    one.remote.fail(Fault::Gone);
    assert!(one.admitted("bob", 1_000) == 100);
}
