//! `sliding_window`: about so many in any window, estimated from two counters.
//!
//! Must not know: other algorithms.

use tollgate_core::limit::{Limit, Quota};
use tollgate_core::{InvalidQuota, Nanos, SlidingCounter};

use super::{Explained, PLAIN, Properties, StateSharing, two_words};
use crate::rules::Formula;
use crate::words_for::{amount, period_name};

pub(super) const PROPERTIES: Properties = Properties {
    name: "sliding_window",
    promise: "about so many in any window, from two counters",
    can_promise_instants: false,
    has_ceiling: true,
    not_leased: Some("a sliding window weighs when requests came, and slices do not say"),
    fallback: ", by a token bucket",
    sharing: StateSharing::SameTime,
    most_in_any,
    bytes: two_words,
    words,
    ..PLAIN
};

pub(super) fn build(
    formula: &Formula,
    length: Nanos,
    units: u64,
    overdraft: u64,
) -> Result<Limit, InvalidQuota> {
    let counter = SlidingCounter::builder(units, length)
        .overdraft(overdraft)
        .ceiling(formula.ceiling);
    Ok(Limit::new(counter.build()?))
}

/// All of one window at its last instant weighs almost nothing at the last instant of the next: one tick's worth.
fn most_in_any(quota: &Quota, _: Nanos, _: u64) -> Option<u64> {
    let Quota::SlidingCounter(counter) = quota else {
        return None;
    };
    let ticks = counter.window().as_nanos() / counter.tick().as_nanos().max(1);
    let still_weighs = counter.limit().div_ceil(ticks.max(1));
    let twice = counter.limit().saturating_mul(2);
    Some(twice.saturating_sub(still_weighs))
}

fn words(quota: &Quota, explained: &Explained<'_>) -> Option<String> {
    let Quota::SlidingCounter(counter) = quota else {
        return None;
    };
    Some(format!(
        "about {} in any {}, estimated from two counters{}, whatever the timing",
        amount(counter.limit(), explained.unit()),
        period_name(counter.window()),
        explained.never
    ))
}
