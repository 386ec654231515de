//! Percentages: `25%`, `2.5%`, `0.01%`.
//!
//! Must not know: what they are percentages of.

use super::{GrammarError, quote};
use crate::model::Percent;

/// Parses a percentage from 0 % to 100 %, in steps of 0.01 %.
///
/// # Errors
/// The text is not a valid percentage.
pub fn parse_percent(text: &str) -> Result<Percent, GrammarError> {
    let text = text.trim();
    let shown = quote(text);
    let Some(number) = text.strip_suffix('%').map(str::trim_end) else {
        let help = if parse_hundredths(text).is_some_and(|n| n > 100) {
            format!("write `{text}%`")
        } else {
            "write a number and a percent sign: `25%`, `0.5%`".to_owned()
        };
        return Err(GrammarError::with_help(
            format!("{shown} is not a percentage: `%` is missing"),
            help,
        ));
    };
    match parse_hundredths(number) {
        Some(hundredths @ 0..=10_000) => Ok(Percent::from_hundredths(
            u16::try_from(hundredths).unwrap_or(u16::MAX),
        )),
        Some(_) => Err(GrammarError::with_help(
            format!("{shown} is more than 100%"),
            "write at most `100%`",
        )),
        None => Err(GrammarError::with_help(
            format!("{shown} is not a percentage"),
            "write a number from 0 to 100 with at most two decimals, and a percent sign: `25%`, `0.5%`",
        )),
    }
}

/// Parses digits with at most two decimals, in hundredths.
fn parse_hundredths(number: &str) -> Option<u32> {
    let (whole, rest) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(rest) || rest.len() > 2 {
        return None;
    }
    let tens = if rest.len() == 1 { 10 } else { 1 };
    // A number that overflows is more than 100 %.
    let whole: u32 = whole.parse().unwrap_or(u32::MAX / 1_000);
    let rest: u32 = rest.parse().ok()?;
    whole.checked_mul(100)?.checked_add(rest * tens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_parsed_to_a_hundredth_of_a_percent() {
        for (text, expected) in [
            ("0%", 0),
            ("25%", 2_500),
            ("25 %", 2_500),
            ("2.5%", 250),
            ("0.01%", 1),
            ("99.99%", 9_999),
            ("100%", 10_000),
        ] {
            assert_eq!(
                parse_percent(text).unwrap().hundredths(),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn invalid_percentages_are_rejected() {
        for (text, expected) in [
            ("25", "`%` is missing"),
            ("0.5", "`%` is missing"),
            ("101%", "more than 100%"),
            ("99999999999999999999%", "more than 100%"),
            ("-1%", "not a percentage"),
            ("-0%", "not a percentage"),
            ("NaN%", "not a percentage"),
            ("inf%", "not a percentage"),
            ("1e1%", "not a percentage"),
            ("1O%", "not a percentage"),
            ("0.001%", "not a percentage"),
            ("%", "not a percentage"),
            ("", "`%` is missing"),
        ] {
            let error = parse_percent(text).unwrap_err();
            assert!(
                error.message.contains(expected),
                "{text}: {}",
                error.message
            );
            assert!(error.help.is_some());
        }
        assert_eq!(
            parse_percent("25").unwrap_err().help.as_deref(),
            Some("write `25%`")
        );
    }
}
