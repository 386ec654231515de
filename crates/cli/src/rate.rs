//! A rate as people type it: `10/s`.
//!
//! Must not know: command lines. Whether a rate can be enforced exactly is core's to say.

use tollgate_core::{Nanos, Rate};

/// Parses `N/s`, `N/min`, `N/h` or `N/d`.
pub(crate) fn parse(text: &str) -> Result<Rate, String> {
    let Some((units, period)) = text.split_once('/') else {
        return Err(String::from(
            "it must be a number, a slash and a period, as in 10/s",
        ));
    };
    if units.is_empty() || !units.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("number: {units:?} is not a whole number"));
    }
    let Ok(units) = units.parse() else {
        return Err(format!("number: {units} is above {}", u64::MAX));
    };
    let period = match period {
        "s" => Nanos::SECOND,
        "min" => Nanos::MINUTE,
        "h" => Nanos::HOUR,
        "d" => Nanos::DAY,
        other => return Err(format!("period: {other:?} is not one of s, min, h, d")),
    };
    Ok(Rate::new(units, period))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_a_number_and_a_period() {
        assert_eq!(parse("10/s"), Ok(Rate::per_second(10)));
        assert_eq!(parse("900/min"), Ok(Rate::per_minute(900)));
        assert_eq!(parse("0/h"), Ok(Rate::per_hour(0)));
        assert_eq!(parse("1/d"), Ok(Rate::per_day(1)));
    }

    #[test]
    fn errors_name_what_is_wrong() {
        let cases = [
            (
                "10",
                "it must be a number, a slash and a period, as in 10/s",
            ),
            ("", "it must be a number, a slash and a period, as in 10/s"),
            ("/s", "number: \"\" is not a whole number"),
            ("-1/s", "number: \"-1\" is not a whole number"),
            ("1.5/s", "number: \"1.5\" is not a whole number"),
            ("+1/s", "number: \"+1\" is not a whole number"),
            ("10/", "period: \"\" is not one of s, min, h, d"),
            ("10/sec", "period: \"sec\" is not one of s, min, h, d"),
            ("10/s/s", "period: \"s/s\" is not one of s, min, h, d"),
            (
                "18446744073709551616/s",
                "number: 18446744073709551616 is above 18446744073709551615",
            ),
        ];
        for (text, reason) in cases {
            assert_eq!(parse(text), Err(String::from(reason)), "{text}");
        }
    }
}
