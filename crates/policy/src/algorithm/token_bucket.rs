//! `token_bucket`: a burst at once, then a steady rate.
//!
//! Must not know: other algorithms.

use tollgate_core::limit::{Limit, Quota};
use tollgate_core::{CustomBucket, InvalidQuota, Nanos, Rate, TokenBucket};

use super::{AlgorithmProperties, DEFAULTS, ExplainContext, Refill, refill_count};
use crate::humanize::{format_amount, format_duration, format_refill};
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
    let bucket = match builder.burst_units(units, period) {
        Some(burst) => bucket.burst(burst),
        None => bucket,
    };
    if !builder.is_stepped && builder.initial.is_none() {
        return Ok(Limit::new(bucket.build()?));
    }
    let mut custom = CustomBucket::builder(bucket);
    if builder.is_stepped {
        custom = custom.refill_in_steps();
    }
    if let Some((initial, remember)) = builder.initial {
        custom = custom.initial(initial, remember);
    }
    Ok(Limit::new(custom.build()?))
}

/// The token bucket whose arithmetic decides.
const fn bucket_of(quota: &Quota) -> Option<&TokenBucket> {
    match quota {
        Quota::TokenBucket(bucket) => Some(bucket),
        Quota::CustomBucket(custom) => Some(custom.as_token_bucket()),
        _ => None,
    }
}

/// The units of one step, if the quota refills in steps.
fn units_per_step(quota: &Quota) -> Option<(u64, Nanos)> {
    match quota {
        Quota::CustomBucket(custom) if custom.refills_in_steps() => {
            let bucket = custom.as_token_bucket();
            let blocks = refill_count(bucket.interval(), custom.step());
            Some((blocks.saturating_mul(bucket.block()), custom.step()))
        }
        _ => None,
    }
}

fn refill(quota: &Quota) -> Option<Refill> {
    let bucket = bucket_of(quota)?;
    Some(Refill {
        every: Some(bucket.interval()),
        block: bucket.block(),
        at_once: bucket.limit(),
        is_queue: false,
    })
}

/// The burst at the beginning plus the refill until the end: n · T ≤ B · T + span. With steps, the units of every step that the span can
/// contain.
fn max_in_any_span(quota: &Quota, span: Nanos, _: u64) -> Option<u64> {
    let bucket = bucket_of(quota)?;
    if bucket.limit() == 0 {
        return Some(0);
    }
    let refilled = match units_per_step(quota) {
        Some((units, step)) => {
            let steps = span.as_nanos().div_ceil(step.as_nanos().max(1));
            steps.saturating_mul(units)
        }
        None => refill_count(bucket.interval(), span).saturating_mul(bucket.block()),
    };
    Some(refilled.saturating_add(bucket.limit()))
}

fn describe(quota: &Quota, explained: &ExplainContext<'_>) -> Option<String> {
    let bucket = bucket_of(quota)?;
    let unit = explained.unit();
    let at_once = format_amount(bucket.limit(), unit);
    let then = match units_per_step(quota) {
        Some((units, step)) => format!(
            "{} together every {}, at multiples of it since 1970, UTC",
            format_amount(units, unit),
            format_duration(step)
        ),
        None => format_refill(bucket.block(), bucket.interval(), unit),
    };
    let initial = match quota {
        Quota::CustomBucket(custom) if custom.initial() < custom.limit() => format!(
            "; a key that is new, or was full and idle for {}, starts with {}",
            format_duration(custom.remember()),
            format_amount(custom.initial(), unit)
        ),
        _ => String::new(),
    };
    Some(format!(
        "at most {at_once} at once, then {then}{}{initial}",
        explained.never_clause
    ))
}
