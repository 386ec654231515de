//! Errors of invalid input, and the parser of numbers that every input format uses.
//!
//! Must not know: query strings, JSON, HTTP. Those report through this.

use std::borrow::Cow;
use std::fmt;

/// The longest part of the input that an error repeats, in characters.
const MAX_ECHO: usize = 64;

/// Parses a cost from digits.
pub(crate) fn parse_cost(field: &str, text: &[u8]) -> Result<u64, BadInput> {
    let bad = |reason| BadInput::new(field, text, reason);
    let is_digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    match text {
        [b'-', digits @ ..] if is_digits(digits) => Err(bad("it must not be negative")),
        digits if is_digits(digits) => {
            let mut number = Some(0_u64);
            for digit in digits {
                let digit = u64::from(digit.saturating_sub(b'0'));
                number = number.and_then(|n| n.checked_mul(10)?.checked_add(digit));
            }
            number.ok_or_else(|| bad("it is above 18446744073709551615"))
        }
        _ => Err(bad("it must be a whole number")),
    }
}

/// Invalid input: the field, the value and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadInput {
    /// The field, as the client named it.
    pub(crate) field: String,
    /// The value, truncated.
    pub(crate) value: String,
    /// What is wrong with it.
    pub(crate) reason: Cow<'static, str>,
}

impl BadInput {
    pub(crate) fn new(
        field: impl AsRef<[u8]>,
        value: &[u8],
        reason: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            field: echo(field.as_ref()),
            value: echo(value),
            reason: reason.into(),
        }
    }

    /// The same error with the path of the enclosing field in front.
    pub(crate) fn within(mut self, outer: &str) -> Self {
        self.field = format!("{outer}.{}", self.field);
        self
    }
}

impl fmt::Display for BadInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = self.field.escape_debug();
        write!(f, "{field}: {:?} is not valid: {}", self.value, self.reason)
    }
}

impl std::error::Error for BadInput {}

/// The start of a value from a client, as printable text for an error message.
pub(crate) fn echo(bytes: &[u8]) -> String {
    // A character has at most four bytes, so this many bytes are enough.
    let start = bytes.get(..MAX_ECHO.saturating_mul(4)).unwrap_or(bytes);
    let text = String::from_utf8_lossy(start);
    let mut shown: String = text.chars().take(MAX_ECHO).collect();
    if shown.len() < text.len() || start.len() < bytes.len() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_whole_numbers_up_to_the_largest() {
        assert_eq!(parse_cost("cost", b"0"), Ok(0));
        assert_eq!(parse_cost("cost", b"007"), Ok(7));
        assert_eq!(parse_cost("cost", b"18446744073709551615"), Ok(u64::MAX));
        let cases = [
            ("18446744073709551616", "it is above 18446744073709551615"),
            ("-1", "it must not be negative"),
            ("-18446744073709551616", "it must not be negative"),
            ("", "it must be a whole number"),
            ("-", "it must be a whole number"),
            ("+1", "it must be a whole number"),
            ("1.5", "it must be a whole number"),
            ("1e3", "it must be a whole number"),
            (" 1", "it must be a whole number"),
            ("٣", "it must be a whole number"),
        ];
        for (text, reason) in cases {
            let error = parse_cost("cost", text.as_bytes()).unwrap_err();
            assert_eq!((error.value.as_str(), &*error.reason), (text, reason));
        }
    }

    #[test]
    fn an_error_repeats_no_more_than_the_beginning() {
        assert_eq!(echo(b"short"), "short");
        assert_eq!(echo(&[b'x'; 64]), "x".repeat(64));
        assert_eq!(echo(&[b'x'; 65]), format!("{}…", "x".repeat(64)));
        assert_eq!(echo("é".repeat(500).as_bytes()).chars().count(), 65);
        assert_eq!(echo(b"\xff"), "\u{fffd}");
        let error = BadInput::new("cost", b"a\n\"b", "it must be a whole number");
        assert_eq!(
            error.within("requests[2]").to_string(),
            r#"requests[2].cost: "a\n\"b" is not valid: it must be a whole number"#
        );
    }
}
