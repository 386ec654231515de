//! Decisions whose callers disconnect before the verdict.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;

/// Regression: a client that disconnected while the store was asked may have acquired a permit, which was held until
/// its lease expired.
#[test]
fn an_abandoned_decision_releases_its_permit() {
    let node = FleetTest::new(vec![limit("places", places(1))]);
    node.remote.is_slow.store(true, Ordering::Relaxed);
    let caller = TestCaller::named("alice");
    {
        let mut decision = pin!(node.fleet_engine().check(&caller, CheckOptions::default()));
        let mut context = Context::from_waker(Waker::noop());
        let polled = decision.as_mut().poll(&mut context);
        assert!(matches!(polled, Poll::Pending), "the call is in flight");
    }
    node.remote.is_slow.store(false, Ordering::Relaxed);
    assert!(!node.check("alice").is_admitted(), "the permit is held");
    poll_once(node.fleet_engine().cancel_abandoned()).unwrap();
    assert!(node.check("alice").is_admitted());
}

/// Only abandoned decisions are cancelled; admitted requests keep their charges.
#[test]
fn a_completed_decision_is_not_cancelled() {
    let node = FleetTest::new(vec![limit("places", places(1))]);
    let verdict = node.check("alice");
    assert!(verdict.is_admitted());
    poll_once(node.fleet_engine().cancel_abandoned()).unwrap();
    assert!(!node.check("alice").is_admitted());
}

/// Regression: one round cancelled everything, one call after another, and delayed the maintenance of leases and
/// counts.
#[test]
fn a_round_cancels_a_bounded_number_of_tickets() {
    let node = FleetTest::new(vec![limit("places", places(400))]);
    node.remote.is_slow.store(true, Ordering::Relaxed);
    let caller = TestCaller::named("alice");
    for _ in 0..262 {
        let mut decision = pin!(node.fleet_engine().check(&caller, CheckOptions::default()));
        let mut context = Context::from_waker(Waker::noop());
        assert!(decision.as_mut().poll(&mut context).is_pending());
    }
    node.remote.is_slow.store(false, Ordering::Relaxed);
    let calls = node.remote.calls();
    poll_once(node.fleet_engine().cancel_abandoned()).unwrap();
    assert_eq!(node.remote.calls() - calls, 256, "the other six come next");
    poll_once(node.fleet_engine().cancel_abandoned()).unwrap();
    assert_eq!(node.remote.calls() - calls, 262);
    assert_eq!(node.admitted("alice", 500), 400, "all permits are released");
}
