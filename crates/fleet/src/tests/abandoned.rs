//! Decisions whose callers disconnect before the verdict.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;

/// Regression: a client that disconnected while the store was asked may have acquired a permit, which was held until
/// its lease expired.
#[test]
fn an_abandoned_decision_releases_its_permit() {
    let rig = FleetTest::new(vec![limit("places", places(1))]);
    rig.remote.is_slow.store(true, Ordering::Relaxed);
    let caller = Caller::named("alice");
    {
        let mut deciding = pin!(rig.node().check(&caller, CheckOptions::default()));
        let mut context = Context::from_waker(Waker::noop());
        let polled = deciding.as_mut().poll(&mut context);
        assert!(matches!(polled, Poll::Pending), "the store is still asked");
    }
    rig.remote.is_slow.store(false, Ordering::Relaxed);
    assert!(!rig.ask("alice").is_admitted(), "the place is taken");
    poll_once(rig.node().cancel_abandoned()).unwrap();
    assert!(rig.ask("alice").is_admitted());
}

/// Only abandoned decisions are cancelled; admitted requests keep their charges.
#[test]
fn a_completed_decision_is_not_cancelled() {
    let rig = FleetTest::new(vec![limit("places", places(1))]);
    let verdict = rig.ask("alice");
    assert!(verdict.is_admitted());
    poll_once(rig.node().cancel_abandoned()).unwrap();
    assert!(!rig.ask("alice").is_admitted());
}

/// Regression: one round cancelled everything, one call after another, and delayed the maintenance of leases and
/// counts.
#[test]
fn a_round_cancels_a_bounded_number_of_tickets() {
    let rig = FleetTest::new(vec![limit("places", places(100))]);
    rig.remote.is_slow.store(true, Ordering::Relaxed);
    let caller = Caller::named("alice");
    for _ in 0..70 {
        let mut deciding = pin!(rig.node().check(&caller, CheckOptions::default()));
        let mut context = Context::from_waker(Waker::noop());
        assert!(deciding.as_mut().poll(&mut context).is_pending());
    }
    rig.remote.is_slow.store(false, Ordering::Relaxed);
    let calls = rig.remote.calls();
    poll_once(rig.node().cancel_abandoned()).unwrap();
    assert_eq!(rig.remote.calls() - calls, 64, "the other six come next");
    poll_once(rig.node().cancel_abandoned()).unwrap();
    assert_eq!(rig.remote.calls() - calls, 70);
    assert_eq!(rig.admitted("alice", 200), 100, "all places are back");
}
