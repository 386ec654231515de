//! The small languages inside a policy: durations, rates, counts, shares, networks, templates, patterns, statuses.
//!
//! Each file is one grammar: a text becomes a value, or an error in plain words with what would be right. Pure
//! functions. Must not know: fields, files, lines.

mod computed;
mod count;
mod duration;
mod glob;
mod name;
mod network;
mod offset;
mod percent;
mod rate;
mod status;
mod suggestion;
mod template;

pub use computed::{ComputedRateParts, is_computed_rate, parse_computed_rate};
pub use count::{parse_amount, parse_count};
pub use duration::parse_duration;
pub use glob::parse_glob;
pub use name::{parse_header_name, parse_method, parse_name};
pub(crate) use network::unmap_ipv4;
pub use network::{parse_address, parse_network};
pub use offset::parse_utc_offset;
pub use percent::parse_percent;
pub use rate::parse_rate;
pub use status::parse_status_class;
pub use suggestion::nearest_name;
pub use template::{parse_template, template_matches};

/// Why a text is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrammarError {
    /// What is wrong with it, naming the text.
    pub message: Box<str>,
    /// What would be right.
    pub help: Option<Box<str>>,
}

impl GrammarError {
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
    pub fn with_help(message: impl Into<Box<str>>, help: impl Into<Box<str>>) -> Self {
        Self {
            message: message.into(),
            help: Some(help.into()),
        }
    }
}

/// A text in a message: in backquotes, control characters escaped, and cut where it would fill the screen.
#[must_use]
pub fn quote(text: &str) -> String {
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
    use super::quote;

    #[test]
    fn texts_in_messages_are_bounded_and_show_what_cannot_be_seen() {
        assert_eq!(quote("a\"b"), "`a\"b`");
        assert_eq!(quote("a\nb\u{0}"), "`a\\nb\\0`");
        assert_eq!(quote(&"x".repeat(1_000)).chars().count(), 63);
    }
}
