//! What is wrong with a file: where, what, and what would be right.
//!
//! How it looks is `show`'s business. Must not know: what fields mean.

use std::fmt;

use serde::ser::{Serialize, SerializeStruct, Serializer};

use super::line_index::LineIndex;
use super::node::SourceLocation;
use super::{render, without_byte_order_mark};

/// So many problems are told; of the rest only how many there are. Whoever repairs a hundred may ask again.
pub const MAX_DIAGNOSTICS: usize = 100;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Diagnostic {
    /// Where.
    pub location: SourceLocation,
    /// What is wrong, naming the field and the value.
    pub message: Box<str>,
    /// What would be right.
    pub help: Option<Box<str>>,
}

impl Diagnostic {
    /// What is wrong at a place, and what would be right.
    pub fn new(place: SourceLocation, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            location: place,
            message: message.into().into(),
            help: Some(help.into().into()),
        }
    }

    /// What is wrong at a place, where there is nothing to advise.
    pub fn without_help(place: SourceLocation, message: impl Into<String>) -> Self {
        Self {
            location: place,
            message: message.into().into(),
            help: None,
        }
    }
}

/// Everything that is wrong with a file, in the order of its lines; never empty.
///
/// ```
/// use tollgate_policy::source::{SourceLocation, Diagnostic, Diagnostics};
///
/// let place = SourceLocation { line: 1, column: 7, width: 4 };
/// let problem = Diagnostic::new(place, "`10/q` is not a rate", "write `10/s`");
/// let problems = Diagnostics::new("policy.yaml", "rate: 10/q\n", vec![problem]);
/// assert_eq!(
///     problems.to_string(),
///     "policy.yaml:1:7: `10/q` is not a rate\n\
///      \x20 1 | rate: 10/q\n\
///      \x20   |       ^^^^\n\
///      \x20 help: write `10/s`\n"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostics {
    /// What the file is called in messages.
    pub file: Box<str>,
    /// What is wrong.
    pub list: Vec<Diagnostic>,
    /// How many more problems there are than are told.
    pub more: usize,
    /// The lines that problems point at, by number and in order, so that they can be shown.
    pub(crate) lines: Vec<(u32, Box<str>)>,
}

impl Diagnostics {
    /// What is wrong with this text of a file, sorted, each once, at most [`MOST_TOLD`].
    #[must_use]
    pub fn new(file: &str, text: &str, mut list: Vec<Diagnostic>) -> Self {
        list.sort();
        list.dedup_by(|a, b| a.location == b.location && a.message == b.message);
        let more = list.len().saturating_sub(MAX_DIAGNOSTICS);
        list.truncate(MAX_DIAGNOSTICS);
        let text = LineIndex::new(without_byte_order_mark(text));
        let mut numbers: Vec<_> = list.iter().map(|problem| problem.location.line).collect();
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

    /// All of it as people read it, with colours or without.
    #[must_use]
    pub fn render(&self, colour: bool) -> String {
        render::render_diagnostics(self, colour)
    }

    /// The text of a line, if a problem points at it.
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

/// For programs: `{"problems": [{"file", "line", "column", "width", "message", "help"}], "more"}`. A problem that
/// stands nowhere has no line.
impl Serialize for Diagnostics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let told: Vec<_> = self
            .list
            .iter()
            .map(|problem| FileDiagnostic {
                file: &self.file,
                problem,
            })
            .collect();
        let mut out = serializer.serialize_struct("Problems", 2)?;
        out.serialize_field("problems", &told)?;
        out.serialize_field("more", &self.more)?;
        out.end()
    }
}

/// One problem and its file.
struct FileDiagnostic<'a> {
    file: &'a str,
    problem: &'a Diagnostic,
}

impl Serialize for FileDiagnostic<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Diagnostic {
            location: place,
            message,
            help,
        } = self.problem;
        let somewhere = |number| (place.line > 0).then_some(number);
        let mut out = serializer.serialize_struct("Problem", 6)?;
        out.serialize_field("file", self.file)?;
        out.serialize_field("line", &somewhere(place.line))?;
        out.serialize_field("column", &somewhere(place.column))?;
        out.serialize_field("width", &somewhere(place.width))?;
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
    fn problems_come_in_the_order_of_the_file_and_each_once() {
        let list = vec![at(2, 1, "b"), at(1, 4, "x"), at(2, 1, "b"), at(2, 1, "a")];
        let problems = Diagnostics::new("f", "one\ntwo\n", list);
        let told: Vec<_> = problems.list.iter().map(|told| &*told.message).collect();
        assert_eq!(told, ["x", "a", "b"]);
        assert_eq!(problems.line(2), Some("two"));
        assert_eq!(problems.line(3), None);
    }

    #[test]
    fn only_a_hundred_are_told_and_the_rest_is_counted() {
        let list: Vec<_> = (1..=130).map(|line| at(line, 1, "x")).collect();
        let problems = Diagnostics::new("f", &"line\n".repeat(130), list);
        assert_eq!((problems.list.len(), problems.more), (MAX_DIAGNOSTICS, 30));
        assert!(problems.to_string().ends_with("f: and 30 more problems\n"));
    }

    #[test]
    fn programs_get_every_field() {
        let mut list = vec![at(2, 3, "wrong")];
        list.push(Diagnostic::new(SourceLocation::default(), "nowhere", "do"));
        let problems = Diagnostics::new("p.yaml", "a\nb c\n", list);
        assert_eq!(
            serde_json::to_string(&problems).unwrap(),
            r#"{"problems":[{"file":"p.yaml","line":null,"column":null,"width":null,"message":"nowhere","help":"do"},{"file":"p.yaml","line":2,"column":3,"width":1,"message":"wrong","help":null}],"more":0}"#
        );
    }
}
