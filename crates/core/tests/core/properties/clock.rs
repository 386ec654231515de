//! Clocks that step (I-08): what is admitted in *real* time while the clock of the limiter goes back and forth.
//!
//! RealLimit time only advances. The limiter sees real time plus an offset that steps. These are the exact bounds, with F the number of
//! forward steps inside the window w. None depends on how often or how far the clock goes back:
//!
//! - token and leaky bucket: A(w) ≤ B·(1 + F) + w/T. A forward step of j mints at most min(j, B·T)/T.
//! - fixed window of length W (the shortest one, for a calendar): A(w) ≤ L·(⌊w/W⌋ + 2 + F), as without steps.
//! - sliding log: A(w) ≤ L·(1 + F) for w < W.
//! - sliding counter: A(w) < L·(2 + F) for w < W, as without steps.
//! - concurrency: held at once ≤ L·(1 + F), each lease counted for its whole length in real time.
//!
//! At every moment, for every algorithm: if the clock steps back, `remaining` does not grow.

use proptest::prelude::*;
use tollgate_core::limit::Quota;
use tollgate_core::{
    Calendar, Nanos, Outcome, QuotaStatus, SlidingCounter, SlidingLog, Timestamp, Window,
};
use tollgate_testkit::oracle::BucketLog;

use super::harness::{CheckResult, assert_holds, ensure};
use super::subject::{
    RealLimit, Step, Subject, any_limit, at, bucket, concurrencies, fixed_windows, interval,
    leaky_buckets, trace,
};

/// Where clocks begin: far enough from 1970 to step back.
pub(super) const BEGIN: u64 = 1_700_000_000_000_000_000;
const DAY: u64 = 86_400_000_000_000;

/// What happened, in real time.
#[derive(Debug, Default)]
pub(super) struct History {
    /// RealLimit time and cost of each admission.
    admitted: Vec<(u64, u64)>,
    /// The index of the next admission, the real time and the size of each step ahead.
    ahead: Vec<(usize, u64, u64)>,
}

/// How the clock steps before a request; most requests have no step.
pub(super) type Jump = (u8, u64);

pub(super) fn jumps(may_go_ahead: bool) -> impl Strategy<Value = Vec<Jump>> {
    let most = if may_go_ahead { 7_u8 } else { 5 };
    prop::collection::vec((0..most, any::<u64>()), 40)
}

/// Runs a trace in real time under a stepping clock.
pub(super) fn run<S: Subject>(
    limiter: &mut S,
    scale: u64,
    steps: &[Step],
    jumps: &[Jump],
) -> History {
    let mut history = History::default();
    let (mut real, mut clock) = (0, BEGIN);
    for (step, (kind, raw)) in steps.iter().zip(jumps) {
        let advance = step.advance(scale);
        real += advance;
        clock += advance;
        match kind {
            2 => clock -= 1 + raw % scale,
            3 => clock -= 1,
            4 => clock = clock.saturating_sub(raw % (5 * scale)),
            5 => {
                let jump = raw % (5 * scale);
                clock += jump;
                history.ahead.push((history.admitted.len(), real, jump));
            }
            6 => {
                let jump = raw % DAY;
                clock += jump;
                history.ahead.push((history.admitted.len(), real, jump));
            }
            _ => {}
        }
        if limiter.spend(at(clock), step.cost).is_admitted() {
            history.admitted.push((real, step.cost));
        }
    }
    history
}

impl History {
    /// Every window from one admission to another: its length, the units admitted, and the number of steps ahead.
    fn windows(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        let firsts = self.admitted.iter().enumerate();
        firsts.flat_map(move |(i, first)| {
            let mut sum = 0;
            self.admitted
                .iter()
                .enumerate()
                .skip(i)
                .map(move |(j, last)| {
                    sum += last.1;
                    let inside = |jump: &&(usize, u64, u64)| jump.0 > i && jump.0 <= j;
                    let ahead = self.ahead.iter().filter(inside).count();
                    (last.0 - first.0, sum, u64::try_from(ahead).unwrap())
                })
        })
    }

    pub(super) fn in_a_bucket(&self, interval: u64, burst: u64) -> CheckResult {
        let capacity = i128::from(interval) * i128::from(burst);
        let mut log = BucketLog::with_capacity(capacity);
        for (index, (real, cost)) in self.admitted.iter().enumerate() {
            for (_, when, jump) in self.ahead.iter().filter(|jump| jump.0 == index) {
                log.charge(*when, -i128::from(*jump).min(capacity));
            }
            log.charge(*real, i128::from(*cost) * i128::from(interval));
        }
        ensure!(log.worst_excess() <= 0, "minted {} ns", log.worst_excess());
        Ok(())
    }

    pub(super) fn in_fixed_windows(&self, limit: u64, window: u64) -> CheckResult {
        for (length, sum, ahead) in self.windows() {
            let most = limit * (length / window + 2 + ahead);
            ensure!(sum <= most, "{sum} in {length} ns, at most {most}");
        }
        Ok(())
    }

    pub(super) fn in_any_window(&self, most: impl Fn(u64) -> u64, window: u64) -> CheckResult {
        for (length, sum, ahead) in self.windows().filter(|each| each.0 < window) {
            ensure!(
                sum <= most(ahead),
                "{sum} in {length} ns and {ahead} steps ahead"
            );
        }
        Ok(())
    }
}

