//! `sliding_window`: about so many in any window, estimated from two counters.
//!
//! Must not know: other algorithms.

use tollgate_core::limit::{Limit, Quota};
use tollgate_core::{InvalidQuota, Nanos, SlidingCounter};

use super::{AlgorithmProperties, DEFAULTS, ExplainContext, StateSharing, two_word_bytes};
use crate::humanize::{format_amount, period_name};
use crate::rules::QuotaBuilder;

pub(super) const PROPERTIES: AlgorithmProperties = AlgorithmProperties {
    name: "sliding_window",
    guarantee: "about so many in any window, from two counters",
    supports_wait: false,
    has_ceiling: true,
    why_not_leased: Some("a sliding window weighs when requests came, and slices do not say"),
    fallback_note: ", by a token bucket",
    sharing: StateSharing::SamePeriod,
    max_in_any_span,
    bytes: two_word_bytes,
    describe,
    ..DEFAULTS
};

pub(super) fn build(
    formula: &QuotaBuilder,
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
fn max_in_any_span(quota: &Quota, _: Nanos, _: u64) -> Option<u64> {
    let Quota::SlidingCounter(counter) = quota else {
        return None;
    };
    let ticks = counter.window().as_nanos() / counter.tick().as_nanos().max(1);
    let still_weighs = counter.limit().div_ceil(ticks.max(1));
    let twice = counter.limit().saturating_mul(2);
    Some(twice.saturating_sub(still_weighs))
}

fn describe(quota: &Quota, explained: &ExplainContext<'_>) -> Option<String> {
    let Quota::SlidingCounter(counter) = quota else {
        return None;
    };
    Some(format!(
        "about {} in any {}, estimated from two counters{}, whatever the timing",
        format_amount(counter.limit(), explained.unit()),
        period_name(counter.window()),
        explained.never_clause
    ))
}
