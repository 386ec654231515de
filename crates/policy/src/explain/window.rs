//! One window of a quota in plain words, exact about what is in force.
//!
//! Must not know: limits, fleets, requests.

use serde::Serialize;
use tollgate_core::limit::{Limit, Quota};
use tollgate_core::{Calendar, LeakyBucket, Nanos, Unit, UtcOffset, Window};

use super::bound::most_in_any;
use crate::compile::quota::Granting;
use crate::model::Period;
use crate::rules::Shape;
use crate::words_for::{number, span};

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
    let most = period.and_then(|period| most_in_any(limit, period, dearest));
    let (every, block, at_once) = match limit.quota() {
        Quota::TokenBucket(bucket) => (Some(bucket.interval()), bucket.block(), bucket.limit()),
        Quota::LeakyBucket(queue) if queue.is_queue() => (
            Some(queue.interval()),
            1,
            dearest.clamp(1, queue.limit().max(1)),
        ),
        Quota::LeakyBucket(meter) => (Some(meter.interval()), 1, meter.limit()),
        Quota::SlidingLog(log) => (None, log.block(), log.limit()),
        _ => (None, 1, granting.units),
    };
    let (memory_bytes, redis_bytes) = bytes(granting);
    WindowExplained {
        algorithm: algorithm(granting.formula.shape),
        unit: granting.formula.unit.name(),
        at_once: if granting.units == 0 { 0 } else { at_once },
        every_ns: every.filter(|_| granting.units > 0).map(Nanos::as_nanos),
        block,
        units: granting.units,
        period: named_period(granting),
        period_ns: period.map(Nanos::as_nanos),
        most_in_any_period: most,
        memory_bytes,
        redis_bytes,
        words: words(granting, limit, most),
    }
}

const fn algorithm(shape: Shape) -> &'static str {
    match shape {
        Shape::TokenBucket(_) => "token_bucket",
        Shape::LeakyBucket(_) => "leaky_bucket",
        Shape::LeakyQueue(_) => "leaky_queue",
        Shape::FixedWindow(_) => "fixed_window",
        Shape::SlidingWindow(_) => "sliding_window",
        Shape::SlidingLog(_) => "sliding_log",
        Shape::Concurrency(_) => "concurrency",
    }
}

/// What a full key takes: a slot of 32 bytes for one word of state, of 43 for two; a collection has a shelf of 160 bytes
/// and its entries. In Redis a key with its time to live takes about 133 bytes.
const fn bytes(granting: &Granting) -> (u64, u64) {
    let entries = granting.units
        / if granting.formula.block == 0 {
            1
        } else {
            granting.formula.block
        };
    match granting.formula.shape {
        Shape::TokenBucket(_) | Shape::LeakyBucket(_) | Shape::LeakyQueue(_) => (32, 133),
        Shape::FixedWindow(_) | Shape::SlidingWindow(_) => (43, 141),
        Shape::SlidingLog(_) => (
            entries.saturating_mul(16).saturating_add(203),
            entries.saturating_mul(13).saturating_add(133),
        ),
        Shape::Concurrency(_) => (
            entries.saturating_mul(32).saturating_add(203),
            entries.saturating_mul(29).saturating_add(133),
        ),
    }
}

