//! The invariants of every limiter at every moment, whatever its algorithm (I-03, I-12), and for each a limiter that breaks it.

use tollgate_core::limit::Op;
use tollgate_core::{Nanos, Outcome, QuotaStatus, Rate, Timestamp, TokenBucket};

use super::harness::{CheckResult, assert_caught, assert_holds, ensure};
use super::subject::{
    RealLimit, Step, Subject, any_limit, at, beginning, concurrencies, fixed_windows, interval,
    leaky_buckets, sliding_counters, sliding_logs, token_buckets, trace,
};

/// An invariant of a limiter in some state, for some cost at some instant.
pub(crate) type Invariant<S> = fn(&S, Timestamp, u64) -> CheckResult;

/// After exactly `retry_after` the same cost is admitted if nothing else arrives, and a nanosecond earlier it is not.
pub(crate) fn the_wait_is_exact<S: Subject>(limiter: &S, now: Timestamp, cost: u64) -> CheckResult {
    let mut denied = limiter.clone();
    let Outcome::Deny { retry_after } = denied.spend(now, cost) else {
        return Ok(());
    };
    ensure!(!retry_after.is_zero(), "denied with nothing to wait for");
    let then = denied.clone().spend(now.after(retry_after), cost);
    ensure!(then.is_admitted(), "after {retry_after:?} still {then:?}");
    let earlier = now.after(retry_after.saturating_sub(Nanos::from_nanos(1)));
    let early = denied.clone().spend(earlier, cost);
    ensure!(!early.is_admitted(), "admitted 1 ns before {retry_after:?}");
    Ok(())
}

/// `Never` means above the limit, and above the limit means `Never`.
pub(crate) fn never_is_above_the_limit<S: Subject>(
    limiter: &S,
    now: Timestamp,
    cost: u64,
) -> CheckResult {
    let limit = limiter.status(now).limit;
    for cost in [cost, limit, limit.saturating_add(1), u64::MAX] {
        let is_never = limiter.clone().spend(now, cost) == Outcome::Never;
        ensure!(
            is_never == (cost > limit),
            "{cost} of {limit}: never is {is_never}"
        );
    }
    Ok(())
}

/// Denials and peeks change nothing, once a clock that went back has been corrected.
pub(crate) fn denials_are_free<S: Subject>(limiter: &S, now: Timestamp, cost: u64) -> CheckResult {
    let mut corrected = limiter.clone();
    let peek = corrected.spend(now, 0);
    ensure!(peek == Outcome::Allow, "a peek got {peek:?}");
    ensure!(
        limiter.status(now) == corrected.status(now),
        "a peek changed the status"
    );
    for cost in [0, cost, u64::MAX] {
        let mut after = corrected.clone();
        if cost == 0 || !after.spend(now, cost).is_admitted() {
            ensure!(after == corrected, "{cost} was free but left {after:?}");
        }
    }
    Ok(())
}

/// `remaining` is admitted at once and one more is not.
pub(crate) fn remaining_is_exact<S: Subject>(
    limiter: &S,
    now: Timestamp,
    _cost: u64,
) -> CheckResult {
    let remaining = limiter.status(now).remaining;
    let all = limiter.clone().spend(now, remaining);
    ensure!(all.is_admitted(), "{remaining} remain but got {all:?}");
    let more = limiter.clone().spend(now, remaining + 1);
    ensure!(
        !more.is_admitted(),
        "{remaining} remain but one more is admitted"
    );
    Ok(())
}

/// At `reset_after` the limiter is as if it had never been used, and a nanosecond earlier it is not.
pub(crate) fn the_reset_is_exact<S: Subject>(
    limiter: &S,
    now: Timestamp,
    _cost: u64,
) -> CheckResult {
    let status = limiter.status(now);
    let fresh = QuotaStatus {
        limit: status.limit,
        remaining: status.limit,
        reset_after: Nanos::ZERO,
    };
    let then = limiter.status(now.after(status.reset_after));
    ensure!(
        then == fresh,
        "after {:?} still {then:?}",
        status.reset_after
    );
    if !status.reset_after.is_zero() {
        let early = status.reset_after.saturating_sub(Nanos::from_nanos(1));
        let early = limiter.status(now.after(early));
        ensure!(early != fresh, "fresh 1 ns before {:?}", status.reset_after);
    }
    ensure!(status.remaining <= status.limit, "incoherent {status:?}");
    Ok(())
}

/// All invariants.
pub(crate) fn all_invariants<S: Subject>() -> [Invariant<S>; 5] {
    [
        the_wait_is_exact,
        never_is_above_the_limit,
        denials_are_free,
        remaining_is_exact,
        the_reset_is_exact,
    ]
}

/// Runs a limiter through a trace and checks the invariants before every request.
pub(crate) fn check_invariants<S: Subject>(
    invariants: &[Invariant<S>],
    mut limiter: S,
    begin: u64,
    scale: u64,
    steps: &[Step],
) -> CheckResult {
    let mut now = begin;
    for step in steps {
        now += step.advance(scale);
        for invariant in invariants {
            invariant(&limiter, at(now), step.cost)?;
        }
        limiter.spend(at(now), step.cost);
    }
    Ok(())
}

