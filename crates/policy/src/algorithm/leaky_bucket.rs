//! `leaky_bucket`: a level that drains at the rate. A request that does not fit is denied.
//!
//! Must not know: other algorithms.

use tollgate_core::limit::{Limit, Quota};
use tollgate_core::{InvalidQuota, InvalidReason, LeakyBucket, Nanos, Rate};

use super::{AlgorithmProperties, DEFAULTS, ExplainContext, Refill, refill_count};
use crate::humanize::{format_amount, format_refill};
use crate::rules::QuotaBuilder;

pub(super) const PROPERTIES: AlgorithmProperties = AlgorithmProperties {
    name: "leaky_bucket",
    other_names: &["leaky"],
    guarantee: "like `token_bucket`, as a level that drains",
    burst: Some("as for `token_bucket`"),
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
    let at_once = builder.burst_units(units, period).unwrap_or(units);
    if at_once == 0 && units > 0 {
        return Err(InvalidQuota {
            field: "burst",
            value: 0,
            reason: InvalidReason::Zero,
            nearest: Some(1),
        });
    }
    let waiting = at_once.saturating_sub(u64::from(units > 0));
    let meter = LeakyBucket::meter(Rate::new(units, period)).overdraft(overdraft);
    Ok(Limit::new(meter.burst(waiting).build()?))
}

fn refill(quota: &Quota) -> Option<Refill> {
    let Quota::LeakyBucket(meter) = quota else {
        return None;
    };
    Some(Refill {
        every: Some(meter.interval()),
        block: 1,
        at_once: meter.limit(),
        is_queue: false,
    })
}

fn max_in_any_span(quota: &Quota, span: Nanos, _: u64) -> Option<u64> {
    match quota {
        Quota::LeakyBucket(meter) if meter.limit() == 0 => Some(0),
        Quota::LeakyBucket(meter) => {
            Some(refill_count(meter.interval(), span).saturating_add(meter.limit()))
        }
        _ => None,
    }
}

fn describe(quota: &Quota, explained: &ExplainContext<'_>) -> Option<String> {
    let Quota::LeakyBucket(meter) = quota else {
        return None;
    };
    let unit = explained.unit();
    let at_once = format_amount(meter.limit(), unit);
    let then = format_refill(1, meter.interval(), unit);
    Some(format!(
        "at most {at_once} at once, then {then}{}",
        explained.never_clause
    ))
}
