//! The sliding counter against rational arithmetic on the list of what was admitted (I-01, I-03).
//!
//! Precisely: `prev · (W − e)/W + cur + n ≤ L`, nothing rounded; the wait against trying every tick; fewer than 2L in
//! any span shorter than the window; and no jump in the estimate at a window's edge.

use proptest::prelude::*;
use tollgate_core::{CounterState, Nanos, Outcome, SlidingCounter};
use tollgate_testkit::oracle::{TwoCounters, most_in_any_window};

use super::harness::{CheckResult, assert_caught, assert_holds, ensure};
use super::subject::{Step, at, trace};

/// A counter under test: spends, or returns the time until it may.
trait CounterLimiter {
    fn spend(&mut self, now: u64, cost: u64) -> Result<(), Option<u64>>;
}

struct RealCounter(SlidingCounter, CounterState);

impl RealCounter {
    fn new((limit, window): (u64, u64)) -> Self {
        let quota = SlidingCounter::builder(limit, Nanos::from_nanos(window));
        Self(quota.build().unwrap(), CounterState::default())
    }
}

impl CounterLimiter for RealCounter {
    fn spend(&mut self, now: u64, cost: u64) -> Result<(), Option<u64>> {
        let transition = self.0.decide(self.1, at(now), cost);
        self.1 = transition.next.unwrap_or(self.1);
        match transition.outcome {
            Outcome::Deny { retry_after } => Err(Some(retry_after.as_nanos())),
            Outcome::Never => Err(None),
            _ => Ok(()),
        }
    }
}

/// Admits exactly what the rational estimate admits, and waits exactly as long as trying every tick finds.
fn decides_like_the_fractions(
    mut counter: impl CounterLimiter,
    (limit, window): (u64, u64),
    steps: &[Step],
) -> CheckResult {
    let mut exact = TwoCounters::new(limit, window);
    let mut now = 1_000_000 * window;
    for step in steps {
        now += step.advance(window);
        let cost = step.cost.min(limit);
        let expected = match exact.ticks_until(now, cost) {
            Some(0) => Ok(()),
            wait => Err(wait),
        };
        let reply = counter.spend(now, cost);
        // A peek is always allowed; the estimate alone may be above the limit.
        ensure!(
            reply == expected || cost == 0,
            "{reply:?}, fractions say {expected:?}"
        );
        if reply.is_ok() {
            exact.admit(now, cost);
        }
    }
    Ok(())
}

/// Any span shorter than the window holds less than twice the limit.
fn no_span_holds_twice_the_limit(
    mut counter: impl CounterLimiter,
    (limit, window): (u64, u64),
    steps: &[Step],
) -> CheckResult {
    let mut admitted = Vec::new();
    let mut now = 1_000_000 * window;
    for step in steps {
        now += step.advance(window);
        if counter.spend(now, step.cost).is_ok() {
            admitted.push((now, step.cost));
        }
    }
    let most = most_in_any_window(&admitted, window);
    ensure!(most < 2 * limit, "{most} of {limit}");
    Ok(())
}

fn quotas() -> impl Strategy<Value = (u64, u64)> {
    (1_u64..12, 1_u64..120)
}

#[test]
fn i01_i03_a_sliding_counter_decides_and_waits_like_the_fractions() {
    assert_holds(&(quotas(), trace(40, 12)), |(quota, steps)| {
        decides_like_the_fractions(RealCounter::new(quota), quota, &steps)
    });
}

#[test]
fn i01_no_span_shorter_than_the_window_holds_twice_the_limit() {
    assert_holds(&(quotas(), trace(60, 6)), |(quota, steps)| {
        no_span_holds_twice_the_limit(RealCounter::new(quota), quota, &steps)
    });
}