/// Checks the bound of the limiter's algorithm.
fn the_bound_holds_in_real_time(real: &RealLimit, scale: u64, history: &History) -> CheckResult {
    let limit = real.status(at(BEGIN)).limit;
    match real.limit.quota() {
        Quota::TokenBucket(quota) => {
            history.in_a_bucket(quota.interval().as_nanos(), quota.limit())
        }
        Quota::LeakyBucket(quota) => {
            history.in_a_bucket(quota.interval().as_nanos(), quota.limit())
        }
        Quota::FixedWindow(quota) => history.in_fixed_windows(limit, shortest(quota.window())),
        Quota::SlidingLog(_) | Quota::Concurrency(_) => {
            history.in_any_window(|ahead| limit * (1 + ahead), scale)
        }
        Quota::SlidingCounter(_) => {
            let most = |ahead: u64| (limit * (2 + ahead)).saturating_sub(1);
            history.in_any_window(most, scale)
        }
        other => panic!("no statement for {other:?}"),
    }
}

fn shortest(window: Window) -> u64 {
    match window {
        Window::Epoch(length) | Window::FirstHit(length) => length.as_nanos(),
        Window::Calendar(Calendar::Day, _) => DAY,
        Window::Calendar(Calendar::Week, _) => 7 * DAY,
        _ => 28 * DAY,
    }
}

fn check(mut real: RealLimit, scale: u64, steps: &[Step], jumps: &[Jump]) -> CheckResult {
    let history = run(&mut real, scale, steps, jumps);
    the_bound_holds_in_real_time(&real, scale, &history)
}

/// Windows of whole microseconds, the resolution of a log: within one, real time and the log's may differ.
fn logs_in_whole_micros() -> impl Strategy<Value = (RealLimit, u64)> {
    (0_u64..12, 1_u64..5_000_000).prop_map(|(limit, micros)| {
        let window = Nanos::from_micros(micros);
        let quota = SlidingLog::builder(limit, window).build().unwrap();
        (RealLimit::new(quota), micros)
    })
}

/// The trace of a log has one microsecond for every nanosecond of the other traces.
#[derive(Clone, Debug, PartialEq)]
struct InMicros(RealLimit);

impl Subject for InMicros {
    fn spend(&mut self, now: Timestamp, cost: u64) -> Outcome {
        let past = now.as_nanos() - (BEGIN - 100_000_000_000_000);
        self.0.spend(at(past * 1_000), cost)
    }

    fn status(&self, now: Timestamp) -> QuotaStatus {
        self.0.status(now)
    }
}

macro_rules! bounded {
    ($($back:ident, $both:ident: $limits:ident),* $(,)?) => {$(
        #[test]
        fn $back() {
            assert_holds(&($limits(), trace(40, 12), jumps(false)), |((real, scale), steps, jumps)| {
                check(real, scale, &steps, &jumps)
            });
        }

        #[test]
        fn $both() {
            assert_holds(&($limits(), trace(40, 12), jumps(true)), |((real, scale), steps, jumps)| {
                check(real, scale, &steps, &jumps)
            });
        }
    )*};
}
bounded! {
    i08_backwards_time_mints_nothing_in_a_token_bucket,
    i08_a_forward_step_mints_at_most_one_burst_in_a_token_bucket: plain_buckets,
    i08_backwards_time_mints_nothing_in_a_leaky_bucket,
    i08_a_forward_step_mints_at_most_one_burst_in_a_leaky_bucket: leaky_buckets,
    i08_backwards_time_mints_nothing_in_a_fixed_window,
    i08_a_forward_step_mints_at_most_one_window_in_a_fixed_window: fixed_windows,
    i08_backwards_time_mints_nothing_in_a_sliding_counter,
    i08_a_forward_step_mints_at_most_one_limit_in_a_sliding_counter: fine_counters,
    i08_backwards_time_holds_no_lease_too_many,
    i08_a_forward_step_frees_at_most_every_lease_once: concurrencies,
}

#[test]
fn i08_backwards_time_mints_nothing_in_a_sliding_log() {
    let inputs = (logs_in_whole_micros(), trace(40, 12), jumps(true));
    assert_holds(&inputs, |((real, micros), steps, jumps)| {
        let mut limiter = InMicros(real.clone());
        let history = run(&mut limiter, micros, &steps, &jumps);
        the_bound_holds_in_real_time(&real, micros, &history)
    });
}

/// Blocks of one, so that units and intervals are the same.
fn plain_buckets() -> impl Strategy<Value = (RealLimit, u64)> {
    (interval(), 1_u64..12).prop_map(|(n, burst)| (RealLimit::new(bucket(n, burst)), n))
}

/// Limits that traces can reach.
fn fine_counters() -> impl Strategy<Value = (RealLimit, u64)> {
    (1_u64..12, interval()).prop_map(|(limit, window)| {
        let quota = SlidingCounter::builder(limit, Nanos::from_nanos(window));
        (RealLimit::new(quota.build().unwrap()), window)
    })
}

/// If the clock steps back at any moment, `remaining` does not grow.
pub(super) fn a_step_back_adds_nothing<S: Subject>(
    mut limiter: S,
    scale: u64,
    steps: &[Step],
    jumps: &[Jump],
) -> CheckResult {
    let mut now = BEGIN;
    for (step, (_, raw)) in steps.iter().zip(jumps) {
        now += step.advance(scale);
        limiter.spend(at(now), step.cost);
        for back in [1, raw % scale, raw % (3 * scale), raw % DAY] {
            let before = limiter.status(at(now)).remaining;
            let after = limiter.status(at(now - back)).remaining;
            ensure!(
                after <= before,
                "{before} remained, {after} after {back} ns back"
            );
        }
    }
    Ok(())
}

#[test]
fn i08_a_step_back_never_raises_what_remains() {
    assert_holds(
        &(any_limit(), trace(40, 12), jumps(false)),
        |((real, scale), steps, jumps)| a_step_back_adds_nothing(real, scale, &steps, &jumps),
    );
}
