//! The grammars of texts in policies: durations, rates, counts, percentages, networks, templates, globs, status codes.
//!
//! Each file parses one grammar: a text becomes a value, or an error with a suggestion. All functions are pure. Must
//! not know: fields, files, lines.

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
mod upstream;

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
pub use upstream::{parse_route_host, parse_route_path, parse_upstream_address};

/// Why a text does not match its grammar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrammarError {
    /// The message, with the text.
    pub message: Box<str>,
    /// The suggestion.
    pub help: Option<Box<str>>,
}

impl GrammarError {
    /// An error without a suggestion.
    #[must_use]
    pub fn new(message: impl Into<Box<str>>) -> Self {
        Self {
            message: message.into(),
            help: None,
        }
    }

    /// An error with a suggestion.
    #[must_use]
    pub fn with_help(message: impl Into<Box<str>>, help: impl Into<Box<str>>) -> Self {
        Self {
            message: message.into(),
            help: Some(help.into()),
        }
    }
}

/// Quotes a text for a message: in backquotes, with control characters escaped, truncated if it is long.
#[must_use]
pub fn quote(text: &str) -> String {
    const MAX_CHARS: usize = 60;
    let mut shown: String = text
        .chars()
        .take(MAX_CHARS)
        .flat_map(char::escape_debug)
        .collect();
    // `escape_debug` escapes quotes, which messages show as they are.
    shown = shown.replace("\\\"", "\"").replace("\\'", "'");
    if text.chars().nth(MAX_CHARS).is_some() {
        shown.push('…');
    }
    format!("`{shown}`")
}

#[cfg(test)]
mod tests {
    use super::quote;

    #[test]
    fn quoted_texts_are_bounded_and_escape_control_characters() {
        assert_eq!(quote("a\"b"), "`a\"b`");
        assert_eq!(quote("a\nb\u{0}"), "`a\\nb\\0`");
        assert_eq!(quote(&"x".repeat(1_000)).chars().count(), 63);
    }
}
