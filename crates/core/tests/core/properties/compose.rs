//! Batches of limits of any algorithms (I-11): all limits are charged or none, the strictest binds, and after its time, and not a
//! nanosecond earlier, all admit.

use proptest::prelude::*;
use tollgate_core::compose::BatchOutcome;
use tollgate_core::limit::{StateCheck, decide_all};
use tollgate_core::{Nanos, Outcome, Timestamp};

use super::harness::{CheckResult, assert_caught, assert_holds, ensure};
use super::subject::{RealLimit, Step, Subject, any_limit, at, beginning, trace};

/// Decides on several limits at once.
type Decider = fn(&mut [RealLimit], Timestamp, u64) -> (Outcome, Option<usize>);

fn real(limits: &mut [RealLimit], now: Timestamp, cost: u64) -> (Outcome, Option<usize>) {
    let ops: Vec<_> = limits.iter().map(|limit| limit.spend_op(cost)).collect();
    let mut checks: Vec<StateCheck<'_>> = limits
        .iter_mut()
        .zip(ops)
        .map(|(limit, op)| StateCheck {
            limit: &limit.limit,
            state: &mut limit.state,
            op,
        })
        .collect();
    let (batch, _) = decide_all(&mut checks, now).unwrap();
    let binding = batch.binding();
    if batch.is_admitted() && cost > 0 {
        limits.iter_mut().for_each(RealLimit::count_lease);
    }
    (batch.outcome(), binding)
}

fn all_or_nothing(
    decide: Decider,
    mut limits: Vec<RealLimit>,
    scale: u64,
    begin: u64,
    steps: &[Step],
) -> CheckResult {
    let mut now = begin;
    for step in steps {
        now += step.advance(scale);
        let now = at(now);
        // What each limit would decide alone.
        let mut alone = limits.clone();
        let outcomes: Vec<Outcome> = alone
            .iter_mut()
            .map(|one| one.spend(now, step.cost))
            .collect();
        let before = limits.clone();
        let (outcome, binding) = decide(&mut limits, now, step.cost);
        let admits = outcomes.iter().all(|outcome| outcome.is_admitted());
        ensure!(
            outcome.is_admitted() == admits,
            "{outcome:?} of {outcomes:?}"
        );
        if admits {
            ensure!(limits == alone, "not all were charged");
        } else {
            ensure!(limits == before, "a denied request was charged");
        }
        let strictest = outcomes.iter().map(|outcome| severity(*outcome)).max();
        ensure!(
            Some(severity(outcome)) == strictest.or(Some((0, 0))),
            "{outcome:?} of {outcomes:?}"
        );
        let first = outcomes.iter().position(|one| *one == outcome);
        let expected = first.filter(|_| outcome != Outcome::Allow);
        ensure!(binding == expected, "{binding:?} binds in {outcomes:?}");
        if let Outcome::Deny { retry_after } = outcome {
            let then = now.after(retry_after);
            let early = now.after(retry_after.saturating_sub(Nanos::from_nanos(1)));
            let in_time = decide(&mut limits.clone(), then, step.cost).0;
            ensure!(in_time.is_admitted(), "after {retry_after:?} {in_time:?}");
            let too_soon = decide(&mut limits.clone(), early, step.cost).0;
            ensure!(!too_soon.is_admitted(), "admitted before {retry_after:?}");
        }
    }
    Ok(())
}

fn severity(outcome: Outcome) -> (u8, u64) {
    match outcome {
        Outcome::Allow => (0, 0),
        Outcome::Wait(wait) => (1, wait.as_nanos()),
        Outcome::Deny { retry_after } => (2, retry_after.as_nanos()),
        Outcome::Never => (3, 0),
    }
}

fn inputs() -> impl Strategy<Value = (Vec<(RealLimit, u64)>, u64, Vec<Step>)> {
    (
        prop::collection::vec(any_limit(), 0..5),
        beginning(),
        trace(30, 6),
    )
}

fn check(
    decide: Decider,
    limits: Vec<(RealLimit, u64)>,
    begin: u64,
    steps: &[Step],
) -> CheckResult {
    let scale = limits.iter().map(|limit| limit.1).min().unwrap_or(1);
    let limits = limits.into_iter().map(|limit| limit.0).collect();
    all_or_nothing(decide, limits, scale, begin, steps)
}

#[test]
fn i11_several_limits_are_charged_together_or_not_at_all() {
    assert_holds(&inputs(), |(limits, begin, steps)| {
        check(real, limits, begin, &steps)
    });
}

/// Charges each limit in turn, although a later one may deny.
fn charges_as_it_goes(
    limits: &mut [RealLimit],
    now: Timestamp,
    cost: u64,
) -> (Outcome, Option<usize>) {
    let batch: BatchOutcome = limits
        .iter_mut()
        .map(|limit| limit.spend(now, cost))
        .collect();
    (batch.outcome(), batch.binding())
}

/// Returns the first denial instead of the longest.
fn first_denial_binds(
    limits: &mut [RealLimit],
    now: Timestamp,
    cost: u64,
) -> (Outcome, Option<usize>) {
    let mut copies = limits.to_vec();
    let outcomes: Vec<_> = copies
        .iter_mut()
        .map(|limit| limit.spend(now, cost))
        .collect();
    match outcomes.iter().position(|outcome| !outcome.is_admitted()) {
        Some(first) => (outcomes[first], Some(first)),
        None => real(limits, now, cost),
    }
}

#[test]
fn control_charging_one_limit_although_another_denies_is_caught() {
    assert_caught(&inputs(), |(limits, begin, steps)| {
        check(charges_as_it_goes, limits, begin, &steps)
    });
}

#[test]
fn control_returning_the_first_denial_is_caught() {
    assert_caught(&inputs(), |(limits, begin, steps)| {
        check(first_denial_binds, limits, begin, &steps)
    });
}
