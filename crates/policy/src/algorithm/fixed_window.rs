//! `fixed_window`: so many in each window, which may turn with the calendar.
//!
//! Must not know: other algorithms.

use tollgate_core::limit::{Limit, Quota};
use tollgate_core::{Calendar, FixedWindow, InvalidQuota, Nanos, UtcOffset, Window};

use super::{AlgorithmProperties, DEFAULTS, ExplainContext, StateSharing, two_word_bytes};
use crate::humanize::{format_amount, format_duration, period_name};

pub(super) const PROPERTIES: AlgorithmProperties = AlgorithmProperties {
    name: "fixed_window",
    guarantee: "so many in each window, and up to twice as many around its end. Windows begin at multiples of their length since 1970; weeks (on Mondays), months and years with the calendar. A `utc_offset` says at which midnight days, weeks, months and years turn; without one it is UTC's",
    supports_wait: false,
    follows_calendar: true,
    can_be_leased: false,
    fallback_note: ", by a token bucket",
    sharing: StateSharing::SamePeriod,
    max_in_any_span,
    bytes: two_word_bytes,
    describe,
    ..DEFAULTS
};

pub(super) fn build(window: Window, units: u64, overdraft: u64) -> Result<Limit, InvalidQuota> {
    let fixed = FixedWindow::builder(units, window).overdraft(overdraft);
    Ok(Limit::new(fixed.build()?))
}

/// One window's number just before it turns, the next one's just after.
fn max_in_any_span(quota: &Quota, span: Nanos, _: u64) -> Option<u64> {
    let Quota::FixedWindow(fixed) = quota else {
        return None;
    };
    match fixed.window() {
        Window::Epoch(length) if length == span => Some(fixed.limit().saturating_mul(2)),
        _ => None,
    }
}

fn describe(quota: &Quota, explained: &ExplainContext<'_>) -> Option<String> {
    let Quota::FixedWindow(fixed) = quota else {
        return None;
    };
    let unit = explained.unit();
    let (each, turns) = describe_window(fixed.window());
    let many = format_amount(fixed.limit(), unit);
    let across = format_amount(fixed.limit().saturating_mul(2), unit);
    Some(format!(
        "at most {many} in each {each}, and up to {across} close together where one {each} turns into the next; {turns}"
    ))
}

/// What one window is called and when it turns into the next.
pub(super) fn describe_window(window: Window) -> (String, String) {
    match window {
        Window::Calendar(calendar, offset) => {
            let at = offset_name(offset);
            let (each, turns) = match calendar {
                Calendar::Day => ("day", "days turn at midnight"),
                Calendar::Week => ("week", "weeks turn on Mondays at midnight"),
                Calendar::Month => ("calendar month", "months turn at midnight before the first"),
                Calendar::Year => ("calendar year", "years turn at midnight before January"),
                _ => ("period of the calendar", "it turns with the calendar"),
            };
            (each.to_owned(), format!("{turns}, {at}"))
        }
        Window::Epoch(length) if length == Nanos::DAY => {
            ("day".to_owned(), "days turn at midnight, UTC".to_owned())
        }
        Window::Epoch(length) => (
            period_name(length),
            format!(
                "windows turn at whole multiples of {} since 1970, UTC",
                format_duration(length)
            ),
        ),
        Window::FirstHit(length) => (
            period_name(length),
            "a window begins with the first request that finds none".to_owned(),
        ),
        _ => ("window".to_owned(), "windows turn by themselves".to_owned()),
    }
}

fn offset_name(offset: UtcOffset) -> String {
    let minutes = offset.minutes();
    if minutes == 0 {
        return "UTC".to_owned();
    }
    let sign = if minutes < 0 { '-' } else { '+' };
    let (hours, rest) = (minutes.unsigned_abs() / 60, minutes.unsigned_abs() % 60);
    format!("at UTC{sign}{hours:02}:{rest:02}")
}
