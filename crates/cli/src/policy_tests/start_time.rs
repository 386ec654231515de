//! Parses the start time of a test, for example `2026-03-31T23:59:00Z`.
//!
//! Must not know: the current time.

use tollgate_core::{Nanos, Timestamp};
use tollgate_policy::grammar::{GrammarError, quote};

/// The default start: the beginning of a year, and so of a minute, hour, day and month.
pub(super) const DEFAULT_START: Timestamp = Timestamp::from_secs(1_767_225_600);

/// The latest time of a step after the start. Later steps could overflow the clock.
pub(super) const MAX_DURATION: Nanos = Nanos::from_secs(200 * 365 * 86_400);

/// Parses a date with an optional time of day in UTC.
pub(super) fn parse_start(text: &str) -> Result<Timestamp, GrammarError> {
    let wrong = || {
        GrammarError::with_help(
            format!("{} is not a point in time", quote(text)),
            "write it as `2026-03-31` or `2026-03-31T23:59:00Z`, in UTC",
        )
    };
    parse_unix_seconds(text.trim())
        .map(Timestamp::from_secs)
        .ok_or_else(wrong)
}

fn parse_unix_seconds(text: &str) -> Option<u64> {
    let (date, time) = match text.split_once(['T', ' ']) {
        Some((date, time)) => (date, time.strip_suffix('Z').unwrap_or(time)),
        None => (text, "00:00:00"),
    };
    let [year, month, day] = parse_three_numbers(date, '-')?;
    let [hour, minute, second] = parse_three_numbers(time, ':')?;
    let in_range = (1970..=2200).contains(&year)
        && (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    let before = (1970..year).map(|year| if is_leap(year) { 366 } else { 365 });
    let months = (1..month).map(|month| days_in(year, month));
    let days = before.chain(months).sum::<u64>() + day.checked_sub(1)?;
    in_range.then_some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

/// Parses three numbers that consist only of digits.
fn parse_three_numbers(text: &str, separator: char) -> Option<[u64; 3]> {
    let parsed = |part: &str| {
        let is_short = (1..=4).contains(&part.len());
        let digits = part.bytes().all(|byte| byte.is_ascii_digit());
        (is_short && digits).then(|| part.parse().ok()).flatten()
    };
    let mut parts = text.split(separator).map(parsed);
    let three = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(three)
}

const fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

const fn days_in(year: u64, month: u64) -> u64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap(year) => 29,
        2 => 28,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_a_date_with_an_optional_time() {
        for (text, seconds) in [
            ("1970-01-01", 0),
            ("2026-01-01", 1_767_225_600),
            ("2026-01-01T00:00:00Z", 1_767_225_600),
            ("2024-02-29 12:00:01", 1_709_208_001),
            ("2000-03-01T00:00:00Z", 951_868_800),
        ] {
            assert_eq!(
                parse_start(text),
                Ok(Timestamp::from_secs(seconds)),
                "{text}"
            );
        }
        assert_eq!(parse_start("2026-01-01"), Ok(DEFAULT_START));
        for text in [
            "",
            "now",
            "2026",
            "2026-02-29",
            "2026-13-01",
            "2026-00-01",
            "2026-01-00",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00+02:00",
            "2026-01-01T00:00",
            "1969-12-31",
            "99999-01-01",
        ] {
            assert!(parse_start(text).is_err(), "{text}");
        }
    }
}
