//! A key exists exactly while its state matters; afterwards the limit decides as unused. With controls of the checks.

use tollgate_core::Nanos;
use tollgate_core::reservation::ReservationId;
use tollgate_store::{Op, ReplyNote};
use tollgate_testkit::redis::Kind;

use super::cases::{Case, MOST, cases};
use super::harness::{ClockHarness, needed_until};
use crate::model::Model;
use crate::server_time::{numbered_limit, slow_bucket};

const MICROSECOND: Nanos = Nanos::from_micros(1);
const TWO_MILLISECONDS: Nanos = Nanos::from_millis(2);

/// Spends on two keys. Reads one just before and the other just when the state stops to matter, and then finds the
/// first key expired.
async fn follow(rig: &mut ClockHarness, case: &Case) {
    let limit = &case.ruled;
    let (mut alice, mut bob) = (Model::default(), Model::default());
    let take = case.take(2, rig.number());
    let answer = rig.agree(&mut alice, "alice", limit, take).await;
    let names = rig.names();
    assert_eq!(names.len(), 1, "{names:?}");
    let until = needed_until(&answer);
    assert_eq!(rig.lifetime_fault(&names[0], until), None, "{limit:?}");
    let second = rig.agree(&mut bob, "bob", limit, take).await;

    // A microsecond, the finest unit of the server's clock, plus the possible lead of the server's clock.
    let gap = rig.slack().saturating_add(MICROSECOND);
    rig.advance(until.since(rig.now()).saturating_sub(gap));
    let all = case.take(MOST, rig.number());
    let denied = rig.agree(&mut alice, "alice", limit, all).await;
    assert!(!denied.outcome.is_admitted(), "{limit:?} forgot too early");
    assert_eq!(needed_until(&denied), until, "{limit:?}");
    assert_eq!(rig.lifetime_fault(&names[0], until), None, "{limit:?}");

    let until = until.max(needed_until(&second));
    rig.advance(until.since(rig.now()));
    let answer = rig.agree(&mut bob, "bob", limit, all).await;
    assert!(answer.outcome.is_admitted(), "{limit:?} forgot too late");

    rig.advance(TWO_MILLISECONDS);
    assert_eq!(rig.survival_fault(&names[0]), None, "{limit:?}");
    let all = case.take(MOST, rig.number());
    let answer = rig.ask("alice", limit, all).await;
    assert_eq!(ClockHarness::staleness_fault(&answer, limit, all), None);
    rig.command::<()>(&["FLUSHALL"]);
}

#[tokio::test]
async fn i15_a_key_lives_exactly_as_long_as_its_state_matters() {
    for kind in Kind::under_test() {
        let mut rig = ClockHarness::start(kind).await;
        for case in cases() {
            // At the very beginning of a millisecond, at its very end, and between.
            for micros in [543, 999, 377] {
                follow(&mut rig, &case).await;
                rig.advance(Nanos::from_micros(micros));
            }
        }
    }
}

/// A ledger of reservations has a key of its own, needed while a reservation is held and for its retention.
#[tokio::test]
async fn i15_a_ledger_lives_as_long_as_it_remembers() {
    let hold = Nanos::from_secs(10);
    let need = Nanos::from_secs(70);
    for kind in Kind::under_test() {
        let mut rig = ClockHarness::start(kind).await;
        for case in cases().iter().filter(|case| !case.is_concurrency()) {
            let limit = &case.ruled;
            let mut alice = Model::default();
            rig.agree(&mut alice, "alice", limit, Op::Spend(1)).await;
            let before = rig.names();
            let id = ReservationId(7);
            let reserve = Op::Reserve { id, cost: 1, hold };
            let reserved = rig.agree(&mut alice, "alice", limit, reserve).await;
            let mut names = rig.names();
            names.retain(|name| !before.contains(name));
            assert_eq!(names.len(), 1, "{names:?}");
            let until = reserved.receipt.at.after(need);
            assert_eq!(rig.lifetime_fault(&names[0], until), None);
            let gap = rig.slack().saturating_add(MICROSECOND);
            rig.advance(until.since(rig.now()).saturating_sub(gap));
            // Repeating the reservation changes nothing and returns the first receipt.
            let again = rig.ask("alice", limit, reserve).await;
            assert_eq!(again.note, ReplyNote::AlreadyReserved, "{limit:?}");
            assert_eq!(again.receipt, reserved.receipt, "{limit:?}");
            rig.advance(gap.saturating_add(TWO_MILLISECONDS));
            assert_eq!(rig.survival_fault(&names[0]), None);
            let cancel = Op::CancelReserved(id);
            let unknown = rig.agree(&mut alice, "alice", limit, cancel).await;
            assert_eq!(unknown.note, ReplyNote::ReservationUnknown, "{limit:?}");
            rig.command::<()>(&["FLUSHALL"]);
        }
    }
}

/// While the clock runs, the server may read it again between returning the time to a script and setting the key's
/// expiry.
#[tokio::test]
async fn i15_a_running_clock_cuts_no_lifetime_short() {
    for kind in [Kind::Redis, Kind::NewValkey] {
        let mut rig = ClockHarness::start(kind).await;
        rig.run();
        for case in cases() {
            for _ in 0..100 {
                let take = case.take(1, rig.number());
                let answer = rig.ask("alice", &case.ruled, take).await;
                let name = rig.names().remove(0);
                let fault = rig.shortness_fault(&name, needed_until(&answer));
                assert_eq!(fault, None, "{case:?}");
                rig.command::<()>(&["FLUSHALL"]);
            }
        }
    }
}

#[tokio::test]
async fn control_a_key_that_lives_too_long_or_too_short_is_noticed() {
    let mut rig = ClockHarness::start(Kind::Redis).await;
    let limit = numbered_limit(1, slow_bucket(2));
    let answer = rig.ask("alice", &limit, Op::Spend(1)).await;
    let until = needed_until(&answer);
    let name = rig.names().remove(0);
    assert_eq!(rig.lifetime_fault(&name, until), None);
    let wrongs: [(&[&str], &str); 4] = [
        (&["PERSIST", &name], "never expires"),
        (&["PEXPIRE", &name, "86399999"], "too early"),
        (&["PEXPIRE", &name, "86400003"], "longer"),
        (&["DEL", &name], "gone already"),
    ];
    for (wrong, complaint) in wrongs {
        rig.command::<()>(wrong);
        let fault = rig.lifetime_fault(&name, until).unwrap();
        assert!(fault.contains(complaint), "{fault}");
    }
}

#[tokio::test]
async fn control_a_state_that_outlives_its_expiry_is_noticed() {
    let mut rig = ClockHarness::start(Kind::Redis).await;
    let limit = numbered_limit(1, slow_bucket(2));
    let day = Nanos::DAY;
    rig.ask("alice", &limit, Op::Spend(1)).await;
    let name = rig.names().remove(0);
    rig.command::<()>(&["PERSIST", &name]);
    rig.advance(day.saturating_add(TWO_MILLISECONDS));
    let fault = rig.survival_fault(&name);
    assert!(fault.is_some_and(|fault| fault.contains("still there")));
    // A store that ignores the expiry of its state.
    let later = rig.now().after(day).as_nanos().to_string();
    rig.command::<()>(&["SET", &name, &later]);
    let answer = rig.ask("alice", &limit, Op::Spend(1)).await;
    let fault = ClockHarness::staleness_fault(&answer, &limit, Op::Spend(1));
    assert!(fault.is_some_and(|fault| fault.contains("instead of")));
}
