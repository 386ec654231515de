//! `sliding_log`: an exact maximum in any window. The log has one entry per request.
//!
//! Must not know: other algorithms.

use tollgate_core::limit::{Limit, Quota};
use tollgate_core::sliding_log::MAX_LOG_ENTRIES;
use tollgate_core::{InvalidQuota, Nanos, SlidingLog};

use super::{AlgorithmProperties, DEFAULTS, ExplainContext, Refill, StateSharing};
use crate::humanize::{format_amount, period_name};
use crate::rules::QuotaBuilder;

pub(super) const PROPERTIES: AlgorithmProperties = AlgorithmProperties {
    name: "sliding_log",
    other_names: &["log", "exact", "sliding_window_log"],
    guarantee: "an exact maximum in any window; stores each request",
    supports_wait: false,
    why_not_leased: Some(
        "a sliding log stores each request, and a lease is taken before the requests arrive",
    ),
    why_not_async: Some(
        "a sliding log is exact, and nodes may admit more between two reconciliations",
    ),
    fallback_note: ", by a token bucket",
    sharing: StateSharing::SameBlock,
    needs_larger_blocks,
    refill,
    max_in_any_span,
    bytes,
    describe,
    ..DEFAULTS
};

pub(super) fn build(
    builder: &QuotaBuilder,
    length: Nanos,
    units: u64,
    overdraft: u64,
) -> Result<Limit, InvalidQuota> {
    let log = SlidingLog::builder(units, length)
        .overdraft(overdraft)
        .block(builder.block);
    Ok(Limit::new(log.build()?))
}

/// The number of entries in a log is bounded.
const fn needs_larger_blocks(builder: &QuotaBuilder, units: u64) -> bool {
    units.saturating_add(builder.overdraft) > MAX_LOG_ENTRIES.saturating_mul(builder.block)
}

fn refill(quota: &Quota) -> Option<Refill> {
    let Quota::SlidingLog(log) = quota else {
        return None;
    };
    Some(Refill {
        every: None,
        block: log.block(),
        at_once: log.limit(),
        is_queue: false,
    })
}

fn max_in_any_span(quota: &Quota, _: Nanos, _: u64) -> Option<u64> {
    match quota {
        Quota::SlidingLog(log) => Some(log.limit()),
        _ => None,
    }
}

/// A collection plus one entry per block.
const fn bytes(entries: u64) -> (u64, u64) {
    (
        entries.saturating_mul(16).saturating_add(203),
        entries.saturating_mul(13).saturating_add(133),
    )
}

fn describe(quota: &Quota, explained: &ExplainContext<'_>) -> Option<String> {
    let Quota::SlidingLog(log) = quota else {
        return None;
    };
    let unit = explained.unit();
    let blocks = if log.block() > 1 {
        format!(
            ", counted in blocks of {}",
            format_amount(log.block(), unit)
        )
    } else {
        String::new()
    };
    Some(format!(
        "never more than {} in any {}, exactly{blocks}",
        format_amount(log.limit(), unit),
        period_name(log.window())
    ))
}
