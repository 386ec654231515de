//! Words into numbers: spans, instants, rates, offsets and expected outcomes, as vector files write them.
//!
//! Whole numbers all the way: a decimal is multiplied out to nanoseconds exactly or refused, never rounded.
//!
//! Must not know: files, YAML, algorithms.

use tollgate_core::limit::OpError;
use tollgate_core::{Nanos, Outcome, Rate, UtcOffset};

/// Units of time, longest name first where one name begins another.
const UNITS: &[(&str, u64)] = &[
    ("year", 31_536_000_000_000_000),
    ("day", 86_400_000_000_000),
    ("min", 60_000_000_000),
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
    ("y", 31_536_000_000_000_000),
];

/// When a step happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepTime {
    /// At this many nanoseconds since 1970.
    At(u64),
    /// So long after the step before.
    Later(Nanos),
    /// So long before the step before: the clock goes back.
    Earlier(Nanos),
}

/// What a step must answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpectedReply {
    /// A decision.
    Outcome(Outcome),
    /// No decision at all.
    Refused(OpError),
    /// A reservation that changes nothing, and why.
    Nothing(LedgerStep),
}

/// Why a reservation is not made, or its correction not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerStep {
    /// There is no room to remember another one.
    Full,
    /// It was settled or cancelled before.
    AlreadyClosed,
    /// It has expired and stays charged.
    Expired,
    /// No such reservation is known.
    Unknown,
    /// The limit cannot be charged like this.
    Refused(OpError),
}

impl From<OpError> for LedgerStep {
    fn from(refused: OpError) -> Self {
        Self::Refused(refused)
    }
}

/// A span of time: `0`, `100ms`, `1.5s`, `1m30s`, `333_333_334ns`.
pub(super) fn span(text: &str) -> Result<Nanos, String> {
    let bad = |why: &str| format!("`{text}` is not a span of time: {why}");
    if text == "0" {
        return Ok(Nanos::ZERO);
    }
    let mut rest = text;
    let mut total = 0_u64;
    while !rest.is_empty() {
        let split = rest
            .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
            .ok_or_else(|| bad("a unit is missing, write for example 100ms"))?;
        let (number, after) = rest.split_at(split);
        let (name, unit) = UNITS
            .iter()
            .find(|(name, _)| after.starts_with(name))
            .ok_or_else(|| bad("the units are ns, us, ms, s, m, h, d, y"))?;
        let part = multiplied(number, *unit)
            .ok_or_else(|| bad("not a whole number of nanoseconds below 2^64"))?;
        total = total
            .checked_add(part)
            .ok_or_else(|| bad("longer than 2^64 ns"))?;
        rest = after.strip_prefix(name).unwrap_or_default();
    }
    if text.is_empty() {
        return Err(bad("it is empty"));
    }
    Ok(Nanos::from_nanos(total))
}

/// A decimal number times a unit, if that is exact.
fn multiplied(number: &str, unit: u64) -> Option<u64> {
    let number = number.replace('_', "");
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    let whole: u64 = whole.parse().ok()?;
    let mut total = whole.checked_mul(unit)?;
    if !fraction.is_empty() {
        let parts: u64 = fraction.parse().ok()?;
        let scale = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let scaled = parts.checked_mul(unit)?;
        if !scaled.is_multiple_of(scale) {
            return None;
        }
        total = total.checked_add(scaled / scale)?;
    }
    Some(total)
}

/// An instant: `100s` since 1970, `2024-02-29T23:59:59.5Z`, or `+100ms` and `-5s` from the step before.
pub(super) fn when(text: &str) -> Result<StepTime, String> {
    if let Some(later) = text.strip_prefix('+') {
        return Ok(StepTime::Later(span(later)?));
    }
    if let Some(earlier) = text.strip_prefix('-') {
        return Ok(StepTime::Earlier(span(earlier)?));
    }
    if text.contains('T') {
        let instant = date(text);
        return instant.map(StepTime::At).ok_or_else(|| {
            format!("`{text}` is not an instant after 1970 like 2024-02-29T23:59:59.000000001Z")
        });
    }
    Ok(StepTime::At(span(text)?.as_nanos()))
}

