//! Parses a quota that an operator gives to one key of a limit.
//!
//! The quota counts in the limit's own states, so it needs the limit's algorithm and, for windows, the same window
//! length. Must not know: keys, expiries.

use tollgate_core::limit::{Limit, Quota};
use tollgate_core::{Calendar, CustomBucket, Nanos, TokenBucket, Window};
use tollgate_policy::grammar::{self, GrammarError};
use tollgate_policy::model::{Burst, Period, RateSpec};
use tollgate_policy::rules::{
    AlgorithmSpec, Meter, MeterRole, QuotaBuilder, SelectedQuota, share_state,
};

use super::operator_error::OperatorError;
use crate::generation::Generation;

/// Buckets count a month as 30 days, and a year as 365 days.
const MONTH: Nanos = Nanos::from_secs(30 * 86_400);

/// One part of the quota text.
#[derive(Clone, Copy, Debug)]
enum ParsedQuota {
    Rate(RateSpec, Option<u64>),
    Permits(u64),
}

/// The quota of each of the rule's meters under this text; `None` for meters that are not the limit's own quota.
pub(super) fn resolve_override(
    generation: &Generation,
    index: usize,
    text: &str,
) -> Result<Box<[Option<SelectedQuota>]>, OperatorError> {
    let rule = generation.rules().rules().get(index);
    let (name, meters) = rule.map_or(("", &[][..]), |rule| (&*rule.name, &*rule.meters));
    let invalid = |reason: String| OperatorError::InvalidQuota {
        limit: name.into(),
        reason,
    };
    let is_main = |meter: &Meter| meter.role == MeterRole::Main;
    let has_shares = meters.iter().any(|meter| meter.role == MeterRole::Share);
    let mut selected: Vec<Option<SelectedQuota>> = meters
        .iter()
        .map(|meter| {
            let is_own = is_main(meter) || meter.role == MeterRole::Share;
            is_own.then_some(SelectedQuota::Unlimited)
        })
        .collect();
    if has_shares && text.trim() != "unlimited" {
        let reason = "its quota is divided into shares, and only `unlimited` replaces all of them";
        return Err(invalid(reason.to_owned()));
    }
    if !has_shares && meters.iter().any(|meter| meter.level.is_some()) {
        let reason = "it has levels, and a quota cannot name one of them";
        return Err(invalid(reason.to_owned()));
    }
    if text.trim() == "unlimited" {
        return Ok(selected.into());
    }
    for part in text.split(',') {
        let mut free = meters
            .iter()
            .zip(&mut selected)
            .filter(|(meter, selected)| {
                is_main(meter) && matches!(selected, Some(SelectedQuota::Unlimited))
            });
        let parsed = parse_part(part, meters).map_err(|error| OperatorError::InvalidField {
            field: "quota",
            error,
        })?;
        let fit =
            free.find_map(|(meter, selected)| Some((formula_for(meter, parsed)?, meter, selected)));
        let Some((builder, meter, slot)) = fit else {
            return Err(invalid(mismatch_reason(meters, part.trim())));
        };
        let units = match parsed {
            ParsedQuota::Rate(rate, _) => rate.units,
            ParsedQuota::Permits(permits) => permits,
        };
        let limit = builder
            .build(units)
            .map_err(|error| invalid(error.to_string()))?;
        let limit = meter.quotas.iter().fold(limit, share_state);
        *slot = Some(SelectedQuota::Computed(limit));
    }
    Ok(selected.into())
}

fn parse_part(part: &str, meters: &[Meter]) -> Result<ParsedQuota, GrammarError> {
    let own = meters.iter().find(|meter| meter.role == MeterRole::Main);
    let own = own.and_then(|meter| meter.quotas.first());
    let unit = own.map(Limit::unit).unwrap_or_default();
    if own.is_some_and(|own| own.lease_duration().is_some()) {
        return grammar::parse_count(part.trim()).map(ParsedQuota::Permits);
    }
    let (rate, burst) = match part.split_once(" burst ") {
        Some((rate, burst)) => (rate, Some(grammar::parse_amount(burst.trim(), unit)?)),
        None => (part, None),
    };
    Ok(ParsedQuota::Rate(
        grammar::parse_rate(rate.trim(), unit)?,
        burst,
    ))
}

