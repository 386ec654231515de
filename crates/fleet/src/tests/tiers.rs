//! The shared store and the local tier together.

use super::*;

#[test]
fn two_nodes_have_one_quota() {
    let one = FleetTest::new(vec![per_hour(10)]);
    let two = one.other_node(vec![per_hour(10)]);
    assert_eq!(one.admitted("alice", 7), 7);
    assert_eq!(two.admitted("alice", 7), 3);
    let verdict = one.check("alice");
    assert!(!verdict.is_admitted() && !verdict.degraded().store);
}

/// I-11: this node's charges are refunded when the store denies, and the other way round.
#[test]
fn i_11_a_denied_request_is_charged_on_neither_tier() {
    let narrow = LimitRule {
        local: Some(per_second(5)),
        ..limit("narrow", quota(Algorithm::TokenBucket, &[(2, Nanos::HOUR)]))
    };
    let node = FleetTest::new(vec![narrow]);
    assert_eq!(node.admitted("alice", 100), 2);
    node.engine.control().clear_cached_denials();
    let denied = node.check("alice");
    let local = denied
        .limits()
        .iter()
        .find(|state| state.status.limit == 5)
        .unwrap();
    assert_eq!(local.status.remaining, 3, "two were spent, not three");
    // A denial by the local bucket does not reach the store.
    let wide = LimitRule {
        local: Some(per_second(5)),
        ..limit("wide", quota(Algorithm::TokenBucket, &[(200, Nanos::HOUR)]))
    };
    let node = FleetTest::new(vec![wide]);
    assert_eq!(node.admitted("alice", 100), 5);
    assert_eq!(node.remote.calls(), 5);
}

/// I-14: permits of this node's fallback are released here, and permits of the store at the store.
#[test]
fn i_14_permits_return_to_the_tier_that_granted_them() {
    let node = FleetTest::new(vec![limit("at once", places(4))]);
    let mut shared = node.check("alice");
    node.remote.fail(Fault::Gone);
    let mut local = [node.check("alice"), node.check("alice")];
    assert!(local.iter().all(Verdict::is_admitted), "half of four");
    assert!(!node.check("alice").is_admitted());
    let [one, _] = &mut local;
    let ticket = one.take_ticket().unwrap();
    poll_once(node.fleet_engine().respond(ticket, &200))
        .unwrap()
        .unwrap();
    assert!(node.check("alice").is_admitted());
    node.remote.fail(Fault::None);
    node.clock.advance(Nanos::from_secs(1));
    node.probe();
    assert_eq!(node.admitted("alice", 10), 3);
    let ticket = shared.take_ticket().unwrap();
    poll_once(node.fleet_engine().respond(ticket, &200))
        .unwrap()
        .unwrap();
    assert_eq!(node.admitted("alice", 10), 1);
}

#[test]
fn a_peek_charges_nothing() {
    let node = FleetTest::new(vec![per_hour(10)]);
    for _ in 0..100 {
        assert!(node.check_with("alice", CheckMode::Peek).is_admitted());
    }
    assert_eq!(node.admitted("alice", 100), 10);
    node.remote.fail(Fault::Gone);
    for _ in 0..100 {
        assert!(node.check_with("bob", CheckMode::Peek).is_admitted());
    }
    assert_eq!(node.admitted("bob", 100), 5);
}

#[test]
fn a_reset_reaches_the_shared_store() {
    let colocated = LimitRule {
        colocate: Some(Attribute::parse("header.user").unwrap().into()),
        ..per_hour(10)
    };
    let node = FleetTest::new(vec![colocated]);
    assert_eq!(node.admitted("alice", 100), 10);
    let erased = |name| poll_once(node.fleet_engine().erase("hourly", &[name])).unwrap();
    assert_eq!(erased("bob"), Ok(false));
    assert_eq!(erased("alice"), Ok(true));
    assert_eq!(
        node.admitted("alice", 100),
        10,
        "the cached denial is gone too"
    );
}
