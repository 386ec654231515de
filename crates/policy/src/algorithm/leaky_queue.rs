//! `leaky_queue`: requests wait in a queue until the queue is full.
//!
//! Must not know: other algorithms.

use tollgate_core::limit::{Limit, Quota};
use tollgate_core::{InvalidQuota, LeakyBucket, Nanos, Rate};

use super::{AlgorithmProperties, DEFAULTS, ExplainContext, Refill, refill_count};
use crate::humanize::{format_amount, format_duration, format_refill, period_name};
use crate::rules::QuotaBuilder;

const ONE_ORDER: &str = "a queue has one order, and each node would have its own queue";

pub(super) const PROPERTIES: AlgorithmProperties = AlgorithmProperties {
    name: "leaky_queue",
    other_names: &["queue", "shaping", "throttle"],
    guarantee: "requests wait in a queue instead of being denied, until the queue is full",
    burst: Some("the length of the queue"),
    why_not_leased: Some(ONE_ORDER),
    why_not_async: Some(ONE_ORDER),
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
    let waiting = builder.burst_units(units, period).unwrap_or(units);
    let queue = LeakyBucket::queue(Rate::new(units, period)).overdraft(overdraft);
    Ok(Limit::new(queue.burst(waiting).build()?))
}

fn refill(quota: &Quota) -> Option<Refill> {
    let Quota::LeakyBucket(queue) = quota else {
        return None;
    };
    Some(Refill {
        every: Some(queue.interval()),
        block: 1,
        at_once: queue.limit(),
        is_queue: true,
    })
}

/// The queue admits requests one interval apart for each unit that the previous request cost. The last request may cost
/// up to the limit.
fn max_in_any_span(quota: &Quota, span: Nanos, max_cost: u64) -> Option<u64> {
    match quota {
        Quota::LeakyBucket(queue) if queue.limit() == 0 => Some(0),
        Quota::LeakyBucket(queue) => {
            let last = max_cost.clamp(1, queue.limit());
            Some(refill_count(queue.interval(), span).saturating_add(last))
        }
        _ => None,
    }
}

/// A queue delays requests, so the bound is on what leaves the queue.
fn describe(quota: &Quota, explained: &ExplainContext<'_>) -> Option<String> {
    let Quota::LeakyBucket(queue) = quota else {
        return None;
    };
    let unit = explained.unit();
    let waiting = queue.limit().saturating_sub(1);
    let longest = Nanos::from_nanos(queue.interval().as_nanos().saturating_mul(waiting));
    let each = format_refill(1, queue.interval(), unit);
    let waits = match waiting {
        0 => "without a queue".to_owned(),
        _ => format!(
            "with up to {} waiting for at most {}",
            format_amount(waiting, unit),
            format_duration(longest)
        ),
    };
    let never = match (explained.max_in_period, explained.builder.span()) {
        (Some(most), Some(period)) => format!(
            "; never admits more than {} in any {}",
            format_amount(most, unit),
            period_name(period)
        ),
        _ => String::new(),
    };
    Some(format!("{each}, {waits}{never}"))
}
