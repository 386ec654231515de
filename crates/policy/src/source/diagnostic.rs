//! Diagnostics of a file: location, message and suggestion.
//!
//! `render` formats them. Must not know: what fields mean.

use std::fmt;

use serde::ser::{Serialize, SerializeStruct, Serializer};

use super::line_index::LineIndex;
use super::node::SourceLocation;
use super::{render, without_byte_order_mark};

/// The maximum number of diagnostics that are shown; further ones are only counted.
pub const MAX_DIAGNOSTICS: usize = 100;

/// One mistake in a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Diagnostic {
    /// The location.
    pub location: SourceLocation,
    /// The message, with the field and the value.
    pub message: Box<str>,
    /// The suggestion.
    pub help: Option<Box<str>>,
}

impl Diagnostic {
    /// A mistake at a location, with a suggestion.
    pub fn new(
        location: SourceLocation,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self {
            location,
            message: message.into().into(),
            help: Some(help.into().into()),
        }
    }

    /// A mistake at a location, without a suggestion.
    pub fn without_help(location: SourceLocation, message: impl Into<String>) -> Self {
        Self {
            location,
            message: message.into().into(),
            help: None,
        }
    }
}

/// All diagnostics of a file, sorted by line; never empty.
///
/// ```
/// use tollgate_policy::source::{Diagnostic, Diagnostics, SourceLocation};
///
/// let location = SourceLocation { line: 1, column: 7, width: 4 };
/// let diagnostic = Diagnostic::new(location, "`10/q` is not a rate", "write `10/s`");
/// let diagnostics = Diagnostics::new("policy.yaml", "rate: 10/q\n", vec![diagnostic]);
/// assert_eq!(
///     diagnostics.to_string(),
///     "policy.yaml:1:7: `10/q` is not a rate\n\
///      \x20 1 | rate: 10/q\n\
///      \x20   |       ^^^^\n\
///      \x20 help: write `10/s`\n"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostics {
    /// The name of the file in messages.
    pub file: Box<str>,
    /// The diagnostics.
    pub list: Vec<Diagnostic>,
    /// The number of diagnostics that are not in `list`.
    pub more: usize,
    /// The lines of the diagnostics, by number and in order.
    pub(crate) lines: Vec<(u32, Box<str>)>,
}

impl Diagnostics {
    /// The diagnostics of a file, sorted, without duplicates, at most [`MAX_DIAGNOSTICS`].
    #[must_use]
    pub fn new(file: &str, text: &str, mut list: Vec<Diagnostic>) -> Self {
        list.sort();
        list.dedup_by(|a, b| a.location == b.location && a.message == b.message);
        let more = list.len().saturating_sub(MAX_DIAGNOSTICS);
        list.truncate(MAX_DIAGNOSTICS);
        let text = LineIndex::new(without_byte_order_mark(text));
        let mut numbers: Vec<_> = list
            .iter()
            .map(|diagnostic| diagnostic.location.line)
            .collect();
        numbers.dedup();
        let lines = numbers
            .into_iter()
            .filter_map(|number| Some((number, text.line(number)?.into())))
            .collect();
        Self {
            file: file.into(),
            list,
            more,
            lines,
        }
    }

    /// Formats all diagnostics for people, with or without colours.
    #[must_use]
    pub fn render(&self, colour: bool) -> String {
        render::render_diagnostics(self, colour)
    }

    /// The text of a line, if a diagnostic refers to it.
    pub(super) fn line(&self, number: u32) -> Option<&str> {
        let index = self
            .lines
            .binary_search_by_key(&number, |(number, _)| *number)
            .ok()?;
        self.lines.get(index).map(|(_, text)| &**text)
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Diagnostics {}

/// For programs: `{"problems": [{"file", "line", "column", "width", "message", "help"}], "more"}`. A diagnostic without
/// a location has no line.
impl Serialize for Diagnostics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let diagnostics: Vec<_> = self
            .list
            .iter()
            .map(|diagnostic| FileDiagnostic {
                file: &self.file,
                diagnostic,
            })
            .collect();
        let mut out = serializer.serialize_struct("Diagnostics", 2)?;
        out.serialize_field("problems", &diagnostics)?;
        out.serialize_field("more", &self.more)?;
        out.end()
    }
}

/// One diagnostic and its file.
struct FileDiagnostic<'a> {
    file: &'a str,
    diagnostic: &'a Diagnostic,
}

impl Serialize for FileDiagnostic<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Diagnostic {
            location,
            message,
            help,
        } = self.diagnostic;
        let if_located = |number| (location.line > 0).then_some(number);
        let mut out = serializer.serialize_struct("Diagnostic", 6)?;
        out.serialize_field("file", self.file)?;
        out.serialize_field("line", &if_located(location.line))?;
        out.serialize_field("column", &if_located(location.column))?;
        out.serialize_field("width", &if_located(location.width))?;
        out.serialize_field("message", &**message)?;
        out.serialize_field("help", &help.as_deref())?;
        out.end()
    }
}

#[cfg(test)]
mod tests {
    use super::{Diagnostic, Diagnostics, MAX_DIAGNOSTICS, SourceLocation};

    fn at(line: u32, column: u32, message: &str) -> Diagnostic {
        let width = 1;
        Diagnostic::without_help(
            SourceLocation {
                line,
                column,
                width,
            },
            message,
        )
    }

    #[test]
    fn diagnostics_are_sorted_by_line_and_deduplicated() {
        let list = vec![at(2, 1, "b"), at(1, 4, "x"), at(2, 1, "b"), at(2, 1, "a")];
        let diagnostics = Diagnostics::new("f", "one\ntwo\n", list);
        let messages: Vec<_> = diagnostics
            .list
            .iter()
            .map(|diagnostic| &*diagnostic.message)
            .collect();
        assert_eq!(messages, ["x", "a", "b"]);
        assert_eq!(diagnostics.line(2), Some("two"));
        assert_eq!(diagnostics.line(3), None);
    }

    #[test]
    fn at_most_a_hundred_diagnostics_are_shown_and_further_ones_are_counted() {
        let list: Vec<_> = (1..=130).map(|line| at(line, 1, "x")).collect();
        let diagnostics = Diagnostics::new("f", &"line\n".repeat(130), list);
        assert_eq!(
            (diagnostics.list.len(), diagnostics.more),
            (MAX_DIAGNOSTICS, 30)
        );
        assert!(
            diagnostics
                .to_string()
                .ends_with("f: and 30 more problems\n")
        );
    }

    #[test]
    fn json_has_every_field() {
        let mut list = vec![at(2, 3, "wrong")];
        list.push(Diagnostic::new(SourceLocation::default(), "nowhere", "do"));
        let diagnostics = Diagnostics::new("p.yaml", "a\nb c\n", list);
        assert_eq!(
            serde_json::to_string(&diagnostics).unwrap(),
            r#"{"problems":[{"file":"p.yaml","line":null,"column":null,"width":null,"message":"nowhere","help":"do"},{"file":"p.yaml","line":2,"column":3,"width":1,"message":"wrong","help":null}],"more":0}"#
        );
    }
}
