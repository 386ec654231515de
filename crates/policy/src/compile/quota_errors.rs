//! Translates core's quota errors to diagnostics in terms of the policy file.
//!
//! Must not know: how quotas are built.

use tollgate_core::{InvalidQuota, InvalidReason, Nanos};

use crate::humanize::{format_duration, format_number};
use crate::model::{Period, QuotaSpec, RateSpec};
use crate::source::{Diagnostic, Located};

/// The diagnostic for an error of core about a rate.
pub(super) fn rate_error(
    quota: &Located<QuotaSpec>,
    rate: &Located<RateSpec>,
    error: &InvalidQuota,
) -> Diagnostic {
    let rate_shown = rate_text(rate.value);
    let per = per_text(rate.value.period);
    let (location, subject, nearest) = match error.field {
        "burst" => (
            quota
                .value
                .burst
                .as_ref()
                .map_or(rate.location, |burst| burst.location),
            format!(
                "`burst` cannot be {} with a rate of {rate_shown}",
                format_number(error.value)
            ),
            error.nearest.map(format_number),
        ),
        "initial" => (
            rate.location,
            format!(
                "`initial` is {}, above the burst of {rate_shown}",
                format_number(error.value)
            ),
            error.nearest.map(format_number),
        ),
        "remember" => (
            quota
                .value
                .details
                .remember
                .map_or(rate.location, |at| at.location),
            format!("`remember` cannot be {}", duration_text(error.value)),
            error.nearest.map(duration_text),
        ),
        "overdraft" => (
            rate.location,
            format!(
                "`overdraft` cannot be {} with a rate of {rate_shown}",
                format_number(error.value)
            ),
            error.nearest.map(format_number),
        ),
        "period" | "window" => (
            rate.location,
            format!(
                "`rate` cannot be {rate_shown}: its period is {}",
                duration_text(error.value)
            ),
            error
                .nearest
                .map(|nearest| format!("a period of {}", duration_text(nearest))),
        ),
        _ => (
            rate.location,
            format!("`rate` cannot be {rate_shown}"),
            error
                .nearest
                .map(|nearest| format!("{}{per}", format_number(nearest))),
        ),
    };
    Diagnostic {
        location,
        message: format!("{subject}: {}", reason_text(error)).into(),
        help: nearest.map(|nearest| format!("the nearest supported value is {nearest}").into()),
    }
}

/// The diagnostic for an error of core about a concurrency quota.
pub(super) fn concurrency_error(
    quota: &Located<QuotaSpec>,
    lease: Nanos,
    error: &InvalidQuota,
) -> Diagnostic {
    let (value, nearest) = match error.field {
        "lease" => (format_duration(lease), error.nearest.map(duration_text)),
        _ => (format_number(error.value), error.nearest.map(format_number)),
    };
    Diagnostic {
        location: quota.location,
        message: format!(
            "`{}` cannot be {value}: {}",
            error.field,
            reason_text(error)
        )
        .into(),
        help: nearest.map(|nearest| format!("the nearest supported value is {nearest}").into()),
    }
}

fn duration_text(nanos: u64) -> String {
    format_duration(Nanos::from_nanos(nanos))
}

/// A rate in the syntax of policies.
fn rate_text(rate: RateSpec) -> String {
    format!("{}{}", format_number(rate.units), per_text(rate.period))
}

fn per_text(period: Period) -> String {
    match period {
        Period::Month => "/month".to_owned(),
        Period::Year => "/year".to_owned(),
        Period::Span(length) => match length {
            Nanos::SECOND => "/s".to_owned(),
            Nanos::MINUTE => "/min".to_owned(),
            Nanos::HOUR => "/h".to_owned(),
            Nanos::DAY => "/day".to_owned(),
            other => format!(" per {}", format_duration(other)),
        },
    }
}

fn reason_text(error: &InvalidQuota) -> String {
    match error.reason {
        InvalidReason::Zero => "it must be at least 1".to_owned(),
        InvalidReason::TooLarge => match error.field {
            "initial" => "a key cannot start with more than fits into its bucket".to_owned(),
            "window" | "lease" | "remember" => "it is longer than 2^62 ns (146 years)".to_owned(),
            _ => "it is above the maximum of this algorithm".to_owned(),
        },
        InvalidReason::TooSmall => "it is too small".to_owned(),
        InvalidReason::RateTooFine => {
            "whole nanoseconds cannot express this rate within 0.1 %".to_owned()
        }
        InvalidReason::RefillTooLong => {
            "it would take longer than 2^62 ns (146 years) to refill".to_owned()
        }
        InvalidReason::LimitIsZero => {
            "a rate of zero denies everything, so this must be 0 or left out".to_owned()
        }
        InvalidReason::BelowOneBlock => {
            "this rate is charged in blocks, and it is less than one block".to_owned()
        }
        _ => error.to_string(),
    }
}
