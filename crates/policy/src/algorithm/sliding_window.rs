//! `sliding_window`: an approximate maximum in any window, estimated from two counters.
//!
//! Must not know: other algorithms.

use tollgate_core::limit::{Limit, Quota};
use tollgate_core::{InvalidQuota, Nanos, SlidingCounter};

use super::{AlgorithmProperties, DEFAULTS, ExplainContext, StateSharing, two_word_bytes};
use crate::humanize::{format_amount, period_name};
use crate::rules::QuotaBuilder;

pub(super) const PROPERTIES: AlgorithmProperties = AlgorithmProperties {
    name: "sliding_window",
    other_names: &[
        "sliding",
        "rolling",
        "rolling_window",
        "sliding_counter",
        "sliding_window_counter",
    ],
    guarantee: "an approximate maximum in any window, from two counters",
    supports_wait: false,
    has_ceiling: true,
    why_not_leased: Some(
        "a sliding window weights requests by time, and a lease has no request times",
    ),
    fallback_note: ", by a token bucket",
    sharing: StateSharing::SamePeriod,
    max_in_any_span,
    bytes: two_word_bytes,
    describe,
    ..DEFAULTS
};

pub(super) fn build(
    builder: &QuotaBuilder,
    length: Nanos,
    units: u64,
    overdraft: u64,
) -> Result<Limit, InvalidQuota> {
    let counter = SlidingCounter::builder(units, length)
        .overdraft(overdraft)
        .ceiling(builder.ceiling);
    Ok(Limit::new(counter.build()?))
}

/// Worst case: the full limit at the last instant of one window has the weight of one tick at the last instant of the
/// next window.
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
