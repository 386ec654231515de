//! `leaky_bucket`: a level that drains, and refuses what does not fit.
//!
//! Must not know: other algorithms.

use tollgate_core::limit::{Limit, Quota};
use tollgate_core::{InvalidQuota, InvalidReason, LeakyBucket, Nanos, Rate};

use super::{Explained, PLAIN, Properties, Refill, refills};
use crate::rules::Formula;
use crate::words_for::{amount, then_every};

pub(super) const PROPERTIES: Properties = Properties {
    name: "leaky_bucket",
    promise: "the same, thought of as a level that drains",
    burst: Some("as above"),
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
    let at_once = formula.burst_of(units, period).unwrap_or(units);
    if at_once == 0 && units > 0 {
        return Err(InvalidQuota {
            field: "burst",
            value: 0,
            reason: InvalidReason::Zero,
            nearest: Some(1),
        });
    }
    let beside = at_once.saturating_sub(u64::from(units > 0));
    let meter = LeakyBucket::meter(Rate::new(units, period)).overdraft(overdraft);
    Ok(Limit::new(meter.burst(beside).build()?))
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

fn most_in_any(quota: &Quota, span: Nanos, _: u64) -> Option<u64> {
    match quota {
        Quota::LeakyBucket(meter) if meter.limit() == 0 => Some(0),
        Quota::LeakyBucket(meter) => {
            Some(refills(meter.interval(), span).saturating_add(meter.limit()))
        }
        _ => None,
    }
}

fn words(quota: &Quota, explained: &Explained<'_>) -> Option<String> {
    let Quota::LeakyBucket(meter) = quota else {
        return None;
    };
    let unit = explained.unit();
    let at_once = amount(meter.limit(), unit);
    let then = then_every(1, meter.interval(), unit);
    Some(format!(
        "at most {at_once} at once, then {then}{}",
        explained.never
    ))
}
