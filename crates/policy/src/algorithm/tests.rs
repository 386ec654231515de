//! An adversary reaches the stated maximum per period exactly, and no timing exceeds it.
//!
//! A period includes both ends: a bucket that refills one token per period admits at both ends. A log is the exception:
//! it forgets an entry at exactly the end of the window, and counts in whole microseconds. Must not know: explanations.

use proptest::prelude::*;
use tollgate_core::limit::{Limit, Op, Quota, State};
use tollgate_core::{Nanos, Outcome, QuotaUnit, Timestamp, Window};

use super::AlgorithmSpec;
use crate::rules::QuotaBuilder;

const START: u64 = 1_000_000_000_000_000_000;

fn algorithm_spec(which: usize, period: Nanos) -> AlgorithmSpec {
    [
        AlgorithmSpec::TokenBucket(period),
        AlgorithmSpec::LeakyBucket(period),
        AlgorithmSpec::LeakyQueue(period),
        AlgorithmSpec::FixedWindow(Window::Epoch(period)),
        AlgorithmSpec::SlidingWindow(period),
        AlgorithmSpec::SlidingLog(period),
    ][which]
}

fn max_in_any_span(spec: AlgorithmSpec, limit: &Limit, span: Nanos, max_cost: u64) -> Option<u64> {
    (spec.properties().max_in_any_span)(limit.quota(), span, max_cost)
}

/// When each admitted request passes, given the sorted arrival times.
fn admission_times(limit: &Limit, arrivals: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut state = State::default();
    let mut through = Vec::new();
    for at in arrivals {
        let answer = limit
            .decide(&state, Timestamp::from_nanos(at), Op::Spend(1))
            .unwrap();
        if let Some(edit) = answer.next {
            state.apply(edit);
        }
        match answer.outcome {
            Outcome::Allow => through.push(at),
            Outcome::Wait(wait) => through.push(at + wait.as_nanos()),
            Outcome::Deny { .. } | Outcome::Never => {}
        }
    }
    through.sort_unstable();
    through
}

/// The maximum number of admissions in any span that begins with an admission.
fn max_in_window(through: &[u64], span: u64, is_closed: bool) -> u64 {
    let within = |first: u64, at: u64| at - first < span || (is_closed && at - first == span);
    let count = |index: usize| {
        let first = through[index];
        through[index..]
            .iter()
            .take_while(|at| within(first, **at))
            .count()
    };
    (0..through.len()).map(count).max().unwrap_or(0) as u64
}

/// An adversary that begins at an offset into a window and sends more than the limit at every instant.
fn worst_case(limit: &Limit, period: u64, offset: u64, step: u64) -> u64 {
    let begin = START - START % period + period + offset;
    let arrivals =
        (0..=2 * period / step).flat_map(|tick| std::iter::repeat_n(begin + tick * step, 60));
    let is_closed = !matches!(limit.quota(), Quota::SlidingLog(_));
    max_in_window(&admission_times(limit, arrivals), period, is_closed)
}

