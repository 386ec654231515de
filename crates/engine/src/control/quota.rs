//! A quota that an operator gives to one key, in the terms of the limit that the key belongs to.
//!
//! It is counted in the limit's own states, so it needs the limit's own algorithm and, where that counts in windows, the
//! same windows. Must not know: keys, how long it holds.

use tollgate_core::limit::{Limit, Quota};
use tollgate_core::{Calendar, Nanos, TokenBucket, Window};
use tollgate_policy::model::{Burst, Period, RateSpec};
use tollgate_policy::rules::{Chosen, Formula, Meter, Role, Shape, sharing};
use tollgate_policy::words::{self, Wrong};

use super::refused::OperatorError;
use crate::generation::Generation;

/// Thirty days, and a year of 365: what buckets take for a month and a year.
const MONTH: Nanos = Nanos::from_secs(30 * 86_400);

/// One window as it was asked for.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Rate(RateSpec, Option<u64>),
    Places(u64),
}

/// What each meter of a rule grants by this quota: nothing is said about meters that are not the limit's own quota.
pub(super) fn chosen(
    generation: &Generation,
    index: usize,
    text: &str,
) -> Result<Box<[Option<Chosen>]>, OperatorError> {
    let rule = generation.rules().rules().get(index);
    let (name, meters) = rule.map_or(("", &[][..]), |rule| (&*rule.name, &*rule.meters));
    let refuse = |why: String| OperatorError::Quota {
        limit: name.into(),
        why,
    };
    let is_main = |meter: &Meter| meter.role == Role::Main;
    let mut chosen: Vec<Option<Chosen>> = meters
        .iter()
        .map(|meter| is_main(meter).then_some(Chosen::Unlimited))
        .collect();
    if meters.iter().any(|meter| meter.level.is_some()) {
        let why = "it has levels, and it would not be clear which one is meant";
        return Err(refuse(why.to_owned()));
    }
    if text.trim() == "unlimited" {
        return Ok(chosen.into());
    }
    for word in text.split(',') {
        let mut free = meters
            .iter()
            .zip(&mut chosen)
            .filter(|(meter, chosen)| is_main(meter) && matches!(chosen, Some(Chosen::Unlimited)));
        let asked = read(word, meters).map_err(|wrong| OperatorError::Wrong {
            field: "quota",
            wrong,
        })?;
        let fitting = free.find_map(|(meter, chosen)| Some((fit(meter, asked)?, meter, chosen)));
        let Some((formula, meter, place)) = fitting else {
            return Err(refuse(misfit(meters, word.trim())));
        };
        let units = match asked {
            Asked::Rate(rate, _) => rate.units,
            Asked::Places(places) => places,
        };
        let limit = formula
            .build(units)
            .map_err(|why| refuse(why.to_string()))?;
        let limit = meter.quotas.iter().fold(limit, sharing);
        *place = Some(Chosen::Computed(limit));
    }
    Ok(chosen.into())
}

fn read(word: &str, meters: &[Meter]) -> Result<Asked, Wrong> {
    let own = meters.iter().find(|meter| meter.role == Role::Main);
    let own = own.and_then(|meter| meter.quotas.first());
    let unit = own.map(Limit::unit).unwrap_or_default();
    if own.is_some_and(|own| own.lease_duration().is_some()) {
        return words::count(word.trim()).map(Asked::Places);
    }
    let (rate, burst) = match word.split_once(" burst ") {
        Some((rate, burst)) => (rate, Some(words::amount(burst.trim(), unit)?)),
        None => (word, None),
    };
    Ok(Asked::Rate(words::rate(rate.trim(), unit)?, burst))
}

/// How a meter would count this, if it can.
fn fit(meter: &Meter, asked: Asked) -> Option<Formula> {
    let own = meter.quotas.first()?;
    let formula = |shape: Shape| Formula::of(shape, own.unit());
    let (rate, burst) = match (asked, own.quota()) {
        (Asked::Places(_), Quota::Concurrency(places)) => {
            return Some(formula(Shape::Concurrency(places.lease_duration())));
        }
        (Asked::Places(_), _) => return None,
        (Asked::Rate(rate, burst), _) => (rate, burst),
    };
    let span = match rate.period {
        Period::Span(span) => span,
        Period::Month => MONTH,
        Period::Year => Nanos::YEAR,
    };
    let in_bucket = |shape: Shape, bucket: &TokenBucket| {
        let plain = Formula {
            burst: burst.map(Burst::Units),
            overdraft: overdraft(bucket),
            ..formula(shape)
        };
        plain.in_blocks_for(rate.units)
    };
    let in_window = |shape: Shape, overdraft: u64| Formula {
        overdraft,
        ..formula(shape)
    };
    let found = match own.quota() {
        Quota::TokenBucket(bucket) => in_bucket(Shape::TokenBucket(span), bucket),
        Quota::LeakyBucket(bucket) if bucket.is_queue() => {
            in_bucket(Shape::LeakyQueue(span), bucket.as_token_bucket())
        }
        Quota::LeakyBucket(bucket) => in_bucket(Shape::LeakyBucket(span), bucket.as_token_bucket()),
        Quota::FixedWindow(window) if turns_with(window.window(), rate.period) => {
            let overdraft = window.saturation().saturating_sub(window.limit());
            in_window(Shape::FixedWindow(window.window()), overdraft)
        }
        Quota::SlidingCounter(window) if window.window() == span => {
            let overdraft = u64::from(window.saturation()).saturating_sub(window.limit());
            let most = rate.units.saturating_add(overdraft);
            Formula {
                ceiling: most.max(window.ceiling().into()),
                ..in_window(Shape::SlidingWindow(span), overdraft)
            }
        }
        Quota::SlidingLog(log) if log.window() == span => {
            let blocks = log.saturation_blocks().saturating_sub(log.limit_blocks());
            Formula {
                block: log.block(),
                ..in_window(Shape::SlidingLog(span), blocks.saturating_mul(log.block()))
            }
        }
        _ => return None,
    };
    (burst.is_none() || own.bucket().is_some()).then_some(found)
}

/// How far below zero a bucket goes, in units.
fn overdraft(bucket: &TokenBucket) -> u64 {
    let debt = bucket
        .saturation()
        .saturating_sub(bucket.refill_time())
        .as_nanos();
    let blocks = debt.checked_div(bucket.interval().as_nanos()).unwrap_or(0);
    blocks.saturating_mul(bucket.block())
}

fn turns_with(window: Window, period: Period) -> bool {
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

/// Why no meter counts like this.
fn misfit(meters: &[Meter], word: &str) -> String {
    let own = meters.iter().find(|meter| meter.role == Role::Main);
    let own = own.and_then(|meter| meter.quotas.first());
    let what = match own {
        None => "it limits nobody",
        Some(own) if own.bucket().is_some() => "it has fewer windows",
        Some(_) => {
            "it counts in windows of another length, or has fewer of them, and they have no burst"
        }
    };
    format!("`{word}`: {what}")
}
