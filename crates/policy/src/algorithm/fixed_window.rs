//! `fixed_window`: a maximum per window. Windows may follow the calendar.
//!
//! Must not know: other algorithms.

use tollgate_core::limit::{Limit, Quota};
use tollgate_core::{Calendar, FixedWindow, InvalidQuota, Nanos, UtcOffset, Window};

use super::{AlgorithmProperties, DEFAULTS, ExplainContext, StateSharing, two_word_bytes};
use crate::humanize::{format_amount, format_duration, period_name};

pub(super) const PROPERTIES: AlgorithmProperties = AlgorithmProperties {
    name: "fixed_window",
    other_names: &["fixed", "calendar"],
    guarantee: "a maximum in each window, and up to twice as many around its end. Windows begin at multiples of their length since 1970; weeks (on Mondays), months and years follow the calendar. With `window: first_hit` they begin with a key's first request. `utc_offset` sets the midnight at which days, weeks, months and years begin; the default is UTC",
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

/// The limit of one window just before it ends, plus the limit of the next window just after.
fn max_in_any_span(quota: &Quota, span: Nanos, _: u64) -> Option<u64> {
    let Quota::FixedWindow(fixed) = quota else {
        return None;
    };
    match fixed.window() {
        Window::Epoch(length) | Window::FirstHit(length) if length == span => {
            Some(fixed.limit().saturating_mul(2))
        }
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
        "at most {many} in each {each}, and up to {across} around the end of a {each}, up to twice the rate in a window; {turns}"
    ))
}

/// The name of a window, and when the next window begins.
pub(super) fn describe_window(window: Window) -> (String, String) {
    match window {
        Window::Calendar(calendar, offset) => {
            let at = offset_name(offset);
            let (each, turns) = match calendar {
                Calendar::Day => ("day", "days begin at midnight"),
                Calendar::Week => ("week", "weeks begin on Mondays at midnight"),
                Calendar::Month => ("calendar month", "months begin at midnight"),
                Calendar::Year => ("calendar year", "years begin at midnight"),
                _ => ("period of the calendar", "it follows the calendar"),
            };
            (each.to_owned(), format!("{turns}, {at}"))
        }
        Window::Epoch(length) if length == Nanos::DAY => {
            ("day".to_owned(), "days begin at midnight, UTC".to_owned())
        }
        Window::Epoch(length) => (
            period_name(length),
            format!(
                "windows begin at whole multiples of {} since 1970, UTC",
                format_duration(length)
            ),
        ),
        Window::FirstHit(length) => (
            period_name(length),
            "a window begins with the first request".to_owned(),
        ),
        _ => (
            "window".to_owned(),
            "windows begin one after another".to_owned(),
        ),
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
