//! The small languages inside a policy: durations, rates, counts, shares, networks, templates, patterns, statuses.
//!
//! Each file is one grammar: a text becomes a value, or an error in plain words with what would be right. Pure
//! functions. Must not know: fields, files, lines.

mod computed;
mod count;
mod duration;
mod glob;
mod name;
mod nearest;
mod network;
mod offset;
mod percent;
mod rate;
mod status;
mod template;

pub use computed::{Parts, computed, is_computed};
pub use count::{amount, count};
pub use duration::duration;
pub use glob::glob;
pub use name::{header, method, name};
pub use nearest::nearest;
pub(crate) use network::unmapped;
pub use network::{address, network};
pub use offset::utc_offset;
pub use percent::percent;
pub use rate::rate;
pub use status::status_class;
pub use template::{template, template_holds};

/// Why a text is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// What is wrong with it, naming the text.
    pub message: Box<str>,
    /// What would be right.
    pub help: Option<Box<str>>,
}

impl Wrong {
    /// Wrong, and nothing to suggest.
    #[must_use]
    pub fn new(message: impl Into<Box<str>>) -> Self {
        Self {
            message: message.into(),
            help: None,
        }
    }

    /// Wrong, and what would be right.
    #[must_use]
    pub fn with(message: impl Into<Box<str>>, help: impl Into<Box<str>>) -> Self {
        Self {
            message: message.into(),
            help: Some(help.into()),
        }
    }
}

/// A text in a message: in backquotes, control characters escaped, and cut where it would fill the screen.
#[must_use]
pub fn quoted(text: &str) -> String {
    const MOST: usize = 60;
    let mut shown: String = text
        .chars()
        .take(MOST)
        .flat_map(char::escape_debug)
        .collect();
    // A quote that was escaped for Rust is an ordinary character here.
    shown = shown.replace("\\\"", "\"").replace("\\'", "'");
    if text.chars().nth(MOST).is_some() {
        shown.push('…');
    }
    format!("`{shown}`")
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn texts_in_messages_are_bounded_and_show_what_cannot_be_seen() {
        assert_eq!(quoted("a\"b"), "`a\"b`");
        assert_eq!(quoted("a\nb\u{0}"), "`a\\nb\\0`");
        assert_eq!(quoted(&"x".repeat(1_000)).chars().count(), 63);
    }
}