/// Nanoseconds from 1970 to a date and time in UTC, by counting years and months one by one: slow, and independent of
/// the closed formula that the calendar windows use.
fn date(text: &str) -> Option<u64> {
    let (day, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut numbers = day.splitn(3, '-').map(str::parse::<u64>);
    let (year, month, day) = (
        numbers.next()?.ok()?,
        numbers.next()?.ok()?,
        numbers.next()?.ok()?,
    );
    let is_leap = |y: u64| (y.is_multiple_of(4) && !y.is_multiple_of(100)) || y.is_multiple_of(400);
    let length = |y: u64, m: u64| match m {
        2 => 28 + u64::from(is_leap(y)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let is_real = (1970..=2262).contains(&year)
        && (1..=12).contains(&month)
        && (1..=length(year, month)).contains(&day);
    if !is_real {
        return None;
    }
    let years: u64 = (1970..year).map(|y| 365 + u64::from(is_leap(y))).sum();
    let months: u64 = (1..month).map(|m| length(year, m)).sum();
    let (hours, rest) = time.split_once(':')?;
    let (minutes, seconds) = rest.split_once(':')?;
    let (hours, minutes): (u64, u64) = (hours.parse().ok()?, minutes.parse().ok()?);
    let seconds = multiplied(seconds, 1_000_000_000)?;
    if hours > 23 || minutes > 59 || seconds >= 60_000_000_000 {
        return None;
    }
    let minutes = ((years + months + day - 1) * 24 + hours) * 60 + minutes;
    minutes.checked_mul(60_000_000_000)?.checked_add(seconds)
}

/// A rate: `10/s`, `900/min`, `5/day`, `1/10s`.
pub(super) fn rate(text: &str) -> Result<Rate, String> {
    let bad = || format!("`{text}` is not a rate like 10/s, 900/min or 3/10s");
    let (units, period) = text.split_once('/').ok_or_else(bad)?;
    let units = units.replace('_', "").parse().ok().ok_or_else(bad)?;
    let period = if period.starts_with(|c: char| c.is_ascii_digit()) {
        span(period)?
    } else {
        span(&format!("1{period}"))?
    };
    Ok(Rate::new(units, period))
}

/// An offset from UTC: `+05:30`, `-08:00`.
pub(super) fn offset(text: &str) -> Result<UtcOffset, String> {
    let bad = || format!("`{text}` is not an offset from UTC like +05:30");
    let (east, digits) = match text.split_at_checked(1) {
        Some(("+", digits)) => (1, digits),
        Some(("-", digits)) => (-1, digits),
        _ => return Err(bad()),
    };
    let (hours, minutes) = digits.split_once(':').ok_or_else(bad)?;
    let parse = |n: &str| n.parse::<u8>().ok().ok_or_else(bad);
    let minutes = i16::from(parse(hours)?) * 60 + i16::from(parse(minutes)?);
    UtcOffset::from_minutes(east * minutes).map_err(|error| error.to_string())
}

/// What a step must answer: `allow`, `wait 100ms`, `deny 1s`, `never`, `refused not_held`, …
pub(super) fn expected(text: &str) -> Result<ExpectedReply, String> {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    let positive = |text| match span(text)? {
        Nanos::ZERO => Err(format!("`{word} 0` is never answered: it would be `allow`")),
        time => Ok(time),
    };
    Ok(match (word, rest) {
        ("allow", "") => ExpectedReply::Outcome(Outcome::Allow),
        ("never", "") => ExpectedReply::Outcome(Outcome::Never),
        ("wait", time) => ExpectedReply::Outcome(Outcome::Wait(positive(time)?)),
        ("deny", time) => ExpectedReply::Outcome(Outcome::Deny {
            retry_after: positive(time)?,
        }),
        ("refused", "unsupported") => ExpectedReply::Refused(OpError::Unsupported),
        ("refused", "not_held") => ExpectedReply::Refused(OpError::NotHeld),
        ("full", "") => ExpectedReply::Nothing(LedgerStep::Full),
        ("already_closed", "") => ExpectedReply::Nothing(LedgerStep::AlreadyClosed),
        ("expired", "") => ExpectedReply::Nothing(LedgerStep::Expired),
        ("unknown", "") => ExpectedReply::Nothing(LedgerStep::Unknown),
        _ => {
            return Err(format!(
                "`{text}` is not an answer: allow, wait <span>, deny <span>, never, refused unsupported, \
                 refused not_held, full, already_closed, expired, unknown"
            ));
        }
    })
}

/// A span as vector files write it, in the largest unit that keeps it whole.
pub(super) fn written(span: Nanos) -> String {
    let n = span.as_nanos();
    for (name, unit) in [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)] {
        if n > 0 && n.is_multiple_of(unit) {
            return format!("{}{name}", n / unit);
        }
    }
    format!("{n}ns")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_exact_or_refused() {
        let ns = |text| span(text).map(Nanos::as_nanos);
        assert_eq!(ns("0"), Ok(0));
        assert_eq!(ns("1.000000001s"), Ok(1_000_000_001));
        assert_eq!(ns("1m30s"), Ok(90_000_000_000));
        assert_eq!(ns("333_333_334ns"), Ok(333_333_334));
        assert_eq!(ns("2min"), Ok(120_000_000_000));
        for wrong in [
            "",
            "5",
            "0.5ns",
            "1.0000000001s",
            "1 s",
            "1w",
            "600y",
            "-1s",
            "1..5s",
        ] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn instants_are_dates_or_spans_since_1970_or_steps() {
        assert_eq!(when("-5s"), Ok(StepTime::Earlier(Nanos::from_secs(5))));
        assert_eq!(when("+1ns"), Ok(StepTime::Later(Nanos::from_nanos(1))));
        assert_eq!(
            when("1970-01-02T00:00:00.5Z"),
            Ok(StepTime::At(86_400_500_000_000))
        );
        assert_eq!(
            when("2024-02-29T00:00:00Z"),
            Ok(StepTime::At(1_709_164_800_000_000_000))
        );
        for wrong in [
            "2023-02-29T00:00:00Z",
            "2024-13-01T00:00:00Z",
            "2024-01-01T24:00:00Z",
        ] {
            assert!(when(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_and_offsets_read_as_people_write_them() {
        assert_eq!(rate("900/min"), Ok(Rate::per_minute(900)));
        assert_eq!(rate("3/10s"), Ok(Rate::new(3, Nanos::from_secs(10))));
        assert_eq!(rate("1/year"), Ok(Rate::per_year(1)));
        assert!(rate("1.5/s").is_err());
        assert_eq!(offset("-08:30").map(UtcOffset::minutes), Ok(-510));
        assert!(offset("+15:00").is_err());
    }

    #[test]
    fn a_wait_of_nothing_is_not_an_answer() {
        assert!(expected("deny 0").is_err());
        assert!(expected("deny").is_err());
        assert!(expected("allow 1s").is_err());
    }
}
