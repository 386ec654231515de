//! The end of a calendar day, week, month or year, in whole nanoseconds, at any fixed offset from UTC.
//!
//! The proleptic Gregorian calendar by integer arithmetic alone: 400 years are 146,097 days, and a year that begins
//! in March keeps its leap day last, so that the lengths of months follow one linear rule.

use crate::error::{InvalidQuota, InvalidReason};
use crate::time::{Nanos, Timestamp};

const DAYS_PER_ERA: i64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const DAYS_TO_EPOCH: i64 = 719_468;

/// A recurring period of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Calendar {
    /// From midnight to midnight.
    Day,
    /// From Monday's midnight to the next (ISO 8601).
    Week,
    /// From the first of a month to the first of the next.
    Month,
    /// From the first of January to the next.
    Year,
}

/// A fixed distance from UTC in whole minutes, east positive, at most 14 hours either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct UtcOffset {
    minutes: i16,
}

impl UtcOffset {
    /// No offset.
    pub const UTC: Self = Self { minutes: 0 };
    const MAX_MINUTES: u16 = 14 * 60;

    /// An offset of `minutes` minutes east of UTC.
    ///
    /// # Errors
    /// More than 14 hours either way, which no place on earth uses.
    pub const fn from_minutes(minutes: i16) -> Result<Self, InvalidQuota> {
        if minutes.unsigned_abs() > Self::MAX_MINUTES {
            return Err(InvalidQuota {
                field: "utc_offset",
                value: widen(minutes.unsigned_abs()),
                reason: InvalidReason::TooLarge,
                nearest: Some(widen(Self::MAX_MINUTES)),
            });
        }
        Ok(Self { minutes })
    }

    /// Minutes east of UTC.
    #[must_use]
    pub const fn minutes(self) -> i16 {
        self.minutes
    }
}

/// `u64::from` is not usable in a `const fn` yet.
#[allow(
    clippy::as_conversions,
    reason = "u16 always fits u64, and `From` is not const"
)]
const fn widen(n: u16) -> u64 {
    n as u64
}

impl Calendar {
    /// The first instant after `now` at which a new period begins, in nanoseconds since 1970. It may lie beyond the last timestamp, so
    /// that even the last window has an end ahead of it.
    pub(super) fn end(self, now: Timestamp, offset: UtcOffset) -> u64 {
        let day_length = i128::from(Nanos::DAY.as_nanos());
        let shift = i128::from(offset.minutes).saturating_mul(60_000_000_000);
        let local = i128::from(now.as_nanos()).saturating_add(shift);
        let today = i64::try_from(local.div_euclid(day_length)).unwrap_or(i64::MAX);
        let next = match self {
            Self::Day => today.saturating_add(1),
            // 1970-01-01 was a Thursday: three days after a Monday.
            Self::Week => {
                let since_monday = today.saturating_add(3).rem_euclid(7);
                today.saturating_sub(since_monday).saturating_add(7)
            }
            Self::Month => first_of_next_month(today),
            Self::Year => first_of_next_year(today),
        };
        let end = i128::from(next)
            .saturating_mul(day_length)
            .saturating_sub(shift);
        u64::try_from(end).unwrap_or(u64::MAX)
    }
}

/// The day number (since 1970-01-01) of the first day of the month after the one that `day` is in.
fn first_of_next_month(day: i64) -> i64 {
    let (era, year_of_era, day_of_year) = in_era(day);
    let month = day_of_year.saturating_mul(5).saturating_add(2) / 153;
    let next = month.saturating_add(1);
    // February is the last month of a year that begins in March; its successor begins the next year.
    let next_day_of_era = if next == 12 {
        days_before_year(year_of_era.saturating_add(1))
    } else {
        days_before_year(year_of_era).saturating_add(days_before_month(next))
    };
    since_1970(era, next_day_of_era)
}

/// The day number (since 1970-01-01) of the first of January after `day`.
fn first_of_next_year(day: i64) -> i64 {
    let (era, year_of_era, day_of_year) = in_era(day);
    let january = days_before_month(10);
    // January and February end a year that begins in March: the next January ends the year after.
    let year = year_of_era.saturating_add(i64::from(day_of_year >= january));
    since_1970(era, days_before_year(year).saturating_add(january))
}

