//! `sliding_log`: exactly so many in any window, because every request is remembered.
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
    guarantee: "exactly so many in any window; remembers each request",
    supports_wait: false,
    why_not_leased: Some("a sliding log knows every single request, and slices have none yet"),
    why_not_async: Some(
        "a sliding log promises exactly so many, and between two reconciliations there may be more",
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
    formula: &QuotaBuilder,
    length: Nanos,
    units: u64,
    overdraft: u64,
) -> Result<Limit, InvalidQuota> {
    let log = SlidingLog::builder(units, length)
        .overdraft(overdraft)
        .block(formula.block);
    Ok(Limit::new(log.build()?))
}

/// A log holds so many entries.
const fn needs_larger_blocks(formula: &QuotaBuilder, units: u64) -> bool {
    units.saturating_add(formula.overdraft) > MAX_LOG_ENTRIES.saturating_mul(formula.block)
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

/// A collection with its entries.
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
