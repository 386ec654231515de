//! Reads waits and times in the formats of the field: delays, seconds and milliseconds since 1970, Go durations, RFC 3339
//! and HTTP dates.
//!
//! Must not know: which field a value comes from, the current time.

use std::time::UNIX_EPOCH;

use tollgate_core::{Nanos, Timestamp};

/// Numbers from here on are seconds since 1970: as a delay they would be 31 years.
const FIRST_EPOCH_SECOND: u64 = 1_000_000_000;
/// Numbers from here on are milliseconds since 1970: as seconds they would be in the year 5138.
const FIRST_EPOCH_MILLI: u64 = 100_000_000_000;

/// When a quota resets or a retry may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instant {
    /// After a delay from when the response was sent.
    After(Nanos),
    /// At a time of the server's clock.
    At(Timestamp),
}

impl Instant {
    /// The wait for somebody whose clock shows `now`. A time that has passed is no wait.
    pub(super) fn wait_from(self, now: Timestamp) -> Nanos {
        match self {
            Self::After(wait) => wait,
            Self::At(time) => time.since(now),
        }
    }
}

/// The value of `Retry-After`: seconds, which some servers send with a fraction, or an HTTP date.
pub(super) fn retry_after(text: &str) -> Option<Instant> {
    if let Some(number) = Decimal::parse(text) {
        return Some(Instant::After(number.as_seconds()));
    }
    http_date(text).map(Instant::At)
}

/// The value of a reset field, in any of the formats.
pub(super) fn reset(text: &str) -> Option<Instant> {
    if let Some(number) = Decimal::parse(text) {
        return Some(match number.whole {
            FIRST_EPOCH_MILLI.. => at(number.scaled(1_000_000)),
            FIRST_EPOCH_SECOND.. => at(number.as_seconds()),
            _ => Instant::After(number.as_seconds()),
        });
    }
    go_duration(text)
        .map(Instant::After)
        .or_else(|| rfc_3339(text).or_else(|| http_date(text)).map(Instant::At))
}

/// Milliseconds, as `retry-after-ms` has them.
pub(super) fn millis(text: &str) -> Option<Nanos> {
    Some(Decimal::parse(text)?.scaled(1_000_000))
}

const fn at(since_1970: Nanos) -> Instant {
    Instant::At(Timestamp::from_nanos(since_1970.as_nanos()))
}

/// An HTTP date in any of its three formats. Dates after 2554 are the last that a timestamp holds: a malformed one would be ignored.
pub(super) fn http_date(text: &str) -> Option<Timestamp> {
    let date = httpdate::parse_http_date(text).ok()?;
    let since = date.duration_since(UNIX_EPOCH).ok()?;
    let nanos = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
    Some(Timestamp::from_nanos(nanos))
}

/// A number that is not negative, with at most nine digits of its fraction.
struct Decimal {
    whole: u64,
    billionths: u64,
}

impl Decimal {
    fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = match text.split_once('.') {
            Some((_, "")) => return None,
            Some(parts) => parts,
            None => (text, ""),
        };
        let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !are_digits(whole) || !are_digits(fraction) {
            return None;
        }
        let mut billionths = 0;
        let mut weight = 100_000_000;
        for digit in fraction.bytes().take(9) {
            billionths += u64::from(digit - b'0') * weight;
            weight /= 10;
        }
        Some(Self {
            // A wait too long for a number stays long: a malformed one would be ignored, and the client would come too early.
            whole: whole.parse().unwrap_or(u64::MAX),
            billionths,
        })
    }

    fn as_seconds(&self) -> Nanos {
        self.scaled(1_000_000_000)
    }

    /// The span of this many units of `nanos` each, rounded up.
    fn scaled(&self, nanos: u64) -> Nanos {
        let fraction = (u128::from(self.billionths) * u128::from(nanos)).div_ceil(1_000_000_000);
        let total = u128::from(self.whole) * u128::from(nanos) + fraction;
        Nanos::from_nanos(u64::try_from(total).unwrap_or(u64::MAX))
    }
}

/// A duration as Go prints it: `6m0s`, `1.5s`, `12ms`.
fn go_duration(text: &str) -> Option<Nanos> {
    let mut rest = text;
    let mut total = Nanos::ZERO;
    // Go prints at most h, m and s; nobody needs more parts.
    for _ in 0..8 {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, unit_and_rest) = rest.split_at(end);
        let end = unit_and_rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(unit_and_rest.len());
        let (unit, after) = unit_and_rest.split_at(end);
        let nanos = match unit {
            "h" => 3_600_000_000_000,
            "m" => 60_000_000_000,
            "s" => 1_000_000_000,
            "ms" => 1_000_000,
            "us" | "µs" | "μs" => 1_000,
            "ns" => 1,
            _ => return None,
        };
        total = total.saturating_add(Decimal::parse(number)?.scaled(nanos));
        rest = after;
        if rest.is_empty() {
            return Some(total);
        }
    }
    None
}

