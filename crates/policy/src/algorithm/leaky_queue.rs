//! `leaky_queue`: requests wait their turn while there is room.
//!
//! Must not know: other algorithms.

use tollgate_core::limit::{Limit, Quota};
use tollgate_core::{InvalidQuota, LeakyBucket, Nanos, Rate};

use super::{AlgorithmProperties, DEFAULTS, ExplainContext, Refill, refill_count};
use crate::humanize::{format_amount, format_duration, format_refill, period_name};
use crate::rules::QuotaBuilder;

const ONE_ORDER: &str = "a queue has one order, and each node would keep its own";

pub(super) const PROPERTIES: AlgorithmProperties = AlgorithmProperties {
    name: "leaky_queue",
    guarantee: "requests wait their turn instead of being refused, as long as there is room",
    burst: Some("the queue"),
    why_not_leased: Some(ONE_ORDER),
    why_not_async: Some(ONE_ORDER),
    refill,
    max_in_any_span,
    describe,
    ..DEFAULTS
};

pub(super) fn build(
    formula: &QuotaBuilder,
    period: Nanos,
    units: u64,
    overdraft: u64,
) -> Result<Limit, InvalidQuota> {
    let waiting = formula.burst_units(units, period).unwrap_or(units);
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

/// Requests leave an interval apart for each unit that the one before cost; the last may cost as much as it likes.
fn max_in_any_span(quota: &Quota, span: Nanos, dearest: u64) -> Option<u64> {
    match quota {
        Quota::LeakyBucket(queue) if queue.limit() == 0 => Some(0),
        Quota::LeakyBucket(queue) => {
            let last = dearest.clamp(1, queue.limit());
            Some(refill_count(queue.interval(), span).saturating_add(last))
        }
        _ => None,
    }
}

/// A queue delays, so what counts is what it lets through.
fn describe(quota: &Quota, explained: &ExplainContext<'_>) -> Option<String> {
    let Quota::LeakyBucket(queue) = quota else {
        return None;
    };
    let unit = explained.unit();
    let waiting = queue.limit().saturating_sub(1);
    let longest = Nanos::from_nanos(queue.interval().as_nanos().saturating_mul(waiting));
    let each = format_refill(1, queue.interval(), unit);
    let waits = match waiting {
        0 => "and nobody waits".to_owned(),
        _ => format!(
            "with up to {} waiting their turn for at most {}",
            format_amount(waiting, unit),
            format_duration(longest)
        ),
    };
    let never = match (explained.max_in_period, explained.formula.span()) {
        (Some(most), Some(period)) => format!(
            "; never lets more than {} through in any {}",
            format_amount(most, unit),
            period_name(period)
        ),
        _ => String::new(),
    };
    Some(format!("{each}, {waits}{never}"))
}
