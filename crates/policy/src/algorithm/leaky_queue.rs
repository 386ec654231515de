//! `leaky_queue`: requests wait their turn while there is room.
//!
//! Must not know: other algorithms.

use tollgate_core::limit::{Limit, Quota};
use tollgate_core::{InvalidQuota, LeakyBucket, Nanos, Rate};

use super::{Explained, PLAIN, Properties, Refill, refills};
use crate::rules::Formula;
use crate::words_for::{amount, period_name, span, then_every};

const ONE_ORDER: &str = "a queue has one order, and each node would keep its own";

pub(super) const PROPERTIES: Properties = Properties {
    name: "leaky_queue",
    promise: "requests wait their turn instead of being refused, as long as there is room",
    burst: Some("the queue"),
    not_leased: Some(ONE_ORDER),
    not_async: Some(ONE_ORDER),
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
    let waiting = formula.burst_of(units, period).unwrap_or(units);
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
fn most_in_any(quota: &Quota, span: Nanos, dearest: u64) -> Option<u64> {
    match quota {
        Quota::LeakyBucket(queue) if queue.limit() == 0 => Some(0),
        Quota::LeakyBucket(queue) => {
            let last = dearest.clamp(1, queue.limit());
            Some(refills(queue.interval(), span).saturating_add(last))
        }
        _ => None,
    }
}

/// A queue delays, so what counts is what it lets through.
fn words(quota: &Quota, explained: &Explained<'_>) -> Option<String> {
    let Quota::LeakyBucket(queue) = quota else {
        return None;
    };
    let unit = explained.unit();
    let waiting = queue.limit().saturating_sub(1);
    let longest = Nanos::from_nanos(queue.interval().as_nanos().saturating_mul(waiting));
    let each = then_every(1, queue.interval(), unit);
    let waits = match waiting {
        0 => "and nobody waits".to_owned(),
        _ => format!(
            "with up to {} waiting their turn for at most {}",
            amount(waiting, unit),
            span(longest)
        ),
    };
    let never = match (explained.most, explained.formula.span()) {
        (Some(most), Some(period)) => format!(
            "; never lets more than {} through in any {}",
            amount(most, unit),
            period_name(period)
        ),
        _ => String::new(),
    };
    Some(format!("{each}, {waits}{never}"))
}
