//! `token_bucket`: a burst at once, then a steady rate.
//!
//! Must not know: other algorithms.

use tollgate_core::limit::{Limit, Quota};
use tollgate_core::{InvalidQuota, Nanos, Rate, TokenBucket};

use super::{AlgorithmProperties, DEFAULTS, ExplainContext, Refill, refill_count};
use crate::humanize::{format_amount, format_refill};
use crate::rules::QuotaBuilder;

pub(super) const PROPERTIES: AlgorithmProperties = AlgorithmProperties {
    name: "token_bucket",
    other_names: &["gcra", "token", "bucket", "tokens"],
    guarantee: "the burst at once, then a steady rate; never more than burst + rate × time",
    burst: Some("`burst`, else the number of the rate; `auto` is the units of ten seconds"),
    needs_larger_blocks: QuotaBuilder::is_rate_too_fine,
    refill,
    max_in_any_span,
    describe,
    ..DEFAULTS
};

pub(super) fn build(
    builder: &QuotaBuilder,
    period: Nanos,
    units: u64,
    overdraft: u64,
) -> Result<Limit, InvalidQuota> {
    let bucket = TokenBucket::builder(Rate::new(units, period))
        .overdraft(overdraft)
        .block(builder.block);
    Ok(Limit::new(match builder.burst_units(units, period) {
        Some(burst) => bucket.burst(burst).build()?,
        None => bucket.build()?,
    }))
}

fn refill(quota: &Quota) -> Option<Refill> {
    let Quota::TokenBucket(bucket) = quota else {
        return None;
    };
    Some(Refill {
        every: Some(bucket.interval()),
        block: bucket.block(),
        at_once: bucket.limit(),
        is_queue: false,
    })
}

/// The burst at the beginning plus the refill until the end: n · T ≤ B · T + span.
fn max_in_any_span(quota: &Quota, span: Nanos, _: u64) -> Option<u64> {
    match quota {
        Quota::TokenBucket(bucket) if bucket.limit() == 0 => Some(0),
        Quota::TokenBucket(bucket) => Some(
            refill_count(bucket.interval(), span)
                .saturating_mul(bucket.block())
                .saturating_add(bucket.limit()),
        ),
        _ => None,
    }
}

fn describe(quota: &Quota, explained: &ExplainContext<'_>) -> Option<String> {
    let Quota::TokenBucket(bucket) = quota else {
        return None;
    };
    let unit = explained.unit();
    let at_once = format_amount(bucket.limit(), unit);
    let then = format_refill(bucket.block(), bucket.interval(), unit);
    Some(format!(
        "at most {at_once} at once, then {then}{}",
        explained.never_clause
    ))
}
