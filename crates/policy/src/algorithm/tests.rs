//! The most that a quota ever admits in one period, whatever the timing, is met exactly by an adversary.
//!
//! A period is closed: both of its ends count. (A bucket that gives one token exactly a period after another is asked at
//! both instants.) A log is the exception: it forgets at exactly the end of its window, so its windows are half open, and
//! counted in whole microseconds. Must not know: words.

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

fn max_in_any_span(shape: AlgorithmSpec, limit: &Limit, span: Nanos, dearest: u64) -> Option<u64> {
    (shape.properties().max_in_any_span)(limit.quota(), span, dearest)
}

/// When everything that was admitted got through, given when it was asked for, in order.
fn admission_times(limit: &Limit, asked: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut state = State::default();
    let mut through = Vec::new();
    for at in asked {
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

/// The most in any span that begins with something let through.
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

/// An adversary who begins at an offset into a window and asks at every instant for more than there can be.
fn worst_case(limit: &Limit, period: u64, offset: u64, step: u64) -> u64 {
    let begin = START - START % period + period + offset;
    let asked =
        (0..=2 * period / step).flat_map(|tick| std::iter::repeat_n(begin + tick * step, 60));
    let is_closed = !matches!(limit.quota(), Quota::SlidingLog(_));
    max_in_window(&admission_times(limit, asked), period, is_closed)
}

fn build_limit(which: usize, units: u64, burst: Option<u64>, period: u64) -> Limit {
    let mut formula = QuotaBuilder::new(
        algorithm_spec(which, Nanos::from_nanos(period)),
        QuotaUnit::Requests,
    );
    if which < 3 {
        formula.burst = burst.map(crate::model::Burst::Units);
    }
    formula.build(units).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_number_is_met_exactly_by_an_adversary(
        which in 0_usize..6, units in 1_u64..20, burst in prop::option::of(1_u64..20), tenths in 1_u64..5,
    ) {
        // Long enough that every rate is within 0.1 %, and whole microseconds for the log.
        let period = tenths * 400_000;
        let limit = build_limit(which, units, burst, period);
        let promised = max_in_any_span(algorithm_spec(which, Nanos::from_nanos(period)), &limit, Nanos::from_nanos(period), 1).unwrap();
        let step = 1_000;
        // Buckets are worst from the first instant; windows if one is spent at its very end.
        let found = [0, period - 1, period - step]
            .map(|offset| worst_case_at_edges(&limit, which, period, offset));
        prop_assert_eq!(found.into_iter().max(), Some(promised));
    }

    #[test]
    fn the_number_is_never_exceeded(
        which in 0_usize..6, units in 1_u64..20, burst in prop::option::of(1_u64..20),
        gaps in prop::collection::vec(0_u64..60, 1..400), offset in 0_u64..400,
    ) {
        let period = 400_000;
        let limit = build_limit(which, units, burst, period);
        let promised = max_in_any_span(algorithm_spec(which, Nanos::from_nanos(period)), &limit, Nanos::from_nanos(period), 1).unwrap();
        let mut at = START + offset * 1_000;
        let asked = gaps.into_iter().map(|gap| {
            at += gap * 1_000;
            at
        });
        let is_closed = which != 5;
        prop_assert!(max_in_window(&admission_times(&limit, asked), period, is_closed) <= promised);
    }
}

/// The adversary asks at the instants that matter: each refill of a bucket, the turn and the end of a window.
fn worst_case_at_edges(limit: &Limit, which: usize, period: u64, offset: u64) -> u64 {
    let begin = START - START % period + period + offset;
    let interval = match limit.quota() {
        Quota::TokenBucket(bucket) => bucket.interval().as_nanos(),
        Quota::LeakyBucket(bucket) => bucket.interval().as_nanos(),
        _ => return worst_case_of_windows(limit, which, period, begin),
    };
    let asked = (0..=period / interval)
        .flat_map(|refill| std::iter::repeat_n(begin + refill * interval, 60));
    max_in_window(&admission_times(limit, asked), period, true)
}

fn worst_case_of_windows(limit: &Limit, which: usize, period: u64, begin: u64) -> u64 {
    // A log tells microseconds apart and nothing finer.
    let instant = if which == 5 { 1_000 } else { 1 };
    let begin = begin - begin % instant;
    let end = begin + period;
    let asked = [begin, begin + instant, end - instant, end]
        .into_iter()
        .flat_map(|at| std::iter::repeat_n(at, 60));
    max_in_window(&admission_times(limit, asked), period, which != 5)
}

#[test]
fn the_adversary_finds_nothing_where_there_is_less_to_find() {
    // A negative control: the number of another quota is not met.
    let limit = build_limit(0, 10, Some(5), 400_000);
    let other = build_limit(0, 10, Some(6), 400_000);
    let period = Nanos::from_nanos(400_000);
    let promised = max_in_any_span(algorithm_spec(0, period), &other, period, 1).unwrap();
    assert!(worst_case(&limit, 400_000, 0, 1_000) < promised);
}

#[test]
fn the_example_of_every_description() {
    let mut formula = QuotaBuilder::new(
        AlgorithmSpec::TokenBucket(Nanos::MINUTE),
        QuotaUnit::Requests,
    );
    formula.burst = Some(crate::model::Burst::Units(200));
    let limit = formula.build(1_000).unwrap();
    assert_eq!(
        max_in_any_span(formula.spec, &limit, Nanos::MINUTE, 1),
        Some(1_200)
    );
}

#[test]
fn a_dear_request_is_let_through_whole() {
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
