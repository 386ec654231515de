//! Whole numbers: `10`, `1_000`, `10k`, `1M`, `1G`, and for bytes `64KiB`.
//!
//! Texts that look like numbers have specific errors: signs, fractions, exponents, letters for digits. Must not know:
//! what is counted.

use tollgate_core::QuotaUnit;

use super::{GrammarError, quote};

/// Parses a whole number.
///
/// ```
/// use tollgate_policy::grammar::parse_count;
///
/// assert_eq!(parse_count("10k"), Ok(10_000));
/// assert!(parse_count("1O0").is_err());
/// ```
///
/// # Errors
/// The text is not a whole number from 0 to 2^64 − 1.
pub fn parse_count(text: &str) -> Result<u64, GrammarError> {
    parse(text, &DECIMAL)
}

/// Parses a number of units: like [`parse_count`], and for bytes also `KB`, `MB`, `GB`, `KiB`, `MiB`, `GiB`.
///
/// # Errors
/// The text is not a whole number from 0 to 2^64 − 1.
pub fn parse_amount(text: &str, unit: QuotaUnit) -> Result<u64, GrammarError> {
    match unit {
        QuotaUnit::Bytes => parse(text, &BYTES),
        _ => parse(text, &DECIMAL),
    }
}

type Suffix = (&'static str, u64);
const DECIMAL: [Suffix; 4] = [
    ("k", 1_000),
    ("K", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
];
const BYTES: [Suffix; 12] = [
    ("k", 1_000),
    ("K", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("B", 1),
];

fn parse(text: &str, suffixes: &[Suffix]) -> Result<u64, GrammarError> {
    let trimmed = text.trim();
    let digits_end = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '_')
        .unwrap_or(trimmed.len());
    let (digits, suffix) = trimmed.split_at(digits_end);
    let well_formed = digits.starts_with(|c: char| c.is_ascii_digit())
        && digits.ends_with(|c: char| c.is_ascii_digit())
        && !digits.contains("__");
    let times = match suffix {
        "" => Some(1),
        _ => suffixes
            .iter()
            .find(|(name, _)| *name == suffix)
            .map(|(_, times)| *times),
    };
    let (true, Some(times)) = (well_formed, times) else {
        return Err(explain_not_a_number(trimmed, digits, suffix));
    };
    digits
        .bytes()
        .filter(u8::is_ascii_digit)
        .try_fold(0_u64, |sum, digit| {
            sum.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
        })
        .and_then(|number| number.checked_mul(times))
        .ok_or_else(|| {
            GrammarError::new(format!(
                "{} is too large: the largest number is {}",
                quote(trimmed),
                u64::MAX
            ))
        })
}

/// The error of a text that is not a number.
fn explain_not_a_number(text: &str, digits: &str, suffix: &str) -> GrammarError {
    let shown = quote(text);
    let lower = text.to_ascii_lowercase();
    let bare = lower.trim_start_matches(['-', '+', '.']);
    if text.is_empty() {
        return GrammarError::with_help(
            "a number is missing",
            "write a whole number such as `100`",
        );
    }
    if ["nan", "inf", "infinity"].contains(&bare) {
        return GrammarError::with_help(
            format!("{shown} is not a finite number"),
            "write a whole number such as `100`",
        );
    }
    if let Some(rest) = text.strip_prefix(['-', '−']) {
        let help = if rest.trim_matches('0').is_empty() {
            "write `0`"
        } else {
            "write a whole number of at least 0"
        };
        return GrammarError::with_help(format!("{shown} is negative"), help);
    }
    if let Some(rest) = text.strip_prefix('+') {
        return GrammarError::with_help(
            format!("{shown} has a sign"),
            format!("write {}", quote(rest)),
        );
    }
    if let Some((mantissa, exponent)) = lower.split_once('e')
        && is_digits(mantissa.trim_matches('.'))
        && is_digits(exponent.trim_start_matches(['+', '-']))
    {
        return GrammarError::with_help(
            format!("{shown} is written with an exponent"),
            "write it in digits, or with `k`, `M` or `G`",
        );
    }
    if let Some(rest) = suffix.strip_prefix('.')
        && rest.starts_with(|c: char| c.is_ascii_digit())
    {
        return GrammarError::with_help(
            format!("{shown} is not a whole number"),
            "write a whole number; for less than one per period use a longer period, `30/min` instead of `0.5/s`",
        );
    }
    explain_look_alike(text, digits, suffix)
}

fn explain_look_alike(text: &str, digits: &str, suffix: &str) -> GrammarError {
    let shown = quote(text);
    let groups: String = text.replace([',', ' ', '\'', '\u{a0}'], "_");
    if groups != text && is_digits(&groups.replace('_', "")) {
        return GrammarError::with_help(
            format!("{shown} is not a number: thousands are separated by `_`"),
            format!("write {}", quote(&groups)),
        );
    }
    let fixed: String = text
        .chars()
        .map(|c| match c {
            'O' | 'o' => '0',
            'l' | 'I' => '1',
            c => c
                .to_digit(10)
                .and_then(|d| char::from_digit(d, 10))
                .unwrap_or(c),
        })
        .collect();
    if fixed != text && is_digits(&fixed) {
        return GrammarError::with_help(
            format!("{shown} is not a number: it has letters that look like digits"),
            format!("did you mean {}?", quote(&fixed)),
        );
    }
    if digits.contains('_') && suffix.is_empty() {
        return GrammarError::with_help(
            format!("{shown} is not a number: `_` is only allowed between two digits"),
            format!("write {}", quote(&digits.replace('_', ""))),
        );
    }
    if !digits.is_empty() && suffix == "m" {
        return GrammarError::with_help(
            format!("{shown} is not a number: `m` means minutes"),
            format!("for millions write `{digits}M`"),
        );
    }
    if !digits.is_empty() && !suffix.is_empty() {
        return GrammarError::with_help(
            format!(
                "{shown} is not a number: unknown suffix {}",
                quote(suffix.trim())
            ),
            "use `k`, `M` or `G`; with `unit: bytes` also `KiB`, `MiB` or `GiB`",
        );
    }
    GrammarError::with_help(
        format!("{shown} is not a number"),
        "write a whole number such as `100`, `1_000` or `10k`",
    )
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_spellings_of_numbers_are_parsed() {
        let cases = [
            ("0", 0),
            ("10", 10),
            ("007", 7),
            ("1_000", 1_000),
            ("10k", 10_000),
            ("10K", 10_000),
            ("1M", 1_000_000),
            ("2G", 2_000_000_000),
            ("1_000k", 1_000_000),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_count(text), Ok(expected), "{text}");
        }
        assert_eq!(parse_amount("64KiB", QuotaUnit::Bytes), Ok(65_536));
        assert_eq!(parse_amount("1MB", QuotaUnit::Bytes), Ok(1_000_000));
        assert_eq!(parse_amount("2GiB", QuotaUnit::Bytes), Ok(2 << 30));
    }

    #[test]
    fn s_30_texts_that_only_look_like_a_number_are_rejected_with_the_reason() {
        let cases = [
            ("", "missing"),
            ("NaN", "not a finite number"),
            (".nan", "not a finite number"),
            ("inf", "not a finite number"),
            ("-.inf", "not a finite number"),
            ("-5", "negative"),
            ("-0", "negative"),
            ("+5", "has a sign"),
            ("1e400", "exponent"),
            ("1e6", "exponent"),
            ("1E-3", "exponent"),
            ("0.5", "not a whole number"),
            ("1,000", "separated by `_`"),
            ("1 000", "separated by `_`"),
            ("1O0", "look like digits"),
            ("l00", "look like digits"),
            ("1_", "between two digits"),
            ("1__0", "between two digits"),
            ("_1", "between two digits"),
            ("5m", "means minutes"),
            ("5KiB", "unknown suffix"),
            ("0x10", "unknown suffix"),
            ("many", "not a number"),
            ("18446744073709551616", "too large"),
            ("99999999999999999999999999999999999", "too large"),
            ("18446744073709551615k", "too large"),
        ];
        for (text, expected) in cases {
            let error = parse_count(text).unwrap_err();
            assert!(
                error.message.contains(expected),
                "{text}: {}",
                error.message
            );
            assert!(error.help.is_some() || expected == "too large", "{text}");
        }
    }

    #[test]
    fn letters_that_look_like_digits_come_with_a_suggestion() {
        let help = |text| parse_count(text).unwrap_err().help.unwrap();
        assert_eq!(&*help("1O0"), "did you mean `100`?");
        assert_eq!(&*help("-0"), "write `0`");
        assert_eq!(&*help("1,000"), "write `1_000`");
    }
}
