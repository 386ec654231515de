//! A calendar walked a day at a time, as with a finger on a wall calendar.

/// Which span ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NaiveSpan {
    /// At midnight.
    Day,
    /// At Monday's midnight.
    Week,
    /// At the first of the next month.
    Month,
    /// At the first of the next January.
    Year,
}

const DAY: i128 = 86_400_000_000_000;

/// The end of the span that `now` (nanoseconds since 1970) falls into, so many minutes east of UTC.
#[must_use]
pub fn naive_end(span: NaiveSpan, now: u64, minutes_east: i32) -> i128 {
    let shift = i128::from(minutes_east) * 60_000_000_000;
    let local = i128::from(now) + shift;
    // 1969-12-01, a Monday: early enough for any offset west of 1970.
    let (mut midnight, mut weekday, mut day, mut month, mut year) = (-31 * DAY, 0, 1, 12, 1969);
    loop {
        let begins = match span {
            NaiveSpan::Day => true,
            NaiveSpan::Week => weekday == 0,
            NaiveSpan::Month => day == 1,
            NaiveSpan::Year => day == 1 && month == 1,
        };
        if begins && midnight > local {
            return midnight - shift;
        }
        midnight += DAY;
        weekday = (weekday + 1) % 7;
        day += 1;
        if day > days_in(month, year) {
            day = 1;
            month += 1;
        }
        if month > 12 {
            month = 1;
            year += 1;
        }
    }
}

fn days_in(month: u32, year: u32) -> u32 {
    match month {
        2 if year.is_multiple_of(400) => 29,
        2 if year.is_multiple_of(100) => 28,
        2 if year.is_multiple_of(4) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}