macro_rules! invariant_tests {
    ($($name:ident: $limits:ident),* $(,)?) => {$(
        #[test]
        fn $name() {
            assert_holds(&($limits(), beginning(), trace(30, 14)), |((real, scale), begin, steps)| {
                check_invariants(&all_invariants(), real, begin, scale, &steps)
            });
        }
    )*};
}
invariant_tests! {
    i03_i12_a_token_bucket_keeps_every_invariant: token_buckets,
    i03_i12_a_leaky_bucket_keeps_every_invariant: leaky_buckets,
    i03_i12_a_fixed_window_keeps_every_invariant: fixed_windows,
    i03_i12_a_sliding_log_keeps_every_invariant: sliding_logs,
    i03_i12_a_sliding_counter_keeps_every_invariant: sliding_counters,
    i03_i12_a_concurrency_limit_keeps_every_invariant: concurrencies,
}

/// A real limiter with one fault.
#[derive(Clone, Debug, PartialEq)]
struct FaultyLimiter {
    real: RealLimit,
    fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// The wait is a nanosecond too short.
    WaitTooShort,
    /// The wait is a nanosecond too long.
    WaitTooLong,
    /// `Never` is reported as a denial.
    NeverIsDeny,
    /// Denied requests are charged.
    DenialsCost,
    /// `remaining` is one too high, unless nothing is used.
    OneTooMany,
    /// `remaining` is one too low.
    OneTooFew,
    /// The reset is reported at half of its time.
    ResetTooSoon,
    /// The reset is a nanosecond late.
    ResetTooLate,
}

impl Subject for FaultyLimiter {
    fn spend(&mut self, now: Timestamp, cost: u64) -> Outcome {
        let outcome = self.real.spend(now, cost);
        match (self.fault, outcome) {
            (Fault::WaitTooShort, Outcome::Deny { retry_after }) => Outcome::Deny {
                retry_after: retry_after.saturating_sub(Nanos::from_nanos(1)),
            },
            (Fault::WaitTooLong, Outcome::Deny { retry_after }) => Outcome::Deny {
                retry_after: retry_after.saturating_add(Nanos::from_nanos(1)),
            },
            (Fault::NeverIsDeny, Outcome::Never) => Outcome::Deny {
                retry_after: Nanos::SECOND,
            },
            (Fault::DenialsCost, Outcome::Deny { .. }) => {
                self.real.spend(now, self.real.status(now).remaining);
                outcome
            }
            _ => outcome,
        }
    }

    fn status(&self, now: Timestamp) -> QuotaStatus {
        let mut status = self.real.status(now);
        match self.fault {
            Fault::OneTooMany if status.remaining < status.limit => status.remaining += 1,
            Fault::OneTooFew => status.remaining = status.remaining.saturating_sub(1),
            Fault::ResetTooSoon => {
                status.reset_after = Nanos::from_nanos(status.reset_after.as_nanos() / 2);
            }
            Fault::ResetTooLate if !status.reset_after.is_zero() => {
                status.reset_after = status.reset_after.saturating_add(Nanos::from_nanos(1));
            }
            _ => {}
        }
        status
    }
}

/// This invariant catches the fault, in a limiter of any algorithm.
#[track_caller]
fn assert_fault_caught(fault: Fault, invariant: Invariant<FaultyLimiter>) {
    assert_caught(
        &(any_limit(), beginning(), trace(30, 14)),
        |((real, scale), begin, steps)| {
            check_invariants(
                &[invariant],
                FaultyLimiter { real, fault },
                begin,
                scale,
                &steps,
            )
        },
    );
}

#[test]
fn control_a_wait_off_by_a_nanosecond_is_caught() {
    assert_fault_caught(Fault::WaitTooShort, the_wait_is_exact);
    assert_fault_caught(Fault::WaitTooLong, the_wait_is_exact);
}

#[test]
fn control_a_never_reported_as_a_denial_is_caught() {
    assert_fault_caught(Fault::NeverIsDeny, never_is_above_the_limit);
}

#[test]
fn control_a_denial_that_costs_is_caught() {
    assert_fault_caught(Fault::DenialsCost, denials_are_free);
}

#[test]
fn control_a_remaining_off_by_one_is_caught() {
    assert_fault_caught(Fault::OneTooMany, remaining_is_exact);
    assert_fault_caught(Fault::OneTooFew, remaining_is_exact);
}

#[test]
fn control_a_reset_off_by_a_nanosecond_is_caught() {
    assert_fault_caught(Fault::ResetTooSoon, the_reset_is_exact);
    assert_fault_caught(Fault::ResetTooLate, the_reset_is_exact);
}

/// The invariants hold in the overdraft too, where the debt exceeds the capacity.
#[test]
fn i12_the_wait_and_the_reset_are_exact_in_the_overdraft() {
    let inputs = (interval(), 1_u64..8, 1_u64..20, 1_u64..30, trace(10, 8));
    assert_holds(&inputs, |(interval, burst, overdraft, charge, steps)| {
        let rate = Rate::new(1, Nanos::from_nanos(interval));
        let builder = TokenBucket::builder(rate).burst(burst);
        let mut real = RealLimit::new(builder.overdraft(overdraft).build().unwrap());
        let begin = 1_700_000_000_000_000_000;
        let op = Op::ChargeAlways(charge);
        let charged = real.limit.decide(&real.state, at(begin), op).unwrap();
        real.state.apply(charged.next.unwrap());
        let expected = burst.saturating_sub(charge.min(burst + overdraft));
        ensure!(
            real.status(at(begin)).remaining == expected,
            "charged {charge}"
        );
        check_invariants(&all_invariants(), real, begin, interval, &steps)
    });
}