/// A time as in RFC 3339: `2026-11-18T01:02:03.5Z`, or with an offset from UTC.
fn rfc_3339(text: &str) -> Option<Timestamp> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let (clock, offset) = match time.find(['Z', 'z', '+', '-']) {
        Some(at) => time.split_at(at),
        None => return None,
    };
    let mut date = date.splitn(3, '-').map(two_or_four_digits);
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (clock, fraction) = match clock.split_once('.') {
        Some((clock, fraction)) => (clock, Decimal::parse(&format!("0.{fraction}"))?.billionths),
        None => (clock, 0),
    };
    let mut clock = clock.splitn(3, ':').map(two_or_four_digits);
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    let is_date = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day);
    // A leap second is the sixtieth.
    if !is_date || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let local = days_since_1970(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second;
    let seconds = local.checked_sub(offset_seconds(offset)?)?;
    let nanos = u64::try_from(seconds).ok()?.saturating_mul(1_000_000_000);
    Some(Timestamp::from_nanos(nanos.saturating_add(fraction)))
}

fn offset_seconds(offset: &str) -> Option<i64> {
    let Some(digits) = offset.strip_prefix(['+', '-']) else {
        return matches!(offset, "Z" | "z").then_some(0);
    };
    let (hours, minutes) = digits.split_once(':')?;
    let (hours, minutes) = (two_or_four_digits(hours)?, two_or_four_digits(minutes)?);
    if hours > 23 || minutes > 59 {
        return None;
    }
    let seconds = hours * 3_600 + minutes * 60;
    Some(if offset.starts_with('-') {
        -seconds
    } else {
        seconds
    })
}

fn two_or_four_digits(text: &str) -> Option<i64> {
    let is_number = matches!(text.len(), 2 | 4) && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

const fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

const fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The days from 1970-01-01 in the Gregorian calendar, counted in years that begin in March, so that leap days come last.
const fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let leap_days = year / 4 - year / 100 + year / 400;
    year * 365 + leap_days + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn after(millis: u64) -> Option<Instant> {
        Some(Instant::After(Nanos::from_millis(millis)))
    }

    fn at_millis(millis: u64) -> Option<Instant> {
        Some(at(Nanos::from_millis(millis)))
    }

    #[test]
    fn every_reset_format_is_recognised() {
        let cases = [
            ("0", after(0)),
            ("58", after(58_000)),
            ("1.470", after(1_470)),
            ("999999999", after(999_999_999_000)),
            ("1700000058", at_millis(1_700_000_058_000)),
            ("1700000057.251", at_millis(1_700_000_057_251)),
            ("1700000057251", at_millis(1_700_000_057_251)),
            ("6m0s", after(360_000)),
            ("1h2m3.5s", after(3_723_500)),
            ("12ms", after(12)),
            ("0s", after(0)),
            ("2023-11-14T22:13:20Z", at_millis(1_700_000_000_000)),
            ("2023-11-14T23:13:20.25+01:00", at_millis(1_700_000_000_250)),
            ("2024-02-29T00:00:00Z", at_millis(1_709_164_800_000)),
            (
                "Tue, 14 Nov 2023 22:13:20 GMT",
                at_millis(1_700_000_000_000),
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(reset(text), expected, "{text}");
        }
    }

    #[test]
    fn other_texts_are_not_times() {
        let wrong = [
            "",
            "-1",
            "1.",
            ".5",
            "1e3",
            "+5",
            "NaN",
            "6m0",
            "6x",
            "s",
            "5 s",
            "2023-02-29T00:00:00Z",
            "2023-13-01T00:00:00Z",
            "2023-11-14T22:13:20",
            "2023-11-14",
            "1s1s1s1s1s1s1s1s1s",
        ];
        for text in wrong {
            assert_eq!(reset(text), None, "{text}");
            assert_eq!(retry_after(text), None, "{text}");
        }
        let longest = Some(Instant::After(Nanos::from_nanos(u64::MAX)));
        assert_eq!(
            retry_after("99999999999999999999999"),
            longest,
            "long, not ignored"
        );
        assert_eq!(retry_after("2.0"), after(2_000), "Shopify sends a fraction");
        assert_eq!(retry_after("6m0s"), None, "not a format of Retry-After");
    }

    /// `Fri, 31 Dec 9999` is how people write "never". It was ignored, and the client came back within a second.
    #[test]
    fn a_date_that_no_timestamp_holds_is_the_last_one() {
        let last = Some(Instant::At(Timestamp::from_nanos(u64::MAX)));
        for date in [
            "Fri, 31 Dec 9999 23:59:59 GMT",
            "Wed, 01 Jan 2555 00:00:00 GMT",
        ] {
            assert_eq!(retry_after(date), last, "{date}");
            assert_eq!(reset(date), last, "{date}");
        }
        assert_eq!(reset("9999-12-31T23:59:59Z"), last);
    }

    /// The last whole second that a timestamp holds, in the year 2554.
    const LAST_SECOND: u64 = u64::MAX / 1_000_000_000;

    proptest! {
        #[test]
        fn dates_agree_with_another_implementation(seconds in 0..LAST_SECOND) {
            let date = UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            let text = httpdate::fmt_http_date(date);
            // `Tue, 14 Nov 2023 22:13:20 GMT` as RFC 3339.
            let month = "JanFebMarAprMayJunJulAugSepOctNovDec".find(&text[8..11]).unwrap() / 3 + 1;
            let same = format!("{}-{month:02}-{}T{}Z", &text[12..16], &text[5..7], &text[17..25]);
            prop_assert_eq!(rfc_3339(&same), Some(Timestamp::from_secs(seconds)));
            prop_assert_eq!(http_date(&text), Some(Timestamp::from_secs(seconds)));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}", clock in "[0-9.:TZhms+-]{0,30}") {
            for text in [text, clock] {
                let _unused = (reset(&text), retry_after(&text), millis(&text));
            }
        }
    }
}
