//! Refunds (I-02): charges, refunds, partial and late settles in any order, each receipt at most once.
//!
//! The exact statements:
//!
//! - Buckets: counting every charge less its refund, at the instant of the charge, no window exceeds burst + rate × window. A refund
//!   returns at most what refill has not replaced. Once refill has replaced everything, it returns nothing.
//! - Buckets while the clock steps back: the same, but a refund may return, beyond what refill has left, as much as the clock stepped
//!   back since the charge, and never more than was charged. A receipt does not show time that the clock took back. So here backwards
//!   time can mint, through refunds alone.
//! - Epoch and calendar windows, logs, sliding counters: after a settle everything is as if the charge had been of that size from the
//!   start. So is a window from the first hit, except that a fully refunded hit has still begun the window of the requests after it.

use proptest::prelude::*;
use tollgate_core::limit::{Op, State};
use tollgate_core::{Nanos, Receipt, SlidingLog, Timestamp, Window};
use tollgate_testkit::oracle::BucketLog;

use super::harness::{CheckResult, assert_caught, assert_holds, ensure};
use super::subject::{RealLimit, Subject, at, bucket, fixed_windows, interval, sliding_counters};

const BEGIN: u64 = 1_700_000_000_000_000_000;

/// One operation: time that passes, a step back of the clock, and a charge or a settle.
#[derive(Clone, Copy, Debug)]
struct Move {
    advance: u64,
    back: u64,
    charge: bool,
    /// A cost, or the new cost of a settled charge.
    units: u64,
    /// Which of the open receipts is settled.
    which: usize,
}

fn moves(steps_back: bool) -> impl Strategy<Value = Vec<Move>> {
    let advance = prop_oneof![2 => Just(0), 3 => 0_u64..300, 1 => 0_u64..3_000];
    let back = if steps_back { 1_500_u64 } else { 1 };
    let back = prop_oneof![3 => Just(0), 1 => 0..back];
    let one = (advance, back, any::<bool>(), 0_u64..8, any::<usize>());
    let one = one.prop_map(|(advance, back, charge, units, which)| Move {
        advance,
        back,
        charge,
        units,
        which,
    });
    prop::collection::vec(one, 1..50)
}

/// A limiter that can refund charges.
trait RefundingLimiter: Subject {
    fn charge(&mut self, now: Timestamp, cost: u64) -> Option<Receipt>;
    fn settle(&mut self, now: Timestamp, receipt: &Receipt, actual: u64);
}

impl RefundingLimiter for RealLimit {
    fn charge(&mut self, now: Timestamp, cost: u64) -> Option<Receipt> {
        let transition = self
            .limit
            .decide(&self.state, now, Op::Spend(cost))
            .unwrap();
        if let Some(edit) = transition.next {
            self.state.apply(edit);
        }
        (transition.receipt.cost > 0).then_some(transition.receipt)
    }

    fn settle(&mut self, now: Timestamp, receipt: &Receipt, actual: u64) {
        let receipt = *receipt;
        let op = Op::Settle { receipt, actual };
        if let Some(edit) = self.limit.decide(&self.state, now, op).unwrap().next {
            self.state.apply(edit);
        }
    }
}

/// Charges less refunds conform in real time. Moves are in hundredths of an interval.
fn net_charges_conform<S: RefundingLimiter>(
    mut limiter: S,
    (interval, burst): (u64, u64),
    moves: &[Move],
) -> CheckResult {
    let mut log = BucketLog::new(interval, burst);
    let mut open: Vec<(usize, Receipt, i128)> = Vec::new();
    let (mut real, mut clock, mut stepped_back) = (0, BEGIN, 0);
    for one in moves {
        let advance = one.advance * interval / 100;
        real += advance;
        clock = clock + advance - one.back * interval / 100;
        stepped_back += i128::from(one.back * interval / 100);
        let now = at(clock);
        limiter.spend(now, 0);
        let debt = |limiter: &S| i128::from(limiter.status(now).reset_after.as_nanos());
        let before = debt(&limiter);
        if one.charge {
            if let Some(receipt) = limiter.charge(now, one.units) {
                open.push((log.len(), receipt, stepped_back));
                log.charge(real, i128::from(receipt.cost) * i128::from(interval));
            }
        } else if !open.is_empty() {
            let (index, receipt, back_then) = open.swap_remove(one.which % open.len());
            limiter.settle(now, &receipt, one.units);
            let given = before - debt(&limiter);
            if given >= 0 {
                log.give_back(index, given);
                log.charge(real, -given.min(stepped_back - back_then));
            } else {
                log.charge(real, -given);
            }
        }
    }
    ensure!(
        log.worst_excess() <= 0,
        "{} ns too much",
        log.worst_excess()
    );
    Ok(())
}

fn quotas() -> impl Strategy<Value = (u64, u64)> {
    (interval(), 1_u64..8)
}

#[test]
fn i02_a_bucket_refunds_only_what_refill_has_not_replaced() {
    assert_holds(&(quotas(), moves(false)), |(quota, moves)| {
        net_charges_conform(RealLimit::new(bucket(quota.0, quota.1)), quota, &moves)
    });
}

#[test]
fn i02_i08_a_refund_mints_at_most_what_the_clock_stepped_back_since_its_charge() {
    assert_holds(&(quotas(), moves(true)), |(quota, moves)| {
        net_charges_conform(RealLimit::new(bucket(quota.0, quota.1)), quota, &moves)
    });
}

