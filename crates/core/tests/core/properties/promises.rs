//! What every limiter promises at every moment, whatever its algorithm (I-03, I-12), and for each promise a limiter
//! that breaks it.

use tollgate_core::limit::Op;
use tollgate_core::{Nanos, Outcome, QuotaStatus, Rate, Timestamp, TokenBucket};

use super::harness::{Checked, caught, ensure, holds};
use super::subject::{
    Real, Step, Subject, any_limit, at, beginning, concurrencies, fixed_windows, interval,
    leaky_buckets, sliding_counters, sliding_logs, token_buckets, trace,
};

/// A promise about a limiter in some state, asked for some cost at some instant.
pub(crate) type Promise<S> = fn(&S, Timestamp, u64) -> Checked;

/// After exactly `retry_after` the same cost is admitted if nothing else arrives, and a nanosecond earlier it is not.
pub(crate) fn the_wait_is_exact<S: Subject>(limiter: &S, now: Timestamp, cost: u64) -> Checked {
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

/// Never means above the limit, and above the limit means never.
pub(crate) fn never_is_above_the_limit<S: Subject>(
    limiter: &S,
    now: Timestamp,
    cost: u64,
) -> Checked {
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

/// What is refused and what only looks changes nothing, once a clock that went back has been corrected.
pub(crate) fn refused_is_free<S: Subject>(limiter: &S, now: Timestamp, cost: u64) -> Checked {
    let mut corrected = limiter.clone();
    let peek = corrected.spend(now, 0);
    ensure!(peek == Outcome::Allow, "a peek was answered {peek:?}");
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
pub(crate) fn remaining_is_exact<S: Subject>(limiter: &S, now: Timestamp, _cost: u64) -> Checked {
    let remaining = limiter.status(now).remaining;
    let all = limiter.clone().spend(now, remaining);
    ensure!(
        all.is_admitted(),
        "{remaining} remain but are answered {all:?}"
    );
    let more = limiter.clone().spend(now, remaining + 1);
    ensure!(
        !more.is_admitted(),
        "{remaining} remain but one more is admitted"
    );
    Ok(())
}

/// At `reset_after` the limiter is as if it had never been used, and a nanosecond earlier it is not.
pub(crate) fn the_reset_is_exact<S: Subject>(limiter: &S, now: Timestamp, _cost: u64) -> Checked {
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

/// All of them.
pub(crate) fn all<S: Subject>() -> [Promise<S>; 5] {
    [
        the_wait_is_exact,
        never_is_above_the_limit,
        refused_is_free,
        remaining_is_exact,
        the_reset_is_exact,
    ]
}

/// Puts a limiter through a trace and asks for the promises before every request.
pub(crate) fn keeps<S: Subject>(
    promises: &[Promise<S>],
    mut limiter: S,
    begin: u64,
    scale: u64,
    steps: &[Step],
) -> Checked {
    let mut now = begin;
    for step in steps {
        now += step.advance(scale);
        for promise in promises {
            promise(&limiter, at(now), step.cost)?;
        }
        limiter.spend(at(now), step.cost);
    }
    Ok(())
}

macro_rules! kept_by {
    ($($name:ident: $limits:ident),* $(,)?) => {$(
        #[test]
        fn $name() {
            holds(&($limits(), beginning(), trace(30, 14)), |((real, scale), begin, steps)| {
                keeps(&all(), real, begin, scale, &steps)
            });
        }
    )*};
}
kept_by! {
    i03_i12_a_token_bucket_keeps_every_promise: token_buckets,
    i03_i12_a_leaky_bucket_keeps_every_promise: leaky_buckets,
    i03_i12_a_fixed_window_keeps_every_promise: fixed_windows,
    i03_i12_a_sliding_log_keeps_every_promise: sliding_logs,
    i03_i12_a_sliding_counter_keeps_every_promise: sliding_counters,
    i03_i12_a_concurrency_limit_keeps_every_promise: concurrencies,
}

/// A real limiter that lies in one way.
#[derive(Clone, Debug, PartialEq)]
struct Liar {
    honest: Real,
    lie: Lie,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Lie {
    /// Seconds are rounded down, as if a client could not wait for less.
    WaitTooShort,
    /// The wait is a nanosecond too long.
    WaitTooLong,
    /// What can never be admitted is merely denied.
    NeverIsNotYet,
    /// Denied requests are charged one.
    DenialsCost,
    /// One more is said to remain than there is, unless the bucket is full.
    OneTooMany,
    /// Only admitted costs above one are said to be all that remains.
    OneTooFew,
    /// The reset is said to come with the next unit.
    ResetTooSoon,
    /// The reset is a nanosecond late.
    ResetTooLate,
}

impl Subject for Liar {
    fn spend(&mut self, now: Timestamp, cost: u64) -> Outcome {
        let outcome = self.honest.spend(now, cost);
        match (self.lie, outcome) {
            (Lie::WaitTooShort, Outcome::Deny { retry_after }) => Outcome::Deny {
                retry_after: retry_after.saturating_sub(Nanos::from_nanos(1)),
            },
            (Lie::WaitTooLong, Outcome::Deny { retry_after }) => Outcome::Deny {
                retry_after: retry_after.saturating_add(Nanos::from_nanos(1)),
            },
            (Lie::NeverIsNotYet, Outcome::Never) => Outcome::Deny {
                retry_after: Nanos::SECOND,
            },
            (Lie::DenialsCost, Outcome::Deny { .. }) => {
                self.honest.spend(now, self.honest.status(now).remaining);
                outcome
            }
            _ => outcome,
        }
    }

    fn status(&self, now: Timestamp) -> QuotaStatus {
        let mut status = self.honest.status(now);
        match self.lie {
            Lie::OneTooMany if status.remaining < status.limit => status.remaining += 1,
            Lie::OneTooFew => status.remaining = status.remaining.saturating_sub(1),
            Lie::ResetTooSoon => {
                status.reset_after = Nanos::from_nanos(status.reset_after.as_nanos() / 2);
            }
            Lie::ResetTooLate if !status.reset_after.is_zero() => {
                status.reset_after = status.reset_after.saturating_add(Nanos::from_nanos(1));
            }
            _ => {}
        }
        status
    }
}

/// The lie is caught by this promise, told by a limiter of any algorithm.
#[track_caller]
fn is_caught(lie: Lie, promise: Promise<Liar>) {
    caught(
        &(any_limit(), beginning(), trace(30, 14)),
        |((honest, scale), begin, steps)| {
            keeps(&[promise], Liar { honest, lie }, begin, scale, &steps)
        },
    );
}

#[test]
fn control_a_wait_off_by_a_nanosecond_is_caught() {
    is_caught(Lie::WaitTooShort, the_wait_is_exact);
    is_caught(Lie::WaitTooLong, the_wait_is_exact);
}

#[test]
fn control_a_never_told_as_not_yet_is_caught() {
    is_caught(Lie::NeverIsNotYet, never_is_above_the_limit);
}

#[test]
fn control_a_denial_that_costs_is_caught() {
    is_caught(Lie::DenialsCost, refused_is_free);
}

#[test]
fn control_a_remaining_off_by_one_is_caught() {
    is_caught(Lie::OneTooMany, remaining_is_exact);
    is_caught(Lie::OneTooFew, remaining_is_exact);
}

#[test]
fn control_a_reset_off_by_a_nanosecond_is_caught() {
    is_caught(Lie::ResetTooSoon, the_reset_is_exact);
    is_caught(Lie::ResetTooLate, the_reset_is_exact);
}

/// The promises hold in the overdraft too, where debt exceeds what is ever admitted.
#[test]
fn i12_the_wait_and_the_reset_are_exact_in_the_overdraft() {
    let inputs = (interval(), 1_u64..8, 1_u64..20, 1_u64..30, trace(10, 8));
    holds(&inputs, |(interval, burst, overdraft, charge, steps)| {
        let rate = Rate::new(1, Nanos::from_nanos(interval));
        let builder = TokenBucket::builder(rate).burst(burst);
        let mut real = Real::new(builder.overdraft(overdraft).build().unwrap());
        let begin = 1_700_000_000_000_000_000;
        let op = Op::ChargeAlways(charge);
        let charged = real.limit.decide(&real.state, at(begin), op).unwrap();
        real.state.apply(charged.next.unwrap());
        let owed = burst.saturating_sub(charge.min(burst + overdraft));
        ensure!(real.status(at(begin)).remaining == owed, "charged {charge}");
        keeps(&all(), real, begin, interval, &steps)
    });
}