/// How a meter counts this part, if it can.
fn formula_for(meter: &Meter, parsed: ParsedQuota) -> Option<QuotaBuilder> {
    let own = meter.quotas.first()?;
    let builder = |shape: AlgorithmSpec| QuotaBuilder::new(shape, own.unit());
    let (rate, burst) = match (parsed, own.quota()) {
        (ParsedQuota::Permits(_), Quota::Concurrency(permits)) => {
            return Some(builder(AlgorithmSpec::Concurrency(
                permits.lease_duration(),
            )));
        }
        (ParsedQuota::Permits(_), _) => return None,
        (ParsedQuota::Rate(rate, burst), _) => (rate, burst),
    };
    let span = match rate.period {
        Period::Span(span) => span,
        Period::Month => MONTH,
        Period::Year => Nanos::YEAR,
    };
    let in_bucket = |shape: AlgorithmSpec, bucket: &TokenBucket| {
        let plain = QuotaBuilder {
            burst: burst.map(Burst::Units),
            overdraft: overdraft(bucket),
            ..builder(shape)
        };
        plain.with_blocks_for(rate.units)
    };
    let in_window = |shape: AlgorithmSpec, overdraft: u64| QuotaBuilder {
        overdraft,
        ..builder(shape)
    };
    let builder = match own.quota() {
        Quota::TokenBucket(bucket) => in_bucket(AlgorithmSpec::TokenBucket(span), bucket),
        Quota::CustomBucket(custom) if !custom.refills_in_steps() || custom.step() == span => {
            let bucket = custom.as_token_bucket();
            let plain = in_bucket(AlgorithmSpec::TokenBucket(span), bucket);
            like_custom_bucket(plain, custom, burst.unwrap_or(rate.units))
        }
        Quota::LeakyBucket(bucket) if bucket.is_queue() => {
            in_bucket(AlgorithmSpec::LeakyQueue(span), bucket.as_token_bucket())
        }
        Quota::LeakyBucket(bucket) => {
            in_bucket(AlgorithmSpec::LeakyBucket(span), bucket.as_token_bucket())
        }
        Quota::FixedWindow(window) if has_same_period(window.window(), rate.period) => {
            let overdraft = window.saturation().saturating_sub(window.limit());
            in_window(AlgorithmSpec::FixedWindow(window.window()), overdraft)
        }
        Quota::SlidingCounter(window) if window.window() == span => {
            let overdraft = u64::from(window.saturation()).saturating_sub(window.limit());
            let max = rate.units.saturating_add(overdraft);
            QuotaBuilder {
                ceiling: max.max(window.ceiling().into()),
                ..in_window(AlgorithmSpec::SlidingWindow(span), overdraft)
            }
        }
        Quota::SlidingLog(log) if log.window() == span => {
            let blocks = log.saturation_blocks().saturating_sub(log.limit_blocks());
            QuotaBuilder {
                block: log.block(),
                ..in_window(
                    AlgorithmSpec::SlidingLog(span),
                    blocks.saturating_mul(log.block()),
                )
            }
        }
        _ => return None,
    };
    (burst.is_none() || has_burst(own)).then_some(builder)
}

/// The same steps, and the same initial units as far as they fit into the overridden burst.
fn like_custom_bucket(plain: QuotaBuilder, custom: &CustomBucket, burst: u64) -> QuotaBuilder {
    let starts_full = custom.initial() >= custom.limit();
    QuotaBuilder {
        is_stepped: custom.refills_in_steps(),
        initial: (!starts_full).then(|| (custom.initial().min(burst), custom.remember())),
        ..plain
    }
}

/// Whether a quota of this kind has a burst.
fn has_burst(own: &Limit) -> bool {
    own.bucket().is_some() || matches!(own.quota(), Quota::CustomBucket(_))
}

/// The bucket's overdraft in units.
fn overdraft(bucket: &TokenBucket) -> u64 {
    let debt = bucket
        .saturation()
        .saturating_sub(bucket.refill_time())
        .as_nanos();
    let blocks = debt.checked_div(bucket.interval().as_nanos()).unwrap_or(0);
    blocks.saturating_mul(bucket.block())
}

fn has_same_period(window: Window, period: Period) -> bool {
    match (window, period) {
        (Window::Epoch(length) | Window::FirstHit(length), Period::Span(span)) => length == span,
        (Window::Calendar(Calendar::Day, _), Period::Span(span)) => span == Nanos::DAY,
        (Window::Calendar(Calendar::Week, _), Period::Span(span)) => {
            span == Nanos::from_secs(7 * 86_400)
        }
        (Window::Calendar(calendar, _), Period::Month) => calendar == Calendar::Month,
        (Window::Calendar(calendar, _), Period::Year) => calendar == Calendar::Year,
        _ => false,
    }
}

/// Why no meter can count this part.
fn mismatch_reason(meters: &[Meter], part: &str) -> String {
    let own = meters.iter().find(|meter| meter.role == MeterRole::Main);
    let own = own.and_then(|meter| meter.quotas.first());
    let what = match own {
        None => "it has no quota",
        Some(own) if has_burst(own) => "it has fewer windows",
        Some(_) => {
            "it counts in windows of another length, or has fewer of them, and they have no burst"
        }
    };
    format!("`{part}`: {what}")
}
