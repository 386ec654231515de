//! Explains one window of a quota, exact about the quota in force.
//!
//! Must not know: limits, fleets, requests.

use serde::Serialize;
use tollgate_core::Nanos;
use tollgate_core::limit::Limit;

use crate::algorithm::{ExplainContext, Refill};
use crate::compile::quota::WindowGrant;
use crate::humanize::{format_amount, period_name};
use crate::model::Period;

/// One window of a quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WindowExplanation {
    /// The name in policies.
    pub algorithm: &'static str,
    /// What is counted.
    pub unit: &'static str,
    /// The maximum units admitted at one instant.
    pub at_once: u64,
    /// The time in which one block refills, in nanoseconds; buckets only.
    pub every_ns: Option<u64>,
    /// Units that are charged together.
    pub block: u64,
    /// The number of the rate, or the number of permits.
    pub units: u64,
    /// The name of the period; `None` for concurrency.
    pub period: Option<String>,
    /// The length of the period in nanoseconds, if it is fixed.
    pub period_ns: Option<u64>,
    /// The maximum units in any period, both ends included.
    pub most_in_any_period: Option<u64>,
    /// Approximate bytes per key in memory.
    pub memory_bytes: u64,
    /// Approximate bytes per key in Redis.
    pub redis_bytes: u64,
    /// The description for people.
    pub words: String,
}

/// Explains a window. `dearest` is the highest cost of a request.
pub(super) fn explain_window(
    window: &WindowGrant,
    limit: &Limit,
    max_cost: u64,
) -> WindowExplanation {
    let period = window.builder.span();
    let most = period.and_then(|period| max_in_any_span(window, limit, period, max_cost));
    let properties = window.builder.spec.properties();
    let refill = (properties.refill)(limit.quota()).unwrap_or(Refill {
        every: None,
        block: 1,
        at_once: window.units,
        is_queue: false,
    });
    let at_once = match refill.is_queue {
        true => max_cost.clamp(1, refill.at_once.max(1)),
        false => refill.at_once,
    };
    let (memory_bytes, redis_bytes) =
        (properties.bytes)(window.units / window.builder.block.max(1));
    WindowExplanation {
        algorithm: properties.name,
        unit: window.builder.unit.name(),
        at_once: if window.units == 0 { 0 } else { at_once },
        every_ns: refill
            .every
            .filter(|_| window.units > 0)
            .map(Nanos::as_nanos),
        block: refill.block,
        units: window.units,
        period: window.builder.spec.period_name(),
        period_ns: period.map(Nanos::as_nanos),
        most_in_any_period: most,
        memory_bytes,
        redis_bytes,
        words: describe(window, limit, most),
    }
}

/// What surprises people who read `10/min` as at most ten in any minute.
const TWICE: &str = ", up to twice the rate in a window";

fn max_in_any_span(
    window: &WindowGrant,
    limit: &Limit,
    period: Nanos,
    max_cost: u64,
) -> Option<u64> {
    (window.builder.spec.properties().max_in_any_span)(limit.quota(), period, max_cost)
}

fn describe(window: &WindowGrant, limit: &Limit, most: Option<u64>) -> String {
    let builder = &window.builder;
    if window.units == 0 {
        return "denies everything".to_owned();
    }
    let never = match (most, builder.span()) {
        (Some(most), Some(period)) => format!(
            "; never more than {} in any {}{}",
            format_amount(most, builder.unit),
            period_name(period),
            if most == window.units.saturating_mul(2) {
                TWICE
            } else {
                ""
            }
        ),
        _ => String::new(),
    };
    let explained = ExplainContext {
        builder,
        never_clause: never,
        max_in_period: most,
    };
    let text = (builder.spec.properties().describe)(limit.quota(), &explained);
    text.unwrap_or(explained.never_clause) + calendar_note(window)
}

/// States the length of a month or year that does not follow the calendar.
const fn calendar_note(window: &WindowGrant) -> &'static str {
    match window.period {
        _ if window.builder.spec.properties().follows_calendar => "",
        Some(Period::Month) => " (a month counts as 30 days)",
        Some(Period::Year) => " (a year counts as 365 days)",
        _ => "",
    }
}
