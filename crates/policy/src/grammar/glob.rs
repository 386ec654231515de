//! Globs: `*` matches any run without `/`, `**` any run, `?` one character except `/`.
//!
//! Must not know: how globs are matched.

use super::{GrammarError, quote};
use crate::model::Glob;

/// The most bytes between the first and the last wildcard, both included. The matcher takes one more, for a slash after `**`.
const MAX_WILDCARD_BYTES: usize = 126;

/// Parses a glob. Its length between the wildcards is bounded, and with it the cost of matching.
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
    if wildcard_bytes(text) > MAX_WILDCARD_BYTES {
        return error(
            "is too costly to match",
            "patterns have at most 126 bytes from the first wildcard to the last; `?` counts twice",
        );
    }
    Ok(Glob(text.into()))
}

/// The bytes from the first wildcard to the last. A character may have several bytes, so `?` counts twice.
fn wildcard_bytes(text: &str) -> usize {
    const WILDCARDS: [char; 2] = ['*', '?'];
    let (Some(first), Some(last)) = (text.find(WILDCARDS), text.rfind(WILDCARDS)) else {
        return 0;
    };
    let between = text.get(first..=last).unwrap_or_default();
    between.len().saturating_add(between.matches('?').count())
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
            (format!("*{}*", "a".repeat(125)), "too costly"),
            ("?".repeat(64), "too costly"),
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
