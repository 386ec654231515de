//! The sliding log against an exact list of what was admitted, in whole microseconds (I-01, I-03), and its bounds.

use proptest::prelude::*;
use tollgate_core::sliding_log::{Log, MAX_LOG_ENTRIES};
use tollgate_core::{Nanos, Outcome, SlidingLog};
use tollgate_testkit::oracle::{ExactLog, most_in_any_window};

use super::harness::{CheckResult, assert_caught, assert_holds, ensure};
use super::subject::{Step, at, beginning, trace};

/// A log under test: spends in nanoseconds.
trait LogLimiter {
    fn spend(&mut self, now: u64, cost: u64) -> bool;
}

struct RealLog(SlidingLog, Log);

impl RealLog {
    fn new(limit: u64, window: u64) -> Self {
        let quota = SlidingLog::builder(limit, Nanos::from_nanos(window));
        Self(quota.build().unwrap(), Log::default())
    }
}

impl LogLimiter for RealLog {
    fn spend(&mut self, now: u64, cost: u64) -> bool {
        let transition = self.0.decide(&self.1, at(now), cost);
        if let Some(edit) = transition.next {
            self.1.apply(edit);
        }
        transition.outcome.is_admitted()
    }
}

/// Admits exactly what leaves no window of whole microseconds over the limit.
fn admits_like_the_list(
    mut log: impl LogLimiter,
    (limit, window): (u64, u64),
    begin: u64,
    steps: &[Step],
) -> CheckResult {
    let micros = window.div_ceil(1_000);
    let mut list = ExactLog::new(limit, micros);
    let mut admitted = Vec::new();
    let mut now = begin;
    for step in steps {
        now += step.advance(window);
        let (reply, expected) = (
            log.spend(now, step.cost),
            list.spend(now / 1_000, step.cost),
        );
        ensure!(reply == expected, "{reply} for {} at {now}", step.cost);
        if reply {
            admitted.push((now / 1_000, step.cost));
        }
    }
    let most = most_in_any_window(&admitted, micros);
    ensure!(most <= limit, "{most} of {limit} in one window");
    Ok(())
}

fn quotas() -> impl Strategy<Value = (u64, u64)> {
    let window = prop_oneof![1_u64..5_000, Just(1_000_000), 1_u64..5_000_000_000];
    (0_u64..12, window)
}

#[test]
fn i01_i03_a_sliding_log_admits_exactly_the_limit_in_any_window() {
    assert_holds(
        &(quotas(), beginning(), trace(60, 12)),
        |(quota, begin, steps)| {
            admits_like_the_list(RealLog::new(quota.0, quota.1), quota, begin, &steps)
        },
    );
}

/// A log off by one microsecond at the edge.
struct OffByOne {
    limit: u64,
    micros: u64,
    entries: Vec<(u64, u64)>,
    /// Entries leave one early (the boundary included) or one late.
    early: bool,
}

impl LogLimiter for OffByOne {
    fn spend(&mut self, now: u64, cost: u64) -> bool {
        let now = now / 1_000;
        let (early, micros) = (u64::from(self.early), self.micros);
        let late = u64::from(!self.early);
        self.entries
            .retain(|entry| now + early - entry.0 < micros + late);
        let used: u64 = self.entries.iter().map(|entry| entry.1).sum();
        let fits = used + cost <= self.limit;
        if fits {
            self.entries.push((now, cost));
        }
        fits
    }
}

#[test]
fn control_a_log_off_by_a_microsecond_is_caught() {
    for early in [true, false] {
        assert_caught(
            &(quotas(), beginning(), trace(60, 12)),
            |(quota, begin, steps)| {
                let wrong = OffByOne {
                    limit: quota.0,
                    micros: quota.1.div_ceil(1_000),
                    entries: Vec::new(),
                    early,
                };
                admits_like_the_list(wrong, quota, begin, &steps)
            },
        );
    }
}

/// The largest log filled completely, one entry each microsecond, by two quotas that share it. The short window admits for ever, but must
/// not drop entries that the long one needs.
#[test]
fn a_log_never_holds_more_entries_than_it_may_and_still_denies_for_the_longest_window() {
    let long = SlidingLog::builder(MAX_LOG_ENTRIES, Nanos::HOUR)
        .build()
        .unwrap();
    let short = SlidingLog::builder(MAX_LOG_ENTRIES, Nanos::from_micros(100))
        .build()
        .unwrap()
        .sharing_state_with(&long);
    let mut log = Log::default();
    let most = usize::try_from(MAX_LOG_ENTRIES).unwrap();
    for micro in 0..MAX_LOG_ENTRIES + 500 {
        let reply = short.decide(&log, at(micro * 1_000), 1);
        assert_eq!(reply.outcome, Outcome::Allow);
        log.apply(reply.next.unwrap());
        assert!(log.len() <= most);
    }
    let now = at((MAX_LOG_ENTRIES + 500) * 1_000);
    assert_eq!(long.status(&log, now).remaining, 0);
    // The 500 oldest entries were dropped, but the others fill the long window until the first of them leaves.
    let retry_after = match long.decide(&log, now, 1).outcome {
        Outcome::Deny { retry_after } => retry_after,
        other => panic!("{other:?}"),
    };
    let first_leaves = 500_000 + Nanos::HOUR.as_nanos();
    assert_eq!(now.as_nanos() + retry_after.as_nanos(), first_leaves);
}
