//! Formats numbers and durations for people: `1,200`, `60 ms`, `15 min`.
//!
//! Must not know: what the numbers mean.

use tollgate_core::{Nanos, QuotaUnit};

/// Formats a whole number with thousands separators.
#[must_use]
pub fn format_number(n: u64) -> String {
    group_thousands(&n.to_string())
}

/// Formats a number above 64 bits.
pub(crate) fn format_big_number(n: u128) -> String {
    group_thousands(&n.to_string())
}

fn group_thousands(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The units of durations, largest first.
const UNITS: [(u64, &str); 7] = [
    (86_400_000_000_000, "d"),
    (3_600_000_000_000, "h"),
    (60_000_000_000, "min"),
    (1_000_000_000, "s"),
    (1_000_000, "ms"),
    (1_000, "µs"),
    (1, "ns"),
];

/// Formats a duration exactly: `60 ms`, `1 h 30 min`, `333.333334 ms`.
#[must_use]
pub fn format_duration(length: Nanos) -> String {
    let nanos = length.as_nanos();
    if nanos == 0 {
        return "0 s".to_owned();
    }
    if nanos < 60_000_000_000 {
        return format_below_a_minute(nanos);
    }
    // Days, hours, minutes, and the remainder in seconds or smaller units.
    let mut rest = nanos;
    let mut parts = Vec::new();
    for (unit, name) in UNITS.into_iter().take(3) {
        let count = rest / unit;
        rest %= unit;
        if count > 0 {
            parts.push(format!("{} {name}", format_number(count)));
        }
    }
    if rest > 0 {
        parts.push(format_below_a_minute(rest));
    }
    parts.join(" ")
}

/// Uses the largest unit with at least one, with as many decimals as needed to be exact.
fn format_below_a_minute(nanos: u64) -> String {
    let (unit, name) = UNITS
        .into_iter()
        .skip(3)
        .find(|(unit, _)| nanos >= *unit)
        .unwrap_or((1, "ns"));
    let (whole, rest) = (nanos / unit, nanos % unit);
    if rest == 0 {
        return format!("{} {name}", format_number(whole));
    }
    let width = unit.ilog10() as usize;
    let decimals = format!("{rest:0width$}");
    format!(
        "{}.{} {name}",
        format_number(whole),
        decimals.trim_end_matches('0')
    )
}

/// `one every 60 ms`
pub(crate) fn format_refill(block: u64, interval: Nanos, unit: QuotaUnit) -> String {
    let one = match (block, unit) {
        (1, QuotaUnit::Bytes) => "one byte".to_owned(),
        (1, QuotaUnit::Tokens) => "one token".to_owned(),
        (1, _) => "one".to_owned(),
        (many, _) => format_amount(many, unit),
    };
    format!("{one} every {}", format_duration(interval))
}

/// Formats an amount with its unit; `requests` is omitted.
pub(crate) fn format_amount(n: u64, unit: QuotaUnit) -> String {
    match unit {
        QuotaUnit::Bytes if n == 1 => "1 byte".to_owned(),
        QuotaUnit::Tokens if n == 1 => "1 token".to_owned(),
        QuotaUnit::Bytes | QuotaUnit::Tokens => format!("{} {}", format_number(n), unit.name()),
        _ => format_number(n),
    }
}

/// The name of a period after `in any` or `per`.
pub(crate) fn period_name(period: Nanos) -> String {
    match period {
        Nanos::SECOND => "second".to_owned(),
        Nanos::MINUTE => "minute".to_owned(),
        Nanos::HOUR => "hour".to_owned(),
        Nanos::DAY => "day".to_owned(),
        other if other == Nanos::from_secs(7 * 86_400) => "week".to_owned(),
        other => format_duration(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (n, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
            (u64::MAX, "18,446,744,073,709,551,615"),
        ] {
            assert_eq!(format_number(n), text);
        }
    }

    #[test]
    fn durations_are_exact_and_in_common_units() {
        for (nanos, text) in [
            (0, "0 s"),
            (1, "1 ns"),
            (60_000_000, "60 ms"),
            (333_333_334, "333.333334 ms"),
            (1_500_000_000, "1.5 s"),
            (60_000_000_000, "1 min"),
            (90_000_000_000, "1 min 30 s"),
            (5_400_000_000_000, "1 h 30 min"),
            (2_592_000_000_000_000, "30 d"),
            (3_600_000_000_001, "1 h 1 ns"),
        ] {
            assert_eq!(format_duration(Nanos::from_nanos(nanos)), text);
        }
    }
}
