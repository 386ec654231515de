//! Decisions whose callers leave before the verdict is there.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;

/// A client that disconnects while the store is asked may have taken a place. It used to be held until its lease ended.
#[test]
fn a_decision_that_is_dropped_under_way_gives_its_place_back() {
    let rig = FleetTest::new(vec![limit("places", places(1))]);
    rig.remote.is_slow.store(true, Ordering::Relaxed);
    let caller = TestCaller::named("alice");
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

/// What was admitted and not taken back stays: only decisions that nobody waits for are cancelled.
#[test]
fn a_verdict_that_arrived_is_not_cancelled() {
    let rig = FleetTest::new(vec![limit("places", places(1))]);
    let verdict = rig.ask("alice");
    assert!(verdict.is_admitted());
    poll_once(rig.node().cancel_abandoned()).unwrap();
    assert!(!rig.ask("alice").is_admitted());
}

/// Found in review: a round cancelled until nothing was left, one call after another, and slices and counts got no turn meanwhile.
#[test]
fn a_round_cancels_a_bounded_number_of_tickets() {
    let rig = FleetTest::new(vec![limit("places", places(100))]);
    rig.remote.is_slow.store(true, Ordering::Relaxed);
    let caller = TestCaller::named("alice");
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
