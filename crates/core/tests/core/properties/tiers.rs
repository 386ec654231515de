//! Tiers that share state, and quotas that change while state lives: alternating between them mints nothing (I-08).
//!
//! The exact statements:
//!
//! - Buckets: if several quotas take turns on one state, each accepting the ceilings of all, the charges in time, Σ nᵢ·Tᵢ, stay within
//!   the largest capacity and the time between.
//! - Rescaling keeps the debt in tokens, rounded up to a nanosecond, up to the new quota's ceiling. It is never lower.
//! - Epoch windows of one length, logs that keep entries for the longest window, and sliding counters that share a ceiling: what one tier
//!   admitted counts in full for every other. Fixed windows of different lengths cannot share a state, because the shorter one ends the
//!   count of the longer one. Tiers of one limit need one window.
//! - A sliding counter of another length takes over the estimate, rounded up.

use proptest::prelude::*;
use tollgate_core::limit::{Limit, State};
use tollgate_core::sliding_log::Log;
use tollgate_core::{
    CounterState, FixedWindow, LeakyBucket, Nanos, Rate, SlidingCounter, SlidingLog, TokenBucket,
    Window,
};
use tollgate_testkit::oracle::{BucketLog, ExactLog};

use super::harness::{CheckResult, assert_caught, assert_holds, ensure};
use super::subject::{RealLimit, Step, Subject, at, bucket, trace};

const BEGIN: u64 = 1_700_000_000_000_000_000;

/// Tiers as (interval, burst), and which of them each request uses.
type Turns = (Vec<(u64, u64)>, Vec<Step>, Vec<usize>);

fn turns() -> impl Strategy<Value = Turns> {
    let tier = (prop_oneof![1_u64..20, 1_u64..1_000], 1_u64..10);
    let which = prop::collection::vec(any::<usize>(), 50);
    (prop::collection::vec(tier, 2..4), trace(50, 8), which)
}

/// In any order of the tiers, the charges in time stay within the largest capacity.
fn alternating_mints_nothing(tiers: &[Limit], (quotas, steps, which): &Turns) -> CheckResult {
    let capacity = quotas.iter().map(|(t, b)| i128::from(t * b)).max().unwrap();
    let mut log = BucketLog::with_capacity(capacity);
    let mut state = State::default();
    let mut now = BEGIN;
    for (step, which) in steps.iter().zip(which) {
        let which = which % tiers.len();
        now += step.advance(quotas[which].0);
        let mut real = RealLimit::new(tiers[which]);
        real.state = state;
        if real.spend(at(now), step.cost).is_admitted() {
            log.charge(now, i128::from(step.cost) * i128::from(quotas[which].0));
        }
        state = real.state;
    }
    ensure!(log.worst_excess() <= 0, "minted {} ns", log.worst_excess());
    Ok(())
}

fn token_tiers(quotas: &[(u64, u64)]) -> Vec<TokenBucket> {
    let all: Vec<TokenBucket> = quotas.iter().map(|(t, b)| bucket(*t, *b)).collect();
    let sharing = |one: &TokenBucket| all.iter().fold(*one, TokenBucket::sharing_state_with);
    all.iter().map(sharing).collect()
}

fn leaky_tiers(quotas: &[(u64, u64)]) -> Vec<LeakyBucket> {
    let build = |(interval, burst): &(u64, u64)| {
        let rate = Rate::new(1, Nanos::from_nanos(*interval));
        LeakyBucket::queue(rate).burst(burst - 1).build().unwrap()
    };
    let all: Vec<LeakyBucket> = quotas.iter().map(build).collect();
    let sharing = |one: &LeakyBucket| all.iter().fold(*one, LeakyBucket::sharing_state_with);
    all.iter().map(sharing).collect()
}

#[test]
fn i08_alternating_tiers_of_a_bucket_mint_nothing() {
    assert_holds(&turns(), |turns| {
        let tiers: Vec<Limit> = token_tiers(&turns.0).into_iter().map(Limit::new).collect();
        alternating_mints_nothing(&tiers, &turns)?;
        let tiers: Vec<Limit> = leaky_tiers(&turns.0).into_iter().map(Limit::new).collect();
        alternating_mints_nothing(&tiers, &turns)
    });
}

#[test]
fn control_tiers_that_clamp_to_the_smaller_one_are_caught() {
    assert_caught(&turns(), |turns| {
        let tiers: Vec<Limit> = turns
            .0
            .iter()
            .map(|(t, b)| Limit::new(bucket(*t, *b)))
            .collect();
        alternating_mints_nothing(&tiers, &turns)
    });
}

