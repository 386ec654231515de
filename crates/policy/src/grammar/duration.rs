//! Durations: `250ms`, `10s`, `15m`, `2h`, `1d`, `1w`, `1h30m`.
//!
//! Must not know: what the duration is for.

use tollgate_core::Nanos;

use super::count::parse_count;
use super::{GrammarError, quote};

/// The longest duration that a state can store: 2^62 ns, about 146 years.
const MAX_NANOS: u64 = 1 << 62;

const MICRO: u64 = 1_000;
const MILLI: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// Names of units with their nanoseconds.
const UNITS: [(&str, u64); 24] = [
    ("us", MICRO),
    ("µs", MICRO),
    ("ms", MILLI),
    ("millisecond", MILLI),
    ("milliseconds", MILLI),
    ("s", SECOND),
    ("sec", SECOND),
    ("secs", SECOND),
    ("second", SECOND),
    ("seconds", SECOND),
    ("m", 60 * SECOND),
    ("min", 60 * SECOND),
    ("mins", 60 * SECOND),
    ("minute", 60 * SECOND),
    ("minutes", 60 * SECOND),
    ("h", 3_600 * SECOND),
    ("hour", 3_600 * SECOND),
    ("hours", 3_600 * SECOND),
    ("d", 86_400 * SECOND),
    ("day", 86_400 * SECOND),
    ("days", 86_400 * SECOND),
    ("w", 604_800 * SECOND),
    ("week", 604_800 * SECOND),
    ("weeks", 604_800 * SECOND),
];

/// The nanoseconds of a unit by its name.
pub(super) fn unit_nanos(name: &str) -> Option<u64> {
    UNITS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, nanos)| *nanos)
}

/// Parses a duration: above zero and at most 2^62 ns. Larger units come first, each at most once.
///
/// ```
/// use tollgate_core::Nanos;
/// use tollgate_policy::grammar::parse_duration;
///
/// assert_eq!(parse_duration("1h30m"), Ok(Nanos::from_secs(5_400)));
/// assert!(parse_duration("10").is_err(), "ten of what?");
/// ```
///
/// # Errors
/// The text is not a valid duration.
pub fn parse_duration(text: &str) -> Result<Nanos, GrammarError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(GrammarError::with_help("a duration is missing", EXAMPLES));
    }
    let mut rest = text;
    let mut total = 0_u64;
    let mut smaller_than = u64::MAX;
    while !rest.is_empty() {
        let (number, name, after) = split_component(rest);
        let nanos = component_nanos(text, number, name)?;
        if nanos >= smaller_than {
            return Err(GrammarError::with_help(
                format!("{} has its units out of order", quote(text)),
                "write larger units first and each once, as in `1h30m`",
            ));
        }
        smaller_than = nanos;
        let number = parse_count(number).map_err(|error| not_a_duration(text, &error))?;
        total = number
            .checked_mul(nanos)
            .and_then(|part| total.checked_add(part))
            .filter(|total| *total <= MAX_NANOS)
            .ok_or_else(|| {
                GrammarError::with_help(
                    format!("{} is too long", quote(text)),
                    "the longest duration is 146 years",
                )
            })?;
        rest = after.trim_start();
    }
    if total == 0 {
        return Err(GrammarError::with_help(
            format!("{} is zero", quote(text)),
            "write a duration longer than zero, or leave the field out",
        ));
    }
    Ok(Nanos::from_nanos(total))
}

const EXAMPLES: &str =
    "write a number and a unit: `250ms`, `10s`, `15m`, `2h`, `1d`, `1w`, `1h30m`";

/// The number, the name of the unit, and the text after them.
fn split_component(text: &str) -> (&str, &str, &str) {
    let letter = |c: char| c.is_alphabetic();
    let name_start = text.find(letter).unwrap_or(text.len());
    let (number, rest) = text.split_at(name_start);
    let name_end = rest.find(|c: char| !letter(c)).unwrap_or(rest.len());
    let (name, after) = rest.split_at(name_end);
    (number.trim_end(), name, after)
}

