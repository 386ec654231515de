//! Shares: `25%`, `2.5%`, `0.01%`.
//!
//! Must not know: shares of what.

use super::{GrammarError, quote};
use crate::model::Percent;

/// A share from 0 % to 100 %, in steps of 0.01 %.
///
/// # Errors
/// The text is not such a share.
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
            format!("{shown} is not a share: `%` is missing"),
            help,
        ));
    };
    match parse_hundredths(number) {
        Some(hundredths @ 0..=10_000) => Ok(Percent::from_hundredths(
            u16::try_from(hundredths).unwrap_or(u16::MAX),
        )),
        Some(_) => Err(GrammarError::with_help(
            format!("{shown} is more than everything"),
            "write at most `100%`",
        )),
        None => Err(GrammarError::with_help(
            format!("{shown} is not a share"),
            "write a number from 0 to 100 with at most two decimals, and a percent sign: `25%`, `0.5%`",
        )),
    }
}

/// Digits, with at most two after a point, in hundredths.
fn parse_hundredths(number: &str) -> Option<u32> {
    let (whole, rest) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(rest) || rest.len() > 2 {
        return None;
    }
    let tens = if rest.len() == 1 { 10 } else { 1 };
    // More digits than fit are more than everything.
    let whole: u32 = whole.parse().unwrap_or(u32::MAX / 1_000);
    let rest: u32 = rest.parse().ok()?;
    whole.checked_mul(100)?.checked_add(rest * tens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_to_a_hundredth_of_a_percent() {
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
    fn what_is_no_share_is_refused() {
        for (text, expected) in [
            ("25", "`%` is missing"),
            ("0.5", "`%` is missing"),
            ("101%", "more than everything"),
            ("99999999999999999999%", "more than everything"),
            ("-1%", "not a share"),
            ("-0%", "not a share"),
            ("NaN%", "not a share"),
            ("inf%", "not a share"),
            ("1e1%", "not a share"),
            ("1O%", "not a share"),
            ("0.001%", "not a share"),
            ("%", "not a share"),
            ("", "`%` is missing"),
        ] {
            let wrong = parse_percent(text).unwrap_err();
            assert!(
                wrong.message.contains(expected),
                "{text}: {}",
                wrong.message
            );
            assert!(wrong.help.is_some());
        }
        assert_eq!(
            parse_percent("25").unwrap_err().help.as_deref(),
            Some("write `25%`")
        );
    }
}
