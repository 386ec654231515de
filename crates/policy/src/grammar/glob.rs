//! Patterns: `*` stands for any run without `/`, `**` for any run, `?` for one character that is not `/`.
//!
//! Must not know: how patterns are matched.

use super::{GrammarError, quote};
use crate::model::Glob;

/// A pattern. The number of its stars is bounded, because each is a place to try again from.
///
/// # Errors
/// The text is not such a pattern.
pub fn parse_glob(text: &str) -> Result<Glob, GrammarError> {
    const MAX_BYTES: usize = 512;
    const MAX_STARS: usize = 16;
    let wrong = |what: &str, help: &str| {
        Err(GrammarError::with_help(
            format!("{} {what}", quote(text)),
            help,
        ))
    };
    if text.is_empty() {
        return Err(GrammarError::with_help(
            "a pattern is empty",
            "leave it out, or say `absent`",
        ));
    }
    if text.len() > MAX_BYTES {
        return wrong(
            "is too long for a pattern",
            "patterns have at most 512 bytes",
        );
    }
    if text.contains("***") {
        return wrong(
            "is not a pattern: three stars in a row mean nothing",
            "`*` stands for anything but `/`, `**` for anything",
        );
    }
    if text.contains(['[', ']', '{', '}']) {
        return wrong(
            "is not a pattern: brackets are not known",
            "list several patterns instead: `[\"*.png\", \"*.jpg\"]`",
        );
    }
    if text.replace("**", "*").matches('*').count() > MAX_STARS {
        return wrong(
            "has too many stars",
            "patterns have at most 16; `**` stands for any run of anything",
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
    fn what_would_be_misunderstood_is_refused() {
        for (text, expected) in [
            (String::new(), "empty"),
            ("***".to_owned(), "three stars"),
            ("[ab]*".to_owned(), "brackets"),
            ("*.{png,jpg}".to_owned(), "brackets"),
            ("*a".repeat(17), "too many stars"),
            ("a".repeat(513), "too long"),
        ] {
            let wrong = parse_glob(&text).unwrap_err();
            assert!(
                wrong.message.contains(expected),
                "{text}: {}",
                wrong.message
            );
        }
    }
}
