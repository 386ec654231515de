//! S-26: the server's clock jumps by an hour, by a day, and back to 1970. No units are minted, and no client is locked
//! out.

use tollgate_core::{Nanos, Outcome};
use tollgate_store::StoreReply;
use tollgate_testkit::redis::ServerProgram;

use super::cases::{Case, MOST, cases};
use super::harness::{ClockHarness, needed_until};
use crate::model::Model;

/// The time until no client may be locked out is divided into this many parts.
const PARTS: u64 = 40;

/// Requests everything at once, then single units, and returns how many units were admitted and the last reply. (Single
/// units would not fill a bucket on Valkey, whose held clock wavers.) Afterwards every key has an expiry, not before
/// its state's end and not after the bound.
async fn fill(harness: &mut ClockHarness, model: &mut Model, case: &Case) -> (u64, StoreReply) {
    let (mut admitted, mut last) = (0, StoreReply::EMPTY);
    for cost in [MOST, 1, 1, 1, 1, 1, 1] {
        let take = case.take(cost, harness.number());
        last = harness.agree(model, "alice", &case.limit, take).await;
        admitted += cost * u64::from(last.outcome.is_admitted());
    }
    let names = harness.names();
    assert_eq!(names.len(), 1, "{names:?}");
    let fault = harness.lifetime_fault(&names[0], needed_until(&last));
    assert_eq!(fault, None, "{case:?}");
    let reset = last.status.reset_after;
    assert!(reset <= case.bound, "{reset:?} for {case:?}");
    (admitted, last)
}

async fn go_back(harness: &mut ClockHarness, case: &Case, step: Nanos) {
    let mut alice = Model::default();
    assert_eq!(fill(harness, &mut alice, case).await.0, MOST, "{case:?}");
    harness.set_back(step);
    let (minted, denied) = fill(harness, &mut alice, case).await;
    assert_eq!(minted, 0, "{step:?} back under {case:?}");
    let Outcome::Deny { retry_after } = denied.outcome else {
        panic!("{denied:?} under {case:?}");
    };
    assert!(retry_after <= case.bound, "{retry_after:?} for {case:?}");

    // A little more each time, so that no state ends exactly where the clock is held: Valkey's clock wavers there.
    let part =
        Nanos::from_nanos(case.bound.as_nanos() / PARTS).saturating_add(Nanos::from_millis(2));
    let mut admitted = 0;
    for _ in 0..PARTS {
        harness.advance(part);
        admitted += fill(harness, &mut alice, case).await.0;
    }
    assert!(admitted > 0, "{step:?} back locks out of {case:?}");
    let most = case.admitted_within_bound;
    assert!(admitted <= most, "{admitted} after {step:?} for {case:?}");
    harness.command::<()>(&["FLUSHALL"]);
}

async fn go_back_everywhere(step: Nanos) {
    for kind in [ServerProgram::Redis, ServerProgram::NewValkey] {
        for case in cases() {
            let mut harness = ClockHarness::start(kind).await;
            go_back(&mut harness, &case, step).await;
        }
    }
}

#[tokio::test]
async fn s_26_a_clock_set_back_by_an_hour_mints_nothing_and_locks_nobody_out() {
    go_back_everywhere(Nanos::HOUR).await;
}

#[tokio::test]
async fn s_26_a_clock_set_back_by_a_day_mints_nothing_and_locks_nobody_out() {
    go_back_everywhere(Nanos::DAY).await;
}

#[tokio::test]
async fn s_26_a_clock_set_back_to_1970_mints_nothing_and_locks_nobody_out() {
    // Ten seconds after the epoch.
    go_back_everywhere(Nanos::from_micros(1_788_999_990_123_457)).await;
}

#[tokio::test]
async fn s_26_a_clock_set_back_again_and_again_mints_nothing() {
    for kind in [ServerProgram::Redis, ServerProgram::NewValkey] {
        let mut harness = ClockHarness::start(kind).await;
        for case in cases() {
            let mut alice = Model::default();
            assert_eq!(fill(&mut harness, &mut alice, &case).await.0, MOST);
            for _ in 0..24 {
                harness.set_back(Nanos::HOUR);
                assert_eq!(fill(&mut harness, &mut alice, &case).await.0, 0, "{case:?}");
            }
            harness.command::<()>(&["FLUSHALL"]);
        }
    }
}

#[tokio::test]
async fn s_26_a_jump_ahead_mints_at_most_one_burst_and_the_way_back_nothing() {
    for kind in [ServerProgram::Redis, ServerProgram::NewValkey] {
        for step in [Nanos::HOUR, Nanos::DAY] {
            let mut harness = ClockHarness::start(kind).await;
            for case in cases() {
                let mut alice = Model::default();
                assert_eq!(fill(&mut harness, &mut alice, &case).await.0, MOST);
                harness.advance(step);
                let minted = fill(&mut harness, &mut alice, &case).await.0;
                // A day that has not ended refills nothing; every other limit is full again.
                let is_over = minted == MOST || case.bound > step;
                assert!(minted <= MOST && is_over, "{minted} under {case:?}");
                harness.set_back(step);
                assert_eq!(fill(&mut harness, &mut alice, &case).await.0, 0, "{case:?}");
                harness.command::<()>(&["FLUSHALL"]);
            }
        }
    }
}

/// A jump that no decision saw: the key expires meanwhile, core's state does not, so only the bound can be checked.
#[tokio::test]
async fn s_26_a_key_lost_to_a_short_jump_ahead_costs_at_most_one_burst() {
    for kind in [ServerProgram::Redis, ServerProgram::NewValkey] {
        let mut harness = ClockHarness::start(kind).await;
        for case in cases() {
            let mut alice = Model::default();
            assert_eq!(fill(&mut harness, &mut alice, &case).await.0, MOST);
            let name = harness.names().remove(0);
            harness.advance(case.bound.saturating_add(Nanos::SECOND));
            // Reading an expired key deletes it.
            assert_eq!(harness.survival_fault(&name), None);
            harness.set_back(case.bound.saturating_add(Nanos::SECOND));
            let mut forgotten = Model::default();
            assert_eq!(fill(&mut harness, &mut forgotten, &case).await.0, MOST);
            harness.command::<()>(&["FLUSHALL"]);
        }
    }
}