fn words(granting: &Granting, limit: &Limit, most: Option<u64>) -> String {
    let unit = granting.formula.unit;
    if granting.units == 0 {
        return "denies everything".to_owned();
    }
    let never = match (most, granting.formula.span()) {
        (Some(most), Some(period)) => format!(
            "; never more than {} in any {}",
            amount(most, unit),
            period_name(period)
        ),
        _ => String::new(),
    };
    let text = match (limit.quota(), granting.formula.shape) {
        (Quota::TokenBucket(bucket), _) => {
            let then = then_every(bucket.block(), bucket.interval(), unit);
            format!(
                "at most {} at once, then {then}{never}",
                amount(bucket.limit(), unit)
            )
        }
        (Quota::LeakyBucket(queue), Shape::LeakyQueue(_)) => {
            queue_words(queue, unit, granting, most)
        }
        (Quota::LeakyBucket(meter), _) => {
            let then = then_every(1, meter.interval(), unit);
            format!(
                "at most {} at once, then {then}{never}",
                amount(meter.limit(), unit)
            )
        }
        (Quota::FixedWindow(fixed), _) => {
            let (each, turns) = turning(fixed.window());
            let many = amount(fixed.limit(), unit);
            let across = amount(fixed.limit().saturating_mul(2), unit);
            format!(
                "at most {many} in each {each}, and up to {across} close together where one {each} turns into the next; {turns}"
            )
        }
        (Quota::SlidingCounter(counter), _) => format!(
            "about {} in any {}, estimated from two counters{never}, whatever the timing",
            amount(counter.limit(), unit),
            period_name(counter.window())
        ),
        (Quota::SlidingLog(log), _) => {
            let exactly = if log.block() > 1 {
                format!(", counted in blocks of {}", amount(log.block(), unit))
            } else {
                String::new()
            };
            format!(
                "never more than {} in any {}, exactly{exactly}",
                amount(log.limit(), unit),
                period_name(log.window())
            )
        }
        (Quota::Concurrency(places), _) => format!(
            "at most {} at the same time, each held for at most {} unless it is renewed",
            amount(places.limit(), unit),
            span(places.lease())
        ),
        _ => never,
    };
    text + month_words(granting)
}

/// A queue delays, so what counts is what it lets through.
fn queue_words(queue: &LeakyBucket, unit: Unit, granting: &Granting, most: Option<u64>) -> String {
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
    let never = match (most, granting.formula.span()) {
        (Some(most), Some(period)) => format!(
            "; never lets more than {} through in any {}",
            amount(most, unit),
            period_name(period)
        ),
        _ => String::new(),
    };
    format!("{each}, {waits}{never}")
}

/// A month or a year that no calendar counts is said to be what it is.
const fn month_words(granting: &Granting) -> &'static str {
    match (granting.period, granting.formula.shape) {
        (_, Shape::FixedWindow(_)) => "",
        (Some(Period::Month), _) => " (a month counts as 30 days)",
        (Some(Period::Year), _) => " (a year counts as 365 days)",
        _ => "",
    }
}

fn then_every(block: u64, interval: Nanos, unit: Unit) -> String {
    let one = match (block, unit) {
        (1, Unit::Bytes) => "one byte".to_owned(),
        (1, Unit::Tokens) => "one token".to_owned(),
        (1, _) => "one".to_owned(),
        (many, _) => amount(many, unit),
    };
    format!("{one} every {}", span(interval))
}

/// So many of a unit; requests go without saying.
pub(super) fn amount(n: u64, unit: Unit) -> String {
    match unit {
        Unit::Bytes if n == 1 => "1 byte".to_owned(),
        Unit::Tokens if n == 1 => "1 token".to_owned(),
        Unit::Bytes | Unit::Tokens => format!("{} {}", number(n), unit.name()),
        _ => number(n),
    }
}

/// What the period of a quota is called after `per`.
fn named_period(granting: &Granting) -> Option<String> {
    match granting.formula.shape {
        Shape::FixedWindow(window) => Some(turning(window).0),
        _ => granting.formula.span().map(period_name),
    }
}

/// A period after `in any` or `per`.
pub(super) fn period_name(period: Nanos) -> String {
    match period {
        Nanos::SECOND => "second".to_owned(),
        Nanos::MINUTE => "minute".to_owned(),
        Nanos::HOUR => "hour".to_owned(),
        Nanos::DAY => "day".to_owned(),
        other if other == Nanos::from_secs(7 * 86_400) => "week".to_owned(),
        other => span(other),
    }
}

/// What one window is called and when it turns into the next.
fn turning(window: Window) -> (String, String) {
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
                span(length)
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
