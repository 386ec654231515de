//! Computed rates: `5000/h + 50/h × claim.repos, at most 12500/h`.
//!
//! Must not know: how the attribute is read.

use tollgate_core::QuotaUnit;

use super::rate::parse_rate;
use super::{GrammarError, quote};
use crate::attributes::Attribute;
use crate::model::RateSpec;

/// The four parts of a computed rate, in the order of the text: base, addition, attribute, maximum.
pub type ComputedRateParts = (RateSpec, RateSpec, Attribute, RateSpec);

/// Whether a text looks like a computed rate.
#[must_use]
pub fn is_computed_rate(text: &str) -> bool {
    text.contains('+') && !text.trim_start().starts_with('+') || text.contains('×')
}

/// Parses a computed rate: a base, an addition per unit of an attribute, the attribute, and a maximum.
///
/// # Errors
/// The text is not a computed rate.
pub fn parse_computed_rate(text: &str, unit: QuotaUnit) -> Result<ComputedRateParts, GrammarError> {
    let form = |what: &str| {
        GrammarError::with_help(
            format!("{} is not a computed rate: {what}", quote(text.trim())),
            "write it as `5000/h + 50/h × claim.repos, at most 12500/h`",
        )
    };
    let (base, rest) = text.split_once('+').ok_or_else(|| form("`+` is missing"))?;
    let (sum, max) = rest
        .split_once(',')
        .and_then(|(sum, max)| Some((sum, max.trim().strip_prefix("at most ")?)))
        .ok_or_else(|| form("`, at most …` is missing"))?;
    let (each, attribute) = sum
        .split_once('×')
        .or_else(|| sum.split_once('*'))
        .or_else(|| sum.split_once(" x "))
        .ok_or_else(|| form("`× ATTRIBUTE` is missing"))?;
    let attribute = attribute.trim();
    let times = Attribute::parse(attribute)
        .ok_or_else(|| form(&format!("{} is not an attribute", quote(attribute))))?;
    Ok((
        parse_rate(base, unit)?,
        parse_rate(each, unit)?,
        times,
        parse_rate(max, unit)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_computed_rate_accepts_ascii_spellings_of_the_multiplication_sign() {
        let expected = parse_computed_rate(
            "5000/h + 50/h × claim.repos, at most 12500/h",
            QuotaUnit::Requests,
        )
        .unwrap();
        assert_eq!(
            (expected.0.units, expected.1.units, expected.3.units),
            (5_000, 50, 12_500)
        );
        for text in [
            "5000/h + 50/h * claim.repos, at most 12500/h",
            "5000/h+50/h x claim.repos , at most 12500/h",
        ] {
            assert!(is_computed_rate(text));
            assert_eq!(
                parse_computed_rate(text, QuotaUnit::Requests),
                Ok(expected.clone()),
                "{text}"
            );
        }
        assert!(!is_computed_rate("5000/h"));
        assert!(!is_computed_rate("+5/s"));
    }

    #[test]
    fn the_missing_part_of_a_computed_rate_is_named() {
        let cases = [
            ("5000/h + 50/h × claim.repos", "at most"),
            ("5000/h + 50/h, at most 10/h", "× ATTRIBUTE"),
            ("5000/h × claim.repos, at most 10/h", "`+` is missing"),
            ("5000/h + 50/h × repos, at most 10/h", "not an attribute"),
            ("5000 + 50/h × claim.repos, at most 10/h", "has no period"),
            (
                "5000/h + NaN/h × claim.repos, at most 10/h",
                "not a finite number",
            ),
        ];
        for (text, expected) in cases {
            let error = parse_computed_rate(text, QuotaUnit::Requests).unwrap_err();
            assert!(
                error.message.contains(expected),
                "{text}: {}",
                error.message
            );
            assert!(error.help.is_some(), "{text}");
        }
    }
}
