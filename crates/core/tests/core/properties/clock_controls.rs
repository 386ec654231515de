//! Limiters that handle a stepping clock wrongly, each as seen in the field, and caught.

use tollgate_core::{Nanos, Outcome, QuotaStatus, Timestamp};

use super::clock::{History, a_step_back_adds_nothing, jumps, run};
use super::harness::{CheckResult, assert_caught};
use super::subject::{Subject, interval, trace};

/// A limiter of `limit` in `window` nanoseconds that handles steps back wrongly.
#[derive(Clone, Debug, PartialEq)]
struct WrongLimiter {
    mistake: Mistake,
    limit: u64,
    window: u64,
    /// A window's start or end, or when tokens were last counted.
    instant: u64,
    previous: u64,
    current: u64,
    log: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mistake {
    /// A bucket that refills by the distance between two readings, whichever is later.
    RefillsBackwards,
    /// A fixed window whose index is recomputed from the clock, as with `INCR key:{now / window}`.
    WindowByIndex,
    /// A fixed window whose end moves to the boundary that the clock will pass again.
    WindowEndsTwice,
    /// A sliding counter whose start moves to a multiple of the window.
    CounterStartsAligned,
    /// A log that treats entries ahead of now as old ones.
    LogForgetsTheFuture,
    /// Leases that count only between their start and their end.
    LeasesOnlyWhileTheyLast,
}

impl WrongLimiter {
    const fn new(mistake: Mistake, limit: u64, window: u64) -> Self {
        Self {
            mistake,
            limit,
            window,
            instant: 0,
            previous: 0,
            current: 0,
            log: Vec::new(),
        }
    }

    /// Moves the state to `now`, wrongly, and returns the use.
    fn used(&mut self, now: u64) -> u64 {
        let aligned = now - now % self.window;
        match self.mistake {
            Mistake::RefillsBackwards => {
                // One unit refills in a window's part of the limit.
                let refilled = self.instant.abs_diff(now) / (self.window / self.limit).max(1);
                if refilled > 0 {
                    self.current = self.current.saturating_sub(refilled);
                    self.instant = now;
                }
            }
            Mistake::WindowByIndex => {
                if self.instant != aligned {
                    (self.instant, self.current) = (aligned, 0);
                }
            }
            Mistake::WindowEndsTwice => {
                let end = aligned + self.window;
                if self.instant <= now {
                    self.current = 0;
                    self.instant = end;
                }
                self.instant = self.instant.min(end);
            }
            Mistake::CounterStartsAligned => {
                if self.instant > now {
                    self.instant = aligned;
                } else if now - self.instant >= 2 * self.window {
                    (self.instant, self.previous, self.current) = (aligned, 0, 0);
                } else if now - self.instant >= self.window {
                    self.instant += self.window;
                    (self.previous, self.current) = (self.current, 0);
                }
                let left = self.window - (now - self.instant);
                let weighted = u128::from(self.previous) * u128::from(left);
                let faded = weighted.div_ceil(u128::from(self.window));
                return self.current + u64::try_from(faded).unwrap();
            }
            Mistake::LogForgetsTheFuture | Mistake::LeasesOnlyWhileTheyLast => {
                if self.mistake == Mistake::LogForgetsTheFuture {
                    self.log.retain(|entry| entry.0 <= now);
                }
                let window = self.window;
                let live = |entry: &&(u64, u64)| entry.0 <= now && now - entry.0 < window;
                return self.log.iter().filter(live).map(|entry| entry.1).sum();
            }
        }
        self.current
    }
}

impl Subject for WrongLimiter {
    fn spend(&mut self, now: Timestamp, cost: u64) -> Outcome {
        let used = self.used(now.as_nanos());
        if used + cost > self.limit {
            return Outcome::Deny {
                retry_after: Nanos::SECOND,
            };
        }
        self.current += cost;
        self.log.push((now.as_nanos(), cost));
        Outcome::Allow
    }

    fn status(&self, now: Timestamp) -> QuotaStatus {
        let used = self.clone().used(now.as_nanos());
        QuotaStatus {
            limit: self.limit,
            remaining: self.limit.saturating_sub(used),
            reset_after: Nanos::ZERO,
        }
    }
}

/// The mistake breaks the bound of its algorithm under steps back alone.
#[track_caller]
fn assert_mints(mistake: Mistake, statement: fn(&History, u64, u64) -> CheckResult) {
    let inputs = (1_u64..4, interval(), trace(40, 3), jumps(false));
    assert_caught(&inputs, |(limit, window, steps, jumps)| {
        let mut wrong = WrongLimiter::new(mistake, limit, window.max(limit));
        let history = run(&mut wrong, window.max(limit), &steps, &jumps);
        statement(&history, limit, window.max(limit))
    });
}

#[test]
fn control_a_bucket_that_refills_backwards_is_caught() {
    assert_mints(Mistake::RefillsBackwards, |history, limit, window| {
        history.in_a_bucket((window / limit).max(1), limit)
    });
}

#[test]
fn control_windows_that_begin_again_are_caught() {
    for mistake in [Mistake::WindowByIndex, Mistake::WindowEndsTwice] {
        assert_mints(mistake, History::in_fixed_windows);
    }
}

#[test]
fn control_a_log_that_forgets_the_future_is_caught() {
    for mistake in [
        Mistake::LogForgetsTheFuture,
        Mistake::LeasesOnlyWhileTheyLast,
    ] {
        assert_mints(mistake, |history, limit, window| {
            history.in_any_window(|ahead| limit * (1 + ahead), window)
        });
    }
}

#[test]
fn control_a_counter_that_starts_on_a_multiple_of_its_window_is_caught() {
    let inputs = (1_u64..12, interval(), trace(40, 12), jumps(false));
    assert_caught(&inputs, |(limit, window, steps, jumps)| {
        let wrong = WrongLimiter::new(Mistake::CounterStartsAligned, limit, window);
        a_step_back_adds_nothing(wrong, window, &steps, &jumps)
    });
}
