//! Names: of limits, groups, buckets, levels and lists; of headers; of methods.
//!
//! Must not know: what the names refer to.

use super::{GrammarError, quote};

/// How many characters a name may have.
const MAX_LENGTH: usize = 64;

/// Parses a name: letters, digits, `.`, `_` and `-`, beginning with a letter or digit, at most 64 characters. Names
/// become metric labels and parts of keys, so they must not need escaping.
///
/// # Errors
/// The text is not a valid name.
pub fn parse_name(text: &str) -> Result<Box<str>, GrammarError> {
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if text.is_empty() {
        return Err(GrammarError::with_help(
            "a name is empty",
            "give it a name such as `per-user`",
        ));
    }
    if text.len() <= MAX_LENGTH
        && text.chars().all(inside)
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
    {
        return Ok(text.into());
    }
    let better: String = text
        .chars()
        .map(|c| if inside(c) { c } else { '-' })
        .skip_while(|c| !c.is_ascii_alphanumeric())
        .take(MAX_LENGTH)
        .collect();
    let better = better.trim_end_matches('-');
    let rule =
        "names have at most 64 letters, digits, `.`, `_` and `-`, and begin with a letter or digit";
    let help = if better.is_empty() {
        "write a name such as `per-user`".to_owned()
    } else {
        format!("write {}", quote(better))
    };
    Err(GrammarError::with_help(
        format!("{} is not a name: {rule}", quote(text)),
        help,
    ))
}

/// Parses a header name and lower-cases it.
///
/// # Errors
/// The text is not a valid header name.
pub fn parse_header_name(text: &str) -> Result<Box<str>, GrammarError> {
    let pseudo = match text {
        ":method" => Some("method"),
        ":path" => Some("path` or `route"),
        ":authority" => Some("host"),
        _ => None,
    };
    if let Some(attribute) = pseudo {
        return Err(GrammarError::with_help(
            format!("{} is a pseudo-header", quote(text)),
            format!("use the attribute `{attribute}`"),
        ));
    }
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if text.is_empty() || text.len() > 256 || !text.bytes().all(token) {
        return Err(GrammarError::with_help(
            format!("{} is not a header name", quote(text)),
            "write letters, digits and `-`, as in `x-api-key`",
        ));
    }
    Ok(text.to_ascii_lowercase().into())
}

/// Parses a method and upper-cases it.
///
/// # Errors
/// The text is not a valid method.
pub fn parse_method(text: &str) -> Result<Box<str>, GrammarError> {
    if text.is_empty()
        || text.len() > 32
        || !text.bytes().all(|b| b.is_ascii_alphabetic() || b == b'-')
    {
        return Err(GrammarError::with_help(
            format!("{} is not a method", quote(text)),
            "write one such as `GET`, or a list: `[POST, PUT]`",
        ));
    }
    Ok(text.to_ascii_uppercase().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_need_no_escaping_anywhere() {
        for valid in ["a", "per-user", "v1.login_2", &"x".repeat(64)] {
            assert_eq!(parse_name(valid).as_deref(), Ok(valid));
        }
        for (invalid, help) in [
            ("per user", "write `per-user`"),
            ("-a", "write `a`"),
            ("@x!", "write `x`"),
            ("", "give it a name such as `per-user`"),
            ("ü", "write a name such as `per-user`"),
        ] {
            assert_eq!(
                parse_name(invalid).unwrap_err().help.as_deref(),
                Some(help),
                "{invalid}"
            );
        }
        assert!(parse_name(&"x".repeat(65)).is_err());
    }

    #[test]
    fn headers_are_lower_case_and_pseudo_headers_are_attributes() {
        assert_eq!(parse_header_name("X-Api-Key").as_deref(), Ok("x-api-key"));
        assert_eq!(
            parse_header_name(":method").unwrap_err().help.as_deref(),
            Some("use the attribute `method`")
        );
        assert!(parse_header_name("a b").is_err());
        assert!(parse_header_name("").is_err());
    }

    #[test]
    fn methods_are_upper_case() {
        assert_eq!(parse_method("post").as_deref(), Ok("POST"));
        assert!(parse_method("GET POST").is_err());
        assert!(parse_method("*").is_err());
    }
}
