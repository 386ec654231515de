//! A key exists exactly while its state matters; afterwards the limit decides as unused. With controls of the checks.

use tollgate_core::Nanos;
use tollgate_core::reservation::ReservationId;
use tollgate_store::{Op, ReplyNote};
use tollgate_testkit::redis::ServerProgram;

use super::cases::{Case, MOST, cases};
use super::harness::{ClockHarness, needed_until};
use crate::model::Model;
use crate::server_time::{numbered_limit, slow_bucket};

const MICROSECOND: Nanos = Nanos::from_micros(1);
const TWO_MILLISECONDS: Nanos = Nanos::from_millis(2);

/// Spends on two keys. Reads one just before and the other just when the state stops to matter, and then finds the
/// first key expired.
async fn follow(harness: &mut ClockHarness, case: &Case) {
    let limit = &case.limit;
    let (mut alice, mut bob) = (Model::default(), Model::default());
    let take = case.take(2, harness.number());
    let answer = harness.agree(&mut alice, "alice", limit, take).await;
    let names = harness.names();
    assert_eq!(names.len(), 1, "{names:?}");
    let until = needed_until(&answer);
    assert_eq!(harness.lifetime_fault(&names[0], until), None, "{limit:?}");
    let second = harness.agree(&mut bob, "bob", limit, take).await;

    // A microsecond, the finest unit of the server's clock, plus the possible lead of the server's clock.
    let gap = harness.slack().saturating_add(MICROSECOND);
    harness.advance(until.since(harness.now()).saturating_sub(gap));
    let all = case.take(MOST, harness.number());
    let denied = harness.agree(&mut alice, "alice", limit, all).await;
    assert!(!denied.outcome.is_admitted(), "{limit:?} expired too early");
    assert_eq!(needed_until(&denied), until, "{limit:?}");
    assert_eq!(harness.lifetime_fault(&names[0], until), None, "{limit:?}");

    let until = until.max(needed_until(&second));
    harness.advance(until.since(harness.now()));
    let answer = harness.agree(&mut bob, "bob", limit, all).await;
    assert!(answer.outcome.is_admitted(), "{limit:?} expired too late");

    harness.advance(TWO_MILLISECONDS);
    assert_eq!(harness.survival_fault(&names[0]), None, "{limit:?}");
    let all = case.take(MOST, harness.number());
    let answer = harness.ask("alice", limit, all).await;
    assert_eq!(ClockHarness::staleness_fault(&answer, limit, all), None);
    harness.command::<()>(&["FLUSHALL"]);
}

#[tokio::test]
async fn i15_a_key_lives_exactly_as_long_as_its_state_matters() {
    for kind in ServerProgram::under_test() {
        let mut harness = ClockHarness::start(kind).await;
        for case in cases() {
            // At the very beginning of a millisecond, at its very end, and between.
            for micros in [543, 999, 377] {
                follow(&mut harness, &case).await;
                harness.advance(Nanos::from_micros(micros));
            }
        }
    }
}

/// A ledger of reservations has a key of its own, needed while a reservation is held and for its retention.
#[tokio::test]
async fn i15_a_ledger_lives_as_long_as_its_reservations_are_kept() {
    let hold = Nanos::from_secs(10);
    let need = Nanos::from_secs(70);
    for kind in ServerProgram::under_test() {
        let mut harness = ClockHarness::start(kind).await;
        for case in cases().iter().filter(|case| !case.is_concurrency()) {
            let limit = &case.limit;
            let mut alice = Model::default();
            harness
                .agree(&mut alice, "alice", limit, Op::Spend(1))
                .await;
            let before = harness.names();
            let id = ReservationId(7);
            let reserve = Op::Reserve { id, cost: 1, hold };
            let reserved = harness.agree(&mut alice, "alice", limit, reserve).await;
            let mut names = harness.names();
            names.retain(|name| !before.contains(name));
            assert_eq!(names.len(), 1, "{names:?}");
            let until = reserved.receipt.at.after(need);
            assert_eq!(harness.lifetime_fault(&names[0], until), None);
            let gap = harness.slack().saturating_add(MICROSECOND);
            harness.advance(until.since(harness.now()).saturating_sub(gap));
            // Repeating the reservation changes nothing and returns the first receipt.
            let again = harness.ask("alice", limit, reserve).await;
            assert_eq!(again.note, ReplyNote::AlreadyReserved, "{limit:?}");
            assert_eq!(again.receipt, reserved.receipt, "{limit:?}");
            harness.advance(gap.saturating_add(TWO_MILLISECONDS));
            assert_eq!(harness.survival_fault(&names[0]), None);
            let cancel = Op::CancelReserved(id);
            let unknown = harness.agree(&mut alice, "alice", limit, cancel).await;
            assert_eq!(unknown.note, ReplyNote::ReservationUnknown, "{limit:?}");
            harness.command::<()>(&["FLUSHALL"]);
        }
    }
}

/// While the clock runs, the server may read it again between returning the time to a script and setting the key's
/// expiry.
#[tokio::test]
async fn i15_a_running_clock_cuts_no_lifetime_short() {
    for kind in [ServerProgram::Redis, ServerProgram::NewValkey] {
        let mut harness = ClockHarness::start(kind).await;
        harness.run();
        for case in cases() {
            for _ in 0..100 {
                let take = case.take(1, harness.number());
                let answer = harness.ask("alice", &case.limit, take).await;
                let name = harness.names().remove(0);
                let fault = harness.shortness_fault(&name, needed_until(&answer));
                assert_eq!(fault, None, "{case:?}");
                harness.command::<()>(&["FLUSHALL"]);
            }
        }
    }
}

#[tokio::test]
async fn control_a_key_that_lives_too_long_or_too_short_is_noticed() {
    let mut harness = ClockHarness::start(ServerProgram::Redis).await;
    let limit = numbered_limit(1, slow_bucket(2));
    let answer = harness.ask("alice", &limit, Op::Spend(1)).await;
    let until = needed_until(&answer);
    let name = harness.names().remove(0);
    assert_eq!(harness.lifetime_fault(&name, until), None);
    let wrongs: [(&[&str], &str); 4] = [
        (&["PERSIST", &name], "never expires"),
        (&["PEXPIRE", &name, "86399999"], "too early"),
        (&["PEXPIRE", &name, "86400003"], "longer"),
        (&["DEL", &name], "gone already"),
    ];
    for (wrong, complaint) in wrongs {
        harness.command::<()>(wrong);
        let fault = harness.lifetime_fault(&name, until).unwrap();
        assert!(fault.contains(complaint), "{fault}");
    }
}

#[tokio::test]
async fn control_a_state_that_outlives_its_expiry_is_noticed() {
    let mut harness = ClockHarness::start(ServerProgram::Redis).await;
    let limit = numbered_limit(1, slow_bucket(2));
    let day = Nanos::DAY;
    harness.ask("alice", &limit, Op::Spend(1)).await;
    let name = harness.names().remove(0);
    harness.command::<()>(&["PERSIST", &name]);
    harness.advance(day.saturating_add(TWO_MILLISECONDS));
    let fault = harness.survival_fault(&name);
    assert!(fault.is_some_and(|fault| fault.contains("still there")));
    // A store that ignores the expiry of its state.
    let later = harness.now().after(day).as_nanos().to_string();
    harness.command::<()>(&["SET", &name, &later]);
    let answer = harness.ask("alice", &limit, Op::Spend(1)).await;
    let fault = ClockHarness::staleness_fault(&answer, &limit, Op::Spend(1));
    assert!(fault.is_some_and(|fault| fault.contains("instead of")));
}