/// The era of 400 years that a day is in, the year of it, and the day of that year; years begin in March.
fn in_era(day: i64) -> (i64, i64, i64) {
    let days = day.saturating_add(DAYS_TO_EPOCH);
    let era = days.div_euclid(DAYS_PER_ERA);
    let day_of_era = days.rem_euclid(DAYS_PER_ERA);
    // Leap days are taken out so that every year has 365: one each 4 years, not each 100, but each 400.
    let leap_days = (day_of_era / 1_460)
        .saturating_sub(day_of_era / 36_524)
        .saturating_add(day_of_era / 146_096);
    let year_of_era = day_of_era.saturating_sub(leap_days) / 365;
    let day_of_year = day_of_era.saturating_sub(days_before_year(year_of_era));
    (era, year_of_era, day_of_year)
}

fn since_1970(era: i64, day_of_era: i64) -> i64 {
    era.saturating_mul(DAYS_PER_ERA)
        .saturating_add(day_of_era)
        .saturating_sub(DAYS_TO_EPOCH)
}

/// Days from the beginning of an era of 400 years to the year in it; years begin in March.
fn days_before_year(year: i64) -> i64 {
    year.saturating_mul(365)
        .saturating_add(year / 4)
        .saturating_sub(year / 100)
        .saturating_add(year / 400)
}

/// Days from the first of March to the first of the month; March is 0.
fn days_before_month(month: i64) -> i64 {
    month.saturating_mul(153).saturating_add(2) / 5
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400;

    fn is_leap(year: i64) -> bool {
        (year % 4 == 0 && year % 100 != 0) || year % 400 == 0
    }

    /// Walks the calendar day by day from 1970, independently of the closed formula.
    #[test]
    fn months_end_like_a_calendar_walked_day_by_day() {
        let (mut first, mut year, mut month) = (0_i64, 1970_i64, 1_i64);
        while year < 2262 {
            let length = match month {
                2 => 28 + i64::from(is_leap(year)),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            for day in [first, first + 1, first + length - 1] {
                assert_eq!(first_of_next_month(day), first + length, "{year}-{month}");
            }
            first += length;
            (year, month) = if month == 12 {
                (year + 1, 1)
            } else {
                (year, month + 1)
            };
        }
    }

    #[test]
    fn years_end_like_a_calendar_walked_day_by_day() {
        let mut first = 0_i64;
        for year in 1970..2262 {
            let length = 365 + i64::from(is_leap(year));
            for day in [0, 1, 58, 59, 60, length - 1] {
                assert_eq!(first_of_next_year(first + day), first + length, "{year}");
            }
            first += length;
        }
    }

    #[test]
    fn days_and_weeks_end_at_local_midnight() {
        let secs = |s: i64| s.unsigned_abs() * 1_000_000_000;
        // 2024-02-29T23:30:00Z, a Thursday.
        let now = Timestamp::from_nanos(secs(19_782 * DAY + 23 * 3_600 + 1_800));
        assert_eq!(Calendar::Day.end(now, UtcOffset::UTC), secs(19_783 * DAY));
        assert_eq!(Calendar::Month.end(now, UtcOffset::UTC), secs(19_783 * DAY));
        assert_eq!(Calendar::Week.end(now, UtcOffset::UTC), secs(19_786 * DAY));
        // At +01:00 it is already Friday the first of March.
        let east = UtcOffset::from_minutes(60).unwrap();
        assert_eq!(Calendar::Day.end(now, east), secs(19_784 * DAY - 3_600));
        assert_eq!(
            Calendar::Month.end(now, east),
            secs((19_783 + 31) * DAY - 3_600)
        );
        let west = UtcOffset::from_minutes(-330).unwrap();
        assert_eq!(Calendar::Day.end(now, west), secs(19_783 * DAY + 330 * 60));
    }

    #[test]
    fn the_end_always_lies_ahead_even_at_the_edges_of_time() {
        for calendar in [
            Calendar::Day,
            Calendar::Week,
            Calendar::Month,
            Calendar::Year,
        ] {
            for minutes in [-840, -1, 0, 1, 840] {
                let offset = UtcOffset::from_minutes(minutes).unwrap();
                for now in [0, 1, 86_399_999_999_999, 1 << 60, u64::MAX] {
                    let now = Timestamp::from_nanos(now);
                    let end = calendar.end(now, offset);
                    assert!(end > now.as_nanos(), "{calendar:?} {minutes} {now:?}");
                }
            }
        }
    }

    #[test]
    fn an_offset_beyond_14_hours_is_rejected() {
        assert_eq!(UtcOffset::from_minutes(841).unwrap_err().nearest, Some(840));
        assert!(UtcOffset::from_minutes(i16::MIN).is_err());
    }
}
