//! Policy names: which are valid in structured fields, and how dialects quote them.
//!
//! Must not know: what is named.

use std::fmt;

/// Fits a limit's name and a level's name of 64 characters each, and a suffix that distinguishes meters.
const MAX_NAME_LEN: usize = 160;

/// Quotes the name as a String of RFC 9651.
///
/// # Errors
/// The name must be 1 to 160 printable ASCII characters, as such a String requires.
pub(crate) fn quote(name: &str) -> Result<String, InvalidPolicyName> {
    let invalid = |reason| InvalidPolicyName {
        name: name.chars().take(MAX_NAME_LEN).collect(),
        reason,
    };
    if name.is_empty() {
        return Err(invalid(InvalidNameReason::Empty));
    }
    if name.len() > MAX_NAME_LEN {
        return Err(invalid(InvalidNameReason::TooLong));
    }
    let mut quoted = String::with_capacity(name.len().saturating_add(2));
    quoted.push('"');
    for c in name.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            ' '..='~' => quoted.push(c),
            _ => return Err(invalid(InvalidNameReason::NotPrintableAscii(c))),
        }
    }
    quoted.push('"');
    Ok(quoted)
}

/// Whether the name is a Token of RFC 9651, which needs no quotes.
pub(crate) fn is_token(name: &str) -> bool {
    let is_tchar = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~:/".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '*') && name.chars().all(is_tchar)
}

/// Whether the text is a parameter key of RFC 9651.
pub(crate) fn is_parameter_key(text: &str) -> bool {
    let is_rest = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.*".contains(c);
    text.len() <= MAX_NAME_LEN
        && text.starts_with(|c: char| c.is_ascii_lowercase() || c == '*')
        && text.chars().all(is_rest)
}

/// Whether the text is a valid field value by itself: 1 to 160 visible ASCII characters.
pub(crate) fn is_visible(text: &str) -> bool {
    (1..=MAX_NAME_LEN).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The policy name is not valid in a structured field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidPolicyName {
    /// The name that was given.
    pub name: String,
    reason: InvalidNameReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InvalidNameReason {
    Empty,
    TooLong,
    NotPrintableAscii(char),
}

impl fmt::Display for InvalidPolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "name: {:?} is not valid: ", self.name)?;
        match self.reason {
            InvalidNameReason::Empty => f.write_str("it must not be empty"),
            InvalidNameReason::TooLong => write!(f, "it is longer than {MAX_NAME_LEN} characters"),
            InvalidNameReason::NotPrintableAscii(c) => {
                write!(f, "{c:?} is not a printable ASCII character")
            }
        }
    }
}

impl std::error::Error for InvalidPolicyName {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_string_cannot_hold_are_refused_with_the_reason() {
        let long = "x".repeat(161);
        let cases = [
            ("", "it must not be empty"),
            ("naïve", "'ï' is not a printable ASCII character"),
            ("a\r\nb", r"'\r' is not a printable ASCII character"),
            ("\u{7f}", r"'\u{7f}' is not a printable ASCII character"),
            (&long, "it is longer than 160 characters"),
        ];
        for (name, reason) in cases {
            let error = quote(name).unwrap_err();
            assert!(error.to_string().ends_with(reason), "{error}");
        }
        assert_eq!(
            quote("é").unwrap_err().to_string(),
            r#"name: "é" is not valid: 'é' is not a printable ASCII character"#
        );
    }

    #[test]
    fn tokens_keys_and_visible_texts_are_recognised() {
        for name in ["api", "*", "per-user", "a/b:c", "A1_"] {
            assert!(is_token(name), "{name}");
        }
        for name in ["", "1a", "a b", "a\"", "a;b", "é", "a,b", "-a"] {
            assert!(!is_token(name), "{name}");
        }
        assert!(is_parameter_key("user_id") && is_parameter_key("*x-1.2"));
        for key in ["", "User", "1", "a b", "a=b", "é"] {
            assert!(!is_parameter_key(key), "{key}");
        }
        assert!(is_visible("abc123=") && !is_visible("a b") && !is_visible(""));
        assert!(!is_visible("a\n") && !is_visible("é"));
    }
}
