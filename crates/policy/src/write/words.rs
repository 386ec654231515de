//! Rates, durations and offsets in the words that policies have for them.
//!
//! Must not know: fields.

use std::fmt::Write as _;

use tollgate_core::Nanos;

use crate::model::{Period, RateSpec};

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Units from the largest, as durations name them.
const UNITS: [(u64, &str); 7] = [
    (DAY, "d"),
    (HOUR, "h"),
    (MINUTE, "m"),
    (SECOND, "s"),
    (1_000_000, "ms"),
    (1_000, "us"),
    (1, "ns"),
];

/// `1h30m`
pub(super) fn duration(span: Nanos) -> String {
    let mut rest = span.as_nanos();
    let mut out = String::new();
    for (nanos, name) in UNITS {
        if rest >= nanos {
            let _infallible = write!(out, "{}{name}", rest / nanos);
            rest %= nanos;
        }
    }
    if out.is_empty() {
        out.push_str("0s");
    }
    out
}

/// `1000/min`
pub(super) fn rate(rate: &RateSpec) -> String {
    let period = match rate.period {
        Period::Month => "month".to_owned(),
        Period::Year => "year".to_owned(),
        Period::Span(span) => match span.as_nanos() {
            SECOND => "s".to_owned(),
            MINUTE => "min".to_owned(),
            HOUR => "h".to_owned(),
            DAY => "day".to_owned(),
            other if other == 7 * DAY => "week".to_owned(),
            _ => duration(span),
        },
    };
    format!("{}/{period}", rate.units)
}

/// `+02:00`
pub(super) fn offset(minutes: i16) -> String {
    let sign = if minutes < 0 { '-' } else { '+' };
    let minutes = minutes.unsigned_abs();
    format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use tollgate_core::Nanos;

    use super::{duration, offset, rate};
    use crate::model::{Period, RateSpec};

    #[test]
    fn durations_are_exact_and_short() {
        for (nanos, text) in [
            (250_000_000, "250ms"),
            (5_400_000_000_000, "1h30m"),
            (60_000_000_000, "1m"),
            (1_500_000_000, "1s500ms"),
            (0, "0s"),
        ] {
            assert_eq!(duration(Nanos::from_nanos(nanos)), text);
        }
    }

    #[test]
    fn rates_and_offsets_are_written_as_people_write_them() {
        for (units, period, text) in [
            (10, Period::Span(Nanos::from_secs(1)), "10/s"),
            (1_000, Period::Span(Nanos::from_secs(60)), "1000/min"),
            (2, Period::Span(Nanos::from_secs(604_800)), "2/week"),
            (100, Period::Span(Nanos::from_secs(900)), "100/15m"),
            (1, Period::Month, "1/month"),
        ] {
            assert_eq!(rate(&RateSpec { units, period }), text);
        }
        assert_eq!(
            (offset(120), offset(-210)),
            ("+02:00".into(), "-03:30".into())
        );
    }
}