/// A bucket that refunds the whole charge, however long ago it was.
#[derive(Clone, Debug, PartialEq)]
struct FullRefundLimit {
    real: RealLimit,
    interval: u64,
}

impl Subject for FullRefundLimit {
    fn spend(&mut self, now: Timestamp, cost: u64) -> tollgate_core::Outcome {
        self.real.spend(now, cost)
    }

    fn status(&self, now: Timestamp) -> tollgate_core::QuotaStatus {
        self.real.status(now)
    }
}

impl RefundingLimiter for FullRefundLimit {
    fn charge(&mut self, now: Timestamp, cost: u64) -> Option<Receipt> {
        self.real.charge(now, cost)
    }

    fn settle(&mut self, now: Timestamp, receipt: &Receipt, actual: u64) {
        if actual >= receipt.cost {
            return self.real.settle(now, receipt, actual);
        }
        let surplus = (receipt.cost - actual) * self.interval;
        if let State::Bucket(tat) = &mut self.real.state {
            *tat = tat.saturating_sub(surplus).max(now.as_nanos());
        }
    }
}

#[test]
fn control_a_refund_of_everything_after_time_has_passed_is_caught() {
    for steps_back in [false, true] {
        assert_caught(&(quotas(), moves(steps_back)), |(quota, moves)| {
            let wrong = FullRefundLimit {
                real: RealLimit::new(bucket(quota.0, quota.1)),
                interval: quota.0,
            };
            net_charges_conform(wrong, quota, &moves)
        });
    }
}

/// After every settle the limiter has the same status as a twin that was charged the settled amounts from the start.
fn settled_is_as_if_charged<S: RefundingLimiter>(
    fresh: &S,
    scale: u64,
    moves: &[Move],
) -> CheckResult {
    let mut limiter = fresh.clone();
    let mut charges: Vec<(Timestamp, u64)> = Vec::new();
    let mut open: Vec<(usize, Receipt)> = Vec::new();
    let mut clock = BEGIN;
    for one in moves {
        clock += one.advance * scale / 100;
        let now = at(clock);
        if one.charge {
            if let Some(receipt) = limiter.charge(now, one.units) {
                open.push((charges.len(), receipt));
                charges.push((now, receipt.cost));
            }
        } else if !open.is_empty() {
            let (index, receipt) = open.swap_remove(one.which % open.len());
            let actual = one.units.min(receipt.cost);
            limiter.settle(now, &receipt, actual);
            charges[index].1 = actual;
        }
        let mut twin = fresh.clone();
        for (then, cost) in &charges {
            twin.spend(*then, *cost);
        }
        let (status, expected) = (limiter.status(now), twin.status(now));
        ensure!(status == expected, "{status:?}, but its twin {expected:?}");
    }
    Ok(())
}

fn aligned_windows() -> impl Strategy<Value = (RealLimit, u64)> {
    fixed_windows().prop_filter("a refunded hit has still begun its window", |(real, _)| {
        use tollgate_core::limit::Quota;
        let from_first = |window| matches!(window, Window::FirstHit(_));
        !matches!(real.limit.quota(), Quota::FixedWindow(quota) if from_first(quota.window()))
    })
}

fn logs() -> impl Strategy<Value = (RealLimit, u64)> {
    (0_u64..12, 1_000_u64..5_000_000_000).prop_map(|(limit, window)| {
        let quota = SlidingLog::builder(limit, Nanos::from_nanos(window));
        (RealLimit::new(quota.build().unwrap()), window)
    })
}

#[test]
fn i02_a_settled_charge_in_a_window_is_as_if_charged_at_that_cost() {
    let limits = prop_oneof![aligned_windows(), logs(), sliding_counters()];
    assert_holds(&(limits, moves(false)), |((real, scale), moves)| {
        settled_is_as_if_charged(&real, scale, &moves)
    });
}

/// Refunds to the open window, as a `DECR` on the current key.
#[derive(Clone, Debug, PartialEq)]
struct OpenWindowRefundLimit(RealLimit);

impl Subject for OpenWindowRefundLimit {
    fn spend(&mut self, now: Timestamp, cost: u64) -> tollgate_core::Outcome {
        self.0.spend(now, cost)
    }

    fn status(&self, now: Timestamp) -> tollgate_core::QuotaStatus {
        self.0.status(now)
    }
}

impl RefundingLimiter for OpenWindowRefundLimit {
    fn charge(&mut self, now: Timestamp, cost: u64) -> Option<Receipt> {
        self.0.charge(now, cost)
    }

    fn settle(&mut self, now: Timestamp, receipt: &Receipt, actual: u64) {
        let op = Op::Credit(receipt.cost - actual);
        if let Some(edit) = self.0.limit.decide(&self.0.state, now, op).unwrap().next {
            self.0.state.apply(edit);
        }
    }
}

#[test]
fn control_a_refund_into_a_later_window_is_caught() {
    for limits in [
        aligned_windows().boxed(),
        logs().boxed(),
        sliding_counters().boxed(),
    ] {
        assert_caught(&(limits, moves(false)), |((real, scale), moves)| {
            settled_is_as_if_charged(&OpenWindowRefundLimit(real), scale, &moves)
        });
    }
}
