//! One window of a quota in plain words, exact about what is in force.
//!
//! Must not know: limits, fleets, requests.

use serde::Serialize;
use tollgate_core::Nanos;
use tollgate_core::limit::Limit;

use crate::algorithm::{Explained, Refill};
use crate::compile::quota::Granting;
use crate::model::Period;
use crate::words_for::{amount, period_name};

/// What one window of a quota does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WindowExplained {
    /// As policies name it.
    pub algorithm: &'static str,
    /// What is counted.
    pub unit: &'static str,
    /// The most units admitted at one instant.
    pub at_once: u64,
    /// The time in which one block is given back, in nanoseconds; buckets only.
    pub every_ns: Option<u64>,
    /// Units that are charged together.
    pub block: u64,
    /// The number of the rate, or of places.
    pub units: u64,
    /// What the period is called; concurrency has none.
    pub period: Option<String>,
    /// The length of the period in nanoseconds, where it has one length.
    pub period_ns: Option<u64>,
    /// Never more units than this in any period, both ends included.
    pub most_in_any_period: Option<u64>,
    /// About how many bytes one key takes in memory.
    pub memory_bytes: u64,
    /// About how many bytes one key takes in Redis.
    pub redis_bytes: u64,
    /// All of it in words.
    pub words: String,
}

/// What a window does where a request costs at most `dearest`.
pub(super) fn explained(granting: &Granting, limit: &Limit, dearest: u64) -> WindowExplained {
    let period = granting.formula.span();
    let most = period.and_then(|period| most_in_any(granting, limit, period, dearest));
    let properties = granting.formula.shape.properties();
    let refill = (properties.refill)(limit.quota()).unwrap_or(Refill {
        every: None,
        block: 1,
        at_once: granting.units,
        is_queue: false,
    });
    let at_once = match refill.is_queue {
        true => dearest.clamp(1, refill.at_once.max(1)),
        false => refill.at_once,
    };
    let (memory_bytes, redis_bytes) =
        (properties.bytes)(granting.units / granting.formula.block.max(1));
    WindowExplained {
        algorithm: properties.name,
        unit: granting.formula.unit.name(),
        at_once: if granting.units == 0 { 0 } else { at_once },
        every_ns: refill
            .every
            .filter(|_| granting.units > 0)
            .map(Nanos::as_nanos),
        block: refill.block,
        units: granting.units,
        period: granting.formula.shape.period_name(),
        period_ns: period.map(Nanos::as_nanos),
        most_in_any_period: most,
        memory_bytes,
        redis_bytes,
        words: words(granting, limit, most),
    }
}

fn most_in_any(granting: &Granting, limit: &Limit, period: Nanos, dearest: u64) -> Option<u64> {
    (granting.formula.shape.properties().most_in_any)(limit.quota(), period, dearest)
}

fn words(granting: &Granting, limit: &Limit, most: Option<u64>) -> String {
    let formula = &granting.formula;
    if granting.units == 0 {
        return "denies everything".to_owned();
    }
    let never = match (most, formula.span()) {
        (Some(most), Some(period)) => format!(
            "; never more than {} in any {}",
            amount(most, formula.unit),
            period_name(period)
        ),
        _ => String::new(),
    };
    let explained = Explained {
        formula,
        never,
        most,
    };
    let text = (formula.shape.properties().words)(limit.quota(), &explained);
    text.unwrap_or(explained.never) + month_words(granting)
}

/// A month or a year that no calendar counts is said to be what it is.
const fn month_words(granting: &Granting) -> &'static str {
    match granting.period {
        _ if granting.formula.shape.properties().follows_calendar => "",
        Some(Period::Month) => " (a month counts as 30 days)",
        Some(Period::Year) => " (a year counts as 365 days)",
        _ => "",
    }
}
