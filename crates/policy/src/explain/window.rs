//! One window of a quota in plain words, exact about what is in force.
//!
//! Must not know: limits, fleets, requests.

use serde::Serialize;
use tollgate_core::Nanos;
use tollgate_core::limit::Limit;

use crate::algorithm::{ExplainContext, Refill};
use crate::compile::quota::WindowGrant;
use crate::humanize::{format_amount, period_name};
use crate::model::Period;

/// What one window of a quota does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WindowExplanation {
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
pub(super) fn explain_window(
    granting: &WindowGrant,
    limit: &Limit,
    dearest: u64,
) -> WindowExplanation {
    let period = granting.builder.span();
    let most = period.and_then(|period| max_in_any_span(granting, limit, period, dearest));
    let properties = granting.builder.spec.properties();
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
        (properties.bytes)(granting.units / granting.builder.block.max(1));
    WindowExplanation {
        algorithm: properties.name,
        unit: granting.builder.unit.name(),
        at_once: if granting.units == 0 { 0 } else { at_once },
        every_ns: refill
            .every
            .filter(|_| granting.units > 0)
            .map(Nanos::as_nanos),
        block: refill.block,
        units: granting.units,
        period: granting.builder.spec.period_name(),
        period_ns: period.map(Nanos::as_nanos),
        most_in_any_period: most,
        memory_bytes,
        redis_bytes,
        words: describe(granting, limit, most),
    }
}

fn max_in_any_span(
    granting: &WindowGrant,
    limit: &Limit,
    period: Nanos,
    dearest: u64,
) -> Option<u64> {
    (granting.builder.spec.properties().max_in_any_span)(limit.quota(), period, dearest)
}

fn describe(granting: &WindowGrant, limit: &Limit, most: Option<u64>) -> String {
    let formula = &granting.builder;
    if granting.units == 0 {
        return "denies everything".to_owned();
    }
    let never = match (most, formula.span()) {
        (Some(most), Some(period)) => format!(
            "; never more than {} in any {}",
            format_amount(most, formula.unit),
            period_name(period)
        ),
        _ => String::new(),
    };
    let explained = ExplainContext {
        formula,
        never_clause: never,
        max_in_period: most,
    };
    let text = (formula.spec.properties().describe)(limit.quota(), &explained);
    text.unwrap_or(explained.never_clause) + calendar_note(granting)
}

/// A month or a year that no calendar counts is said to be what it is.
const fn calendar_note(granting: &WindowGrant) -> &'static str {
    match granting.period {
        _ if granting.builder.spec.properties().follows_calendar => "",
        Some(Period::Month) => " (a month counts as 30 days)",
        Some(Period::Year) => " (a year counts as 365 days)",
        _ => "",
    }
}
