//! What a caller may ask, however it was written down, and why it cannot be understood.
//!
//! Must not know: query strings, JSON, HTTP. Those parse into this.

use std::borrow::Cow;
use std::fmt;

use tollgate_store::MAX_KEY_LEN;

/// Longest piece of a caller's input that an error repeats, in characters.
const MAX_ECHO: usize = 64;

/// The fields of a check, each absent unless given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// Whose bucket. Never empty, at most 1,024 bytes, not necessarily UTF-8.
    pub key: Option<Vec<u8>>,
    /// How much to spend.
    pub cost: Option<u64>,
    /// Which limit.
    pub limit: Option<String>,
}

impl Input {
    /// The two together. A field may come from either, not from both.
    ///
    /// # Errors
    /// Names a field that both have.
    pub fn and(self, other: Self) -> Result<Self, BadInput> {
        Ok(Self {
            key: either("key", self.key, other.key, |key| key)?,
            cost: either("cost", self.cost, other.cost, |n| n.to_string().into())?,
            limit: either("limit", self.limit, other.limit, String::into_bytes)?,
        })
    }

    pub(crate) fn set_key(&mut self, key: Vec<u8>) -> Result<(), BadInput> {
        if key.is_empty() {
            return Err(BadInput::new("key", b"", "it must not be empty"));
        }
        if key.len() > MAX_KEY_LEN {
            let reason = format!("it has {} bytes, at most {MAX_KEY_LEN} fit", key.len());
            return Err(BadInput::new("key", &key, reason));
        }
        set("key", &mut self.key, key, Clone::clone)
    }

    pub(crate) fn set_cost(&mut self, cost: u64) -> Result<(), BadInput> {
        set("cost", &mut self.cost, cost, |n| n.to_string().into())
    }

    pub(crate) fn set_limit(&mut self, limit: Vec<u8>) -> Result<(), BadInput> {
        let limit = String::from_utf8(limit)
            .map_err(|error| BadInput::new("limit", error.as_bytes(), "it is not UTF-8"))?;
        set("limit", &mut self.limit, limit, |s| s.clone().into_bytes())
    }
}

/// A cost as digits.
pub(crate) fn parse_cost(text: &[u8]) -> Result<u64, BadInput> {
    let bad = |reason| BadInput::new("cost", text, reason);
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

fn set<T>(
    field: &'static str,
    place: &mut Option<T>,
    value: T,
    bytes: impl Fn(&T) -> Vec<u8>,
) -> Result<(), BadInput> {
    if place.is_some() {
        return Err(BadInput::new(field, &bytes(&value), "it is given twice"));
    }
    *place = Some(value);
    Ok(())
}

fn either<T>(
    field: &'static str,
    one: Option<T>,
    other: Option<T>,
    bytes: impl Fn(T) -> Vec<u8>,
) -> Result<Option<T>, BadInput> {
    match (one, other) {
        (Some(_), Some(again)) => Err(BadInput::new(field, &bytes(again), "it is given twice")),
        (one, other) => Ok(one.or(other)),
    }
}

/// Input that cannot be understood: which field, which value, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadInput {
    /// The field, as the caller named it.
    pub field: String,
    /// The value, or the beginning of it.
    pub value: String,
    /// What is wrong with it.
    pub reason: Cow<'static, str>,
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
}

impl fmt::Display for BadInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = self.field.escape_debug();
        write!(f, "{field}: {:?} is not valid: {}", self.value, self.reason)
    }
}

impl std::error::Error for BadInput {}

/// The beginning of what a caller wrote, fit to be repeated to them.
pub(crate) fn echo(bytes: &[u8]) -> String {
    // A character has at most four bytes, so this many are enough; the rest of a long value is not even looked at.
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
        assert_eq!(parse_cost(b"0"), Ok(0));
        assert_eq!(parse_cost(b"007"), Ok(7));
        assert_eq!(parse_cost(b"18446744073709551615"), Ok(u64::MAX));
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
            let error = parse_cost(text.as_bytes()).unwrap_err();
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
            error.to_string(),
            r#"cost: "a\n\"b" is not valid: it must be a whole number"#
        );
    }

    #[test]
    fn a_field_may_come_from_either_place_but_not_from_both() {
        let key = |key: &str| Input {
            key: Some(key.into()),
            ..Input::default()
        };
        let cost = Input {
            cost: Some(3),
            ..Input::default()
        };
        let both = key("alice").and(cost).unwrap();
        assert_eq!((both.key, both.cost), (Some(b"alice".into()), Some(3)));
        let error = key("alice").and(key("bob")).unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"key: "bob" is not valid: it is given twice"#
        );
    }
}