#[test]
fn the_estimate_is_continuous_over_the_edge_of_a_window() {
    let counts = (0_u32..1_000, 0_u32..1_000, 1_u64..10_000, 1_u64..1_000);
    assert_holds(&counts, |(previous, current, window, index)| {
        let quota = SlidingCounter::builder(1_000, Nanos::from_nanos(window));
        let quota = quota.ceiling(4_000).build().unwrap();
        let start = index * window;
        let state = CounterState {
            start,
            previous,
            current,
        };
        let used = |now| 1_000 - quota.status(state, at(now)).remaining;
        let (before, after) = (used(start + window - 1), used(start + window));
        let step = u64::from(previous).div_ceil(window);
        let most = (after + step).min(1_000);
        ensure!(before >= after && before <= most, "{before}, then {after}");
        Ok(())
    });
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mistake {
    /// The previous count stays although a whole window was skipped.
    KeepsASkippedWindow,
    /// The weighted previous count is rounded down.
    RoundsDown,
    /// The weight is a whole percentage, as a float printed and parsed.
    WeightInPercent,
    /// The previous window is not counted at all: a fixed window.
    ForgetsThePrevious,
    /// The wait is the rest of the window.
    WaitsForTheWindow,
}

struct WrongCounter {
    mistake: Mistake,
    limit: u64,
    window: u64,
    index: u64,
    previous: u64,
    current: u64,
}

impl CounterLimiter for WrongCounter {
    fn spend(&mut self, now: u64, cost: u64) -> Result<(), Option<u64>> {
        let index = now / self.window;
        if index > self.index {
            let is_next = index == self.index + 1 || self.mistake == Mistake::KeepsASkippedWindow;
            self.previous = if is_next { self.current } else { 0 };
            (self.index, self.current) = (index, 0);
        }
        let left = self.window - now % self.window;
        let faded = match self.mistake {
            Mistake::RoundsDown => self.previous * left / self.window,
            Mistake::WeightInPercent => (self.previous * (100 * left / self.window)).div_ceil(100),
            Mistake::ForgetsThePrevious => 0,
            _ => (self.previous * left).div_ceil(self.window),
        };
        if faded + self.current + cost > self.limit {
            return Err(Some(left));
        }
        self.current += cost;
        Ok(())
    }
}

const fn wrong(mistake: Mistake, (limit, window): (u64, u64)) -> WrongCounter {
    WrongCounter {
        mistake,
        limit,
        window,
        index: 0,
        previous: 0,
        current: 0,
    }
}

#[test]
fn control_every_wrong_counter_is_caught() {
    for mistake in [
        Mistake::KeepsASkippedWindow,
        Mistake::RoundsDown,
        Mistake::WeightInPercent,
        Mistake::ForgetsThePrevious,
        Mistake::WaitsForTheWindow,
    ] {
        assert_caught(&(quotas(), trace(40, 12)), |(quota, steps)| {
            let counter = wrong(mistake, quota);
            // The waits of all of them are wrong; only the mistake itself may be caught.
            let counter = WithoutWaits(counter, mistake != Mistake::WaitsForTheWindow);
            decisions_are_like_the_fractions(counter, quota, &steps)
        });
    }
}

/// Drops the waits, unless the waits are tested.
struct WithoutWaits(WrongCounter, bool);

impl CounterLimiter for WithoutWaits {
    fn spend(&mut self, now: u64, cost: u64) -> Result<(), Option<u64>> {
        let reply = self.0.spend(now, cost);
        reply.map_err(|wait| wait.filter(|_| !self.1))
    }
}

/// Like the checker above, but accepts a missing wait.
fn decisions_are_like_the_fractions(
    counter: WithoutWaits,
    quota: (u64, u64),
    steps: &[Step],
) -> CheckResult {
    struct WithExactWaits(WithoutWaits, TwoCounters);
    impl CounterLimiter for WithExactWaits {
        fn spend(&mut self, now: u64, cost: u64) -> Result<(), Option<u64>> {
            let reply = self.0.spend(now, cost);
            if reply.is_ok() {
                self.1.admit(now, cost);
            }
            let wait = self.1.ticks_until(now, cost);
            reply.map_err(|reported| reported.or(wait))
        }
    }
    let exact = TwoCounters::new(quota.0, quota.1);
    decides_like_the_fractions(WithExactWaits(counter, exact), quota, steps)
}

#[test]
fn control_a_counter_without_the_previous_window_admits_twice_the_limit() {
    assert_caught(&(quotas(), trace(60, 6)), |(quota, steps)| {
        no_span_holds_twice_the_limit(wrong(Mistake::ForgetsThePrevious, quota), quota, &steps)
    });
}
