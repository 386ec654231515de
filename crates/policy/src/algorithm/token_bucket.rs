//! `token_bucket`: a burst at once, then evenly.
//!
//! Must not know: other algorithms.

use tollgate_core::limit::{Limit, Quota};
use tollgate_core::{InvalidQuota, Nanos, Rate, TokenBucket};

use super::{Explained, PLAIN, Properties, Refill, refills};
use crate::rules::Formula;
use crate::words_for::{amount, then_every};

pub(super) const PROPERTIES: Properties = Properties {
    name: "token_bucket",
    promise: "the burst at once, then evenly; never more than burst + rate × time",
    burst: Some("`burst`, else the rate's number; `auto` is ten seconds' worth"),
    needs_larger_blocks: Formula::is_too_fine,
    refill,
    most_in_any,
    words,
    ..PLAIN
};

pub(super) fn build(
    formula: &Formula,
    period: Nanos,
    units: u64,
    overdraft: u64,
) -> Result<Limit, InvalidQuota> {
    let bucket = TokenBucket::builder(Rate::new(units, period))
        .overdraft(overdraft)
        .block(formula.block);
    Ok(Limit::new(match formula.burst_of(units, period) {
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

/// The debt that fits at the beginning, and what refills until the end: n · T ≤ B · T + span.
fn most_in_any(quota: &Quota, span: Nanos, _: u64) -> Option<u64> {
    match quota {
        Quota::TokenBucket(bucket) if bucket.limit() == 0 => Some(0),
        Quota::TokenBucket(bucket) => Some(
            refills(bucket.interval(), span)
                .saturating_mul(bucket.block())
                .saturating_add(bucket.limit()),
        ),
        _ => None,
    }
}

fn words(quota: &Quota, explained: &Explained<'_>) -> Option<String> {
    let Quota::TokenBucket(bucket) = quota else {
        return None;
    };
    let unit = explained.unit();
    let at_once = amount(bucket.limit(), unit);
    let then = then_every(bucket.block(), bucket.interval(), unit);
    Some(format!(
        "at most {at_once} at once, then {then}{}",
        explained.never
    ))
}
