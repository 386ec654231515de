//! Globs: `*` matches any run without `/`, `**` any run, `?` one character except `/`.
//!
//! Must not know: how globs are matched.

use super::{GrammarError, quote};
use crate::model::Glob;

/// Parses a glob. The number of stars is bounded, because matching cost grows with it.
///
/// # Errors
/// The text is not a valid glob.
pub fn parse_glob(text: &str) -> Result<Glob, GrammarError> {
    const MAX_BYTES: usize = 512;
    const MAX_STARS: usize = 16;
    let error = |what: &str, help: &str| {
        Err(GrammarError::with_help(
            format!("{} {what}", quote(text)),
            help,
        ))
    };
    if text.is_empty() {
        return Err(GrammarError::with_help(
            "a pattern is empty",
            "leave it out, or write `absent`",
        ));
    }
    if text.len() > MAX_BYTES {
        return error(
            "is too long for a pattern",
            "patterns have at most 512 bytes",
        );
    }
    if text.contains("***") {
        return error(
            "is not a pattern: `***` is not a wildcard",
            "`*` matches any run without `/`, `**` any run",
        );
    }
    if text.contains(['[', ']', '{', '}']) {
        return error(
            "is not a pattern: brackets are not supported",
            "list several patterns instead: `[\"*.png\", \"*.jpg\"]`",
        );
    }
    if text.replace("**", "*").matches('*').count() > MAX_STARS {
        return error(
            "has too many stars",
            "patterns have at most 16; `**` matches any run",
        );
    }
    Ok(Glob(text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_kept_as_written() {
        for text in ["*.example.com", "/files/**/*.zip", "a?c", "plain"] {
            assert_eq!(parse_glob(text), Ok(Glob(text.into())));
        }
    }

    #[test]
    fn ambiguous_patterns_are_rejected() {
        for (text, expected) in [
            (String::new(), "empty"),
            ("***".to_owned(), "`***`"),
            ("[ab]*".to_owned(), "brackets"),
            ("*.{png,jpg}".to_owned(), "brackets"),
            ("*a".repeat(17), "too many stars"),
            ("a".repeat(513), "too long"),
        ] {
            let error = parse_glob(&text).unwrap_err();
            assert!(
                error.message.contains(expected),
                "{text}: {}",
                error.message
            );
        }
    }
}