fn component_nanos(text: &str, number: &str, name: &str) -> Result<u64, GrammarError> {
    let shown = quote(text);
    if let Some(nanos) = unit_nanos(name) {
        return Ok(nanos);
    }
    if name.is_empty() {
        let valid = parse_count(number).is_ok();
        let help = if valid && number == text {
            format!("for seconds write `{number}s`")
        } else {
            EXAMPLES.to_owned()
        };
        return Err(match parse_count(number) {
            Ok(_) => GrammarError::with_help(format!("{shown} has no unit of time"), help),
            Err(error) => not_a_duration(text, &error),
        });
    }
    if ["month", "months", "mo", "year", "years", "y"].contains(&name) {
        return Err(GrammarError::with_help(
            format!("{shown} has no fixed length"),
            "write days: `30d` or `365d`",
        ));
    }
    if let Some(nanos) = unit_nanos(&name.to_lowercase()) {
        let lower = UNITS
            .iter()
            .find(|(_, n)| *n == nanos)
            .map_or("s", |(n, _)| n);
        return Err(GrammarError::with_help(
            format!(
                "{shown} is not a duration: {} is not a unit of time",
                quote(name)
            ),
            format!("did you mean `{number}{lower}`?"),
        ));
    }
    let digits = text.replace(['O', 'o'], "0").replace(['l', 'I'], "1");
    if digits != text && parse_duration(&digits).is_ok() {
        return Err(GrammarError::with_help(
            format!("{shown} is not a duration: it has letters that look like digits"),
            format!("did you mean {}?", quote(&digits)),
        ));
    }
    // For `NaN` the error about the number is better than one about the unit.
    Err(match parse_count(text) {
        Err(error) if error.message.contains("finite") => error,
        _ => GrammarError::with_help(
            format!(
                "{shown} is not a duration: {} is not a unit of time",
                quote(name)
            ),
            EXAMPLES,
        ),
    })
}

fn not_a_duration(text: &str, error: &GrammarError) -> GrammarError {
    if error.message.contains("not a whole number") {
        return GrammarError::with_help(
            format!(
                "{} is not a duration: fractions are not supported",
                quote(text)
            ),
            "use a smaller unit: `1h30m` instead of `1.5h`, `500ms` instead of `0.5s`",
        );
    }
    GrammarError {
        message: format!("{} is not a duration: {}", quote(text), error.message).into(),
        help: error.help.clone().or_else(|| Some(EXAMPLES.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_spellings_of_durations_are_parsed() {
        let cases = [
            ("250ms", 250 * MILLI),
            ("10s", 10 * SECOND),
            ("10 s", 10 * SECOND),
            ("15m", 900 * SECOND),
            ("15min", 900 * SECOND),
            ("2h", 7_200 * SECOND),
            ("1d", 86_400 * SECOND),
            ("1w", 604_800 * SECOND),
            ("1h30m", 5_400 * SECOND),
            ("1h 30m", 5_400 * SECOND),
            ("2 days", 172_800 * SECOND),
            ("1_000us", MILLI),
        ];
        for (text, expected) in cases {
            assert_eq!(
                parse_duration(text),
                Ok(Nanos::from_nanos(expected)),
                "{text}"
            );
        }
    }

    #[test]
    fn invalid_durations_are_rejected_with_the_reason() {
        let cases = [
            ("", "missing"),
            ("10", "no unit of time"),
            ("1h30", "no unit of time"),
            ("s", "a number is missing"),
            ("0s", "is zero"),
            ("-5s", "negative"),
            ("-0s", "negative"),
            ("NaN", "not a finite number"),
            ("1.5h", "fractions"),
            ("1e400s", "not a duration"),
            ("1O0s", "not a duration"),
            ("10x", "not a unit of time"),
            ("10S", "not a unit of time"),
            ("30m1h", "out of order"),
            ("1s1s", "out of order"),
            ("1 month", "no fixed length"),
            ("200y", "no fixed length"),
            ("99999w", "too long"),
            ("99999999999999999999s", "too large"),
        ];
        for (text, expected) in cases {
            let error = parse_duration(text).unwrap_err();
            assert!(
                error.message.contains(expected),
                "{text}: {}",
                error.message
            );
            assert!(error.help.is_some(), "{text}");
        }
        assert_eq!(
            parse_duration("10").unwrap_err().help.as_deref(),
            Some("for seconds write `10s`")
        );
        assert_eq!(
            parse_duration("10S").unwrap_err().help.as_deref(),
            Some("did you mean `10s`?")
        );
    }
}