fn build_limit(which: usize, units: u64, burst: Option<u64>, period: u64) -> Limit {
    let mut builder = QuotaBuilder::new(
        algorithm_spec(which, Nanos::from_nanos(period)),
        QuotaUnit::Requests,
    );
    if which < 3 {
        builder.burst = burst.map(crate::model::Burst::Units);
    }
    builder.build(units).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn an_adversary_reaches_the_bound_exactly(
        which in 0_usize..6, units in 1_u64..20, burst in prop::option::of(1_u64..20), tenths in 1_u64..5,
    ) {
        // Long enough that every rate is within 0.1 %, and whole microseconds for the log.
        let period = tenths * 400_000;
        let limit = build_limit(which, units, burst, period);
        let promised = max_in_any_span(algorithm_spec(which, Nanos::from_nanos(period)), &limit, Nanos::from_nanos(period), 1).unwrap();
        let step = 1_000;
        // Worst case: buckets from the first instant; windows if the limit is used up at the end of one window.
        let matched = [0, period - 1, period - step]
            .map(|offset| worst_case_at_edges(&limit, which, period, offset));
        prop_assert_eq!(matched.into_iter().max(), Some(promised));
    }

    #[test]
    fn no_schedule_exceeds_the_bound(
        which in 0_usize..6, units in 1_u64..20, burst in prop::option::of(1_u64..20),
        gaps in prop::collection::vec(0_u64..60, 1..400), offset in 0_u64..400,
    ) {
        let period = 400_000;
        let limit = build_limit(which, units, burst, period);
        let promised = max_in_any_span(algorithm_spec(which, Nanos::from_nanos(period)), &limit, Nanos::from_nanos(period), 1).unwrap();
        let mut at = START + offset * 1_000;
        let arrivals = gaps.into_iter().map(|gap| {
            at += gap * 1_000;
            at
        });
        let is_closed = which != 5;
        prop_assert!(max_in_window(&admission_times(&limit, arrivals), period, is_closed) <= promised);
    }
}

/// The adversary sends at the critical instants: each refill of a bucket, the begin and the end of a window.
fn worst_case_at_edges(limit: &Limit, which: usize, period: u64, offset: u64) -> u64 {
    let begin = START - START % period + period + offset;
    let interval = match limit.quota() {
        Quota::TokenBucket(bucket) => bucket.interval().as_nanos(),
        Quota::LeakyBucket(bucket) => bucket.interval().as_nanos(),
        _ => return worst_case_of_windows(limit, which, period, begin),
    };
    let arrivals = (0..=period / interval)
        .flat_map(|refill| std::iter::repeat_n(begin + refill * interval, 60));
    max_in_window(&admission_times(limit, arrivals), period, true)
}

fn worst_case_of_windows(limit: &Limit, which: usize, period: u64, begin: u64) -> u64 {
    // A log has a resolution of one microsecond.
    let instant = if which == 5 { 1_000 } else { 1 };
    let begin = begin - begin % instant;
    let end = begin + period;
    let arrivals = [begin, begin + instant, end - instant, end]
        .into_iter()
        .flat_map(|at| std::iter::repeat_n(at, 60));
    max_in_window(&admission_times(limit, arrivals), period, which != 5)
}

#[test]
fn control_the_adversary_does_not_reach_the_bound_of_a_larger_quota() {
    // Negative control: the adversary does not reach the maximum of a larger quota.
    let limit = build_limit(0, 10, Some(5), 400_000);
    let other = build_limit(0, 10, Some(6), 400_000);
    let period = Nanos::from_nanos(400_000);
    let promised = max_in_any_span(algorithm_spec(0, period), &other, period, 1).unwrap();
    assert!(worst_case(&limit, 400_000, 0, 1_000) < promised);
}

#[test]
fn the_bound_of_the_documented_example_is_right() {
    let mut builder = QuotaBuilder::new(
        AlgorithmSpec::TokenBucket(Nanos::MINUTE),
        QuotaUnit::Requests,
    );
    builder.burst = Some(crate::model::Burst::Units(200));
    let limit = builder.build(1_000).unwrap();
    assert_eq!(
        max_in_any_span(builder.spec, &limit, Nanos::MINUTE, 1),
        Some(1_200)
    );
}

#[test]
fn a_queue_admits_an_expensive_request_as_a_whole() {
    let queue = QuotaBuilder::new(
        AlgorithmSpec::LeakyQueue(Nanos::SECOND),
        QuotaUnit::Requests,
    );
    let limit = queue.build(10).unwrap();
    assert_eq!(
        max_in_any_span(queue.spec, &limit, Nanos::SECOND, 1),
        Some(11)
    );
    assert_eq!(
        max_in_any_span(queue.spec, &limit, Nanos::SECOND, 5),
        Some(15)
    );
    assert_eq!(
        max_in_any_span(queue.spec, &limit, Nanos::SECOND, 500),
        Some(21)
    );
}