/// The debt in tokens is the same under the new quota, rounded up, never lower; cross-multiplied, nothing divided.
fn rescaling_forgives_nothing(
    rescale: impl Fn(&TokenBucket, &TokenBucket, u64) -> u64,
    (old, new, debt): ((u64, u64), (u64, u64), u64),
) -> CheckResult {
    let (from, to) = (bucket(old.0, old.1), bucket(new.0, new.1));
    let debt = debt % (old.0 * old.1 + 1);
    let rescaled = i128::from(rescale(&to, &from, BEGIN + debt)) - i128::from(BEGIN);
    let exact = i128::from(debt) * i128::from(new.0);
    let scaled = rescaled * i128::from(old.0);
    let is_at_ceiling = rescaled == i128::from(to.ceiling().as_nanos());
    ensure!(
        scaled >= exact || is_at_ceiling,
        "{debt} became {rescaled}: forgiven"
    );
    ensure!(
        scaled < exact + i128::from(old.0),
        "{debt} became {rescaled}: too much"
    );
    Ok(())
}

fn changes() -> impl Strategy<Value = ((u64, u64), (u64, u64), u64)> {
    let quota = || (1_u64..1_000_000_000, 1_u64..1_000);
    (quota(), quota(), any::<u64>())
}

#[test]
fn i08_rescaling_keeps_the_debt_in_tokens() {
    assert_holds(&changes(), |change| {
        rescaling_forgives_nothing(|to, from, tat| to.rescale(from, tat, at(BEGIN)), change)
    });
}

#[test]
fn control_rescaling_rounded_down_or_not_at_all_is_caught() {
    assert_caught(&changes(), |change| {
        rescaling_forgives_nothing(|_, _, tat| tat, change)
    });
    assert_caught(&changes(), |change| {
        let down = |to: &TokenBucket, from: &TokenBucket, tat: u64| {
            let scaled = u128::from(tat - BEGIN) * u128::from(to.interval().as_nanos());
            let scaled = scaled / u128::from(from.interval().as_nanos());
            BEGIN + u64::try_from(scaled).unwrap().min(to.ceiling().as_nanos())
        };
        rescaling_forgives_nothing(down, change)
    });
}

/// Limits of tiers in one window length, and which tier each request uses.
type WindowTurns = (Vec<u64>, u64, Vec<Step>, Vec<usize>);

fn window_turns() -> impl Strategy<Value = WindowTurns> {
    let which = prop::collection::vec(any::<usize>(), 50);
    (
        prop::collection::vec(1_u64..10, 2..4),
        1_000_u64..1_000_000,
        trace(50, 8),
        which,
    )
}

/// A request is admitted only if it and everything that any tier admitted in the window are within its tier's limit.
fn tiers_count_each_other(
    tiers: &[Limit],
    used: impl Fn(&[(u64, u64)], u64) -> u64,
    (limits, window, steps, which): &WindowTurns,
) -> CheckResult {
    let mut state = State::default();
    let mut admitted = Vec::new();
    let mut now = BEGIN;
    for (step, which) in steps.iter().zip(which) {
        let which = which % tiers.len();
        now += step.advance(*window);
        let mut real = RealLimit::new(tiers[which]);
        real.state = state;
        let is_admitted = real.spend(at(now), step.cost).is_admitted();
        let fits = step.cost == 0 || used(&admitted, now) + step.cost <= limits[which];
        ensure!(is_admitted == fits, "{is_admitted} at {now}, but {fits}");
        if is_admitted {
            admitted.push((now, step.cost));
        }
        state = real.state;
    }
    Ok(())
}

#[test]
fn i08_tiers_of_one_epoch_window_count_each_other() {
    assert_holds(&window_turns(), |turns| {
        let window = Window::Epoch(Nanos::from_nanos(turns.1));
        let build = |limit: &u64| Limit::new(FixedWindow::builder(*limit, window).build().unwrap());
        let tiers: Vec<Limit> = turns.0.iter().map(build).collect();
        let length = turns.1;
        let used = |admitted: &[(u64, u64)], now: u64| {
            let inside = admitted.iter().filter(|one| one.0 / length == now / length);
            inside.map(|one| one.1).sum()
        };
        tiers_count_each_other(&tiers, used, &turns)
    });
}

/// The use that a sliding log of the tier's own window should count: exact, in microseconds.
fn used_in_log(window: u64) -> impl Fn(&[(u64, u64)], u64) -> u64 {
    move |admitted, now| {
        let mut exact = ExactLog::new(u64::MAX, window.div_ceil(1_000));
        for (then, cost) in admitted {
            exact.spend(then / 1_000, *cost);
        }
        exact.used(now / 1_000)
    }
}

#[test]
fn i08_a_log_shared_with_a_shorter_window_drops_nothing() {
    assert_holds(&(1_u64..10, window_turns()), |(shrink, turns)| {
        let long = SlidingLog::builder(8, Nanos::from_nanos(turns.1))
            .build()
            .unwrap();
        let short = SlidingLog::builder(8, Nanos::from_nanos(turns.1 / (shrink + 1) + 1));
        let short = short.build().unwrap().sharing_state_with(&long);
        log_turns(&long, &short, &turns)
    });
}

