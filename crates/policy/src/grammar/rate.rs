//! Rates: `10/s`, `1000/min`, `1M/month`, `100 per 15m`.
//!
//! Must not know: algorithms; core decides which rates are supported.

use tollgate_core::{Nanos, QuotaUnit};

use super::count::{parse_amount, parse_count};
use super::duration::{parse_duration, unit_nanos};
use super::{GrammarError, quote};
use crate::model::{Period, RateSpec};

/// Parses a rate. Zero denies everything.
///
/// ```
/// use tollgate_core::{Nanos, QuotaUnit};
/// use tollgate_policy::model::Period;
/// use tollgate_policy::grammar::parse_rate;
///
/// let rate = parse_rate("100 per 15m", QuotaUnit::Requests).unwrap();
/// assert_eq!((rate.units, rate.period), (100, Period::Span(Nanos::from_secs(900))));
/// ```
///
/// # Errors
/// The text is not a rate.
pub fn parse_rate(text: &str, unit: QuotaUnit) -> Result<RateSpec, GrammarError> {
    let text = text.trim();
    let parts = text
        .split_once('/')
        .or_else(|| text.split_once(" per "))
        .or_else(|| text.split_once(" every "));
    let Some((number, period)) = parts else {
        return Err(missing_period(text));
    };
    let units =
        parse_amount(number, unit).map_err(|error| number_error(text, number, period, &error))?;
    let period = self::parse_period(text, period.trim())?;
    Ok(RateSpec { units, period })
}

const EXAMPLES: &str =
    "write an amount per period: `10/s`, `1000/min`, `5000/h`, `1M/month`, `100 per 15m`";

fn parse_period(rate: &str, text: &str) -> Result<Period, GrammarError> {
    match text {
        "month" | "mo" => return Ok(Period::Month),
        "year" | "y" => return Ok(Period::Year),
        "" => {
            return Err(GrammarError::with_help(
                format!("{} has no period", quote(rate)),
                EXAMPLES,
            ));
        }
        _ => {}
    }
    if let Some(nanos) = unit_nanos(text) {
        return Ok(Period::Span(Nanos::from_nanos(nanos)));
    }
    parse_duration(text).map(Period::Span).map_err(|error| {
        let calendar = text.contains("month") || text.contains("year");
        let help = if calendar {
            Some("write `/month` or `/year` for one, or days for several: `90d`".into())
        } else if parse_count(text).is_ok() {
            Some(format!("for seconds write `{text}s`").into())
        } else if unit_nanos(&text.to_lowercase()).is_some() {
            Some(
                format!(
                    "did you mean {}?",
                    quote(&rate.replace(text, &text.to_lowercase()))
                )
                .into(),
            )
        } else {
            error.help.or_else(|| Some(EXAMPLES.into()))
        };
        GrammarError {
            message: format!("{} is not a rate: {}", quote(rate), error.message).into(),
            help,
        }
    })
}

fn missing_period(text: &str) -> GrammarError {
    let shown = quote(text);
    if text.is_empty() {
        return GrammarError::with_help("a rate is missing", EXAMPLES);
    }
    for (suffix, period) in [("rps", "s"), ("rpm", "min"), ("rph", "h")] {
        if let Some(number) = text.strip_suffix(suffix)
            && parse_count(number).is_ok()
        {
            return GrammarError::with_help(
                format!("{shown} is not a rate"),
                format!("did you mean `{}/{period}`?", number.trim()),
            );
        }
    }
    match parse_count(text) {
        Ok(_) => GrammarError::with_help(
            format!("{shown} has no period"),
            format!("write `{text}/s`, `{text}/min`, `{text}/h` or `{text}/day`"),
        ),
        Err(error) if error.message.contains("not a number") => {
            GrammarError::with_help(format!("{shown} is not a rate"), EXAMPLES)
        }
        Err(error) => GrammarError {
            message: format!("{shown} is not a rate: {}", error.message).into(),
            help: Some(EXAMPLES.into()),
        },
    }
}

fn number_error(rate: &str, number: &str, period: &str, error: &GrammarError) -> GrammarError {
    let number = number.trim();
    // `10r/s`, `10 requests/s`: a valid number with a redundant word.
    let digits = number.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let word = number.get(digits.len()..).unwrap_or_default();
    let help = if ["r", "req", "reqs", "request", "requests", "hits", "calls"].contains(&word)
        && parse_count(digits).is_ok()
    {
        Some(format!("did you mean `{}/{}`?", digits.trim(), period.trim()).into())
    } else {
        error.help.clone()
    };
    GrammarError {
        message: format!("{} is not a rate: {}", quote(rate), error.message).into(),
        help: help.or_else(|| Some(EXAMPLES.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<RateSpec, GrammarError> {
        parse_rate(text, QuotaUnit::Requests)
    }

    #[test]
    fn common_spellings_of_rates_are_parsed() {
        let span = |secs| Period::Span(Nanos::from_secs(secs));
        let cases = [
            ("10/s", 10, span(1)),
            ("1000/min", 1_000, span(60)),
            ("1000/minute", 1_000, span(60)),
            ("1000 / min", 1_000, span(60)),
            ("5000/h", 5_000, span(3_600)),
            ("10k/day", 10_000, span(86_400)),
            ("2/week", 2, span(604_800)),
            ("1M/month", 1_000_000, Period::Month),
            ("1G/year", 1_000_000_000, Period::Year),
            ("100 per 15m", 100, span(900)),
            ("100/15m", 100, span(900)),
            ("100/15 minutes", 100, span(900)),
            ("5 per 1h30m", 5, span(5_400)),
            ("1 every 5s", 1, span(5)),
            ("0/s", 0, span(1)),
        ];
        for (text, units, period) in cases {
            assert_eq!(read(text), Ok(RateSpec { units, period }), "{text}");
        }
        assert_eq!(
            parse_rate("10MiB/s", QuotaUnit::Bytes).unwrap().units,
            10 << 20
        );
    }

    #[test]
    fn invalid_rates_are_rejected_with_the_reason_and_a_suggestion() {
        let cases = [
            ("", "a rate is missing"),
            ("100", "has no period"),
            ("100/", "has no period"),
            ("fast", "not a rate"),
            ("NaN/s", "not a finite number"),
            ("inf/min", "not a finite number"),
            ("-5/s", "negative"),
            ("-0/s", "negative"),
            ("1e400/s", "exponent"),
            ("1O0/min", "look like digits"),
            ("0.5/s", "not a whole number"),
            ("10r/s", "unknown suffix"),
            ("100rps", "not a rate"),
            ("10MiB/s", "unknown suffix"),
            ("10/0s", "is zero"),
            ("10/-1s", "negative"),
            ("10/15", "no unit of time"),
            ("10/fortnight", "not a unit of time"),
            ("10/S", "not a unit of time"),
            ("10/3months", "no fixed length"),
            ("10/200000d", "too long"),
            ("99999999999999999999/s", "too large"),
        ];
        for (text, expected) in cases {
            let error = read(text).unwrap_err();
            assert!(
                error.message.contains(expected),
                "{text}: {}",
                error.message
            );
            assert!(error.help.is_some(), "{text}");
        }
        let help = |text| read(text).unwrap_err().help.unwrap();
        assert_eq!(&*help("10r/s"), "did you mean `10/s`?");
        assert_eq!(&*help("100rpm"), "did you mean `100/min`?");
        assert_eq!(&*help("10/S"), "did you mean `10/s`?");
    }
}