#[test]
fn control_a_log_kept_only_for_the_shorter_window_is_caught() {
    assert_caught(&(1_u64..10, window_turns()), |(shrink, turns)| {
        let long = SlidingLog::builder(8, Nanos::from_nanos(turns.1))
            .build()
            .unwrap();
        let short = SlidingLog::builder(8, Nanos::from_nanos(turns.1 / (shrink + 1) + 1));
        log_turns(&long, &short.build().unwrap(), &turns)
    });
}

/// Long and short take turns; after each request both count exactly what their window holds.
fn log_turns(long: &SlidingLog, short: &SlidingLog, turns: &WindowTurns) -> CheckResult {
    let (_, window, steps, which) = turns;
    let mut log = Log::default();
    let mut admitted = Vec::new();
    let mut now = BEGIN;
    for (step, which) in steps.iter().zip(which) {
        now += step.advance(*window / 4 + 1);
        let quota = if which % 2 == 0 { long } else { short };
        let transition = quota.decide(&log, at(now), step.cost);
        if let Some(edit) = transition.next {
            log.apply(edit);
        }
        if transition.outcome.is_admitted() {
            admitted.push((now, step.cost));
        }
        for quota in [long, short] {
            let used = used_in_log(quota.window().as_nanos())(&admitted, now);
            let remaining = quota.status(&log, at(now)).remaining;
            ensure!(
                remaining == 8_u64.saturating_sub(used),
                "{remaining}, used {used}"
            );
        }
    }
    Ok(())
}

/// A counter converted from one quota to another has the same remaining units under the new one.
fn nothing_is_forgiven_by(
    change: impl Fn(&SlidingCounter, &SlidingCounter, CounterState, u64) -> CounterState,
    (previous, current, lengths, gone): (u32, u32, (u64, u64), u64),
) -> CheckResult {
    let build = |limit, length| {
        let builder = SlidingCounter::builder(limit, Nanos::from_nanos(length));
        builder.ceiling(1_000).build().unwrap()
    };
    let (old, new) = (build(1_000, lengths.0), build(1_000, lengths.1));
    let start = BEGIN - BEGIN % lengths.0;
    let state = CounterState {
        start,
        previous,
        current,
    };
    let now = start + gone % (2 * lengths.0);
    let before = old.status(state, at(now)).remaining;
    let after = new
        .status(change(&new, &old, state, now), at(now))
        .remaining;
    ensure!(after == before, "{before} remained, now {after}");
    Ok(())
}

fn counter_changes() -> impl Strategy<Value = (u32, u32, (u64, u64), u64)> {
    let length = || 1_u64..100_000;
    (0_u32..500, 0_u32..500, (length(), length()), any::<u64>())
}

#[test]
fn i08_a_converted_sliding_counter_keeps_exactly_its_use() {
    assert_holds(&counter_changes(), |change| {
        let convert = |new: &SlidingCounter, old: &SlidingCounter, state, now| {
            new.convert_state(old, state, at(now))
        };
        nothing_is_forgiven_by(convert, change)
    });
}

#[test]
fn control_counters_kept_as_they_are_under_another_length_are_caught() {
    assert_caught(&counter_changes(), |change| {
        nothing_is_forgiven_by(|_, _, state, _| state, change)
    });
}

/// A lower tier that lowers counts to its own limit forgives what a higher tier admitted.
fn a_lower_tier_forgives_nothing(ceiling: u64, used: u32) -> CheckResult {
    let tier = |limit: u64, ceiling: u64| {
        let builder = SlidingCounter::builder(limit, Nanos::MINUTE).ceiling(ceiling);
        builder.build().unwrap()
    };
    let (low, high) = (tier(10, ceiling), tier(1_000, 1_000));
    let state = CounterState {
        start: BEGIN - BEGIN % Nanos::MINUTE.as_nanos(),
        previous: 0,
        current: used,
    };
    let peeked = low.decide(state, at(BEGIN), 0).next.unwrap_or(state);
    let (before, after) = (
        high.status(state, at(BEGIN)),
        high.status(peeked, at(BEGIN)),
    );
    ensure!(before == after, "{before:?} became {after:?}");
    Ok(())
}

#[test]
fn i08_tiers_of_a_sliding_counter_share_the_largest_ceiling() {
    assert_holds(&(0_u32..1_000), |used| {
        a_lower_tier_forgives_nothing(1_000, used)
    });
    assert_caught(&(0_u32..1_000), |used| {
        a_lower_tier_forgives_nothing(0, used)
    });
}
