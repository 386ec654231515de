//! TOML into a tree. Tables keep the order of the file, whatever order the library gives them in.
//!
//! Must not know: fields.

use std::ops::Range;

use ::toml::Spanned;
use ::toml::de::{DeTable, DeValue, Error};

use super::diagnostic::Diagnostic;
use super::duplicate_names;
use super::line_index::LineIndex;
use super::node::{Located, MapEntry, SourceNode, SourceValue};
use super::{MAX_DEPTH, MAX_NODES, too_deep, too_many};

/// For so many names at most is the first of two looked for: each search reads the file once more.
const MAX_SEARCHES: usize = 8;

/// A name that no file has, to mark a place with.
const MARK: &str = "\"\\u0001 tollgate: which table is this? \\u0001\"";
/// The same name as it is read.
const MARK_READ: &str = "\u{1} tollgate: which table is this? \u{1}";

/// Reads a text, and reports everything that is wrong with its syntax.
pub(super) fn parse(text: &str, lines: &LineIndex<'_>) -> Result<SourceNode, Vec<Diagnostic>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let problems = errors
            .iter()
            .enumerate()
            .map(|(index, error)| syntax_error(text, lines, error, index < MAX_SEARCHES));
        return Err(problems.collect());
    }
    let mut reader = TomlConverter {
        text,
        lines,
        nodes: 0,
    };
    let root = 0..text.len().min(1);
    let value = reader.table(table.get_ref(), 0);
    value
        .map(|value| SourceNode {
            location: lines.locate(root),
            value,
        })
        .map_err(|problem| vec![problem])
}

struct TomlConverter<'a> {
    text: &'a str,
    lines: &'a LineIndex<'a>,
    nodes: usize,
}

impl TomlConverter<'_> {
    fn value(
        &mut self,
        spanned: &Spanned<DeValue<'_>>,
        depth: usize,
    ) -> Result<SourceNode, Diagnostic> {
        let place = self.lines.locate(spanned.span());
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(too_many(place));
        }
        let value = match spanned.get_ref() {
            DeValue::Table(_) | DeValue::Array(_) if depth >= MAX_DEPTH => {
                return Err(too_deep(place));
            }
            DeValue::Table(table) => self.table(table, depth)?,
            DeValue::Array(values) => SourceValue::List(
                values
                    .iter()
                    .map(|value| self.value(value, depth + 1))
                    .collect::<Result<_, _>>()?,
            ),
            DeValue::String(text) => SourceValue::Scalar {
                text: (**text).into(),
                quoted: true,
            },
            // Numbers, truth values and dates stay as they are written.
            _ => SourceValue::Scalar {
                text: self.text.get(spanned.span()).unwrap_or_default().into(),
                quoted: false,
            },
        };
        Ok(SourceNode {
            location: place,
            value,
        })
    }

    fn table(&mut self, table: &DeTable<'_>, depth: usize) -> Result<SourceValue, Diagnostic> {
        let mut pairs: Vec<_> = table.iter().collect();
        pairs.sort_by_key(|(name, _)| name.span().start);
        let mut entries = Vec::with_capacity(pairs.len());
        for (name, value) in pairs {
            self.nodes += 1;
            entries.push(MapEntry {
                name: Located::new((**name.get_ref()).into(), self.lines.locate(name.span())),
                value: self.value(value, depth + 1)?,
            });
        }
        Ok(SourceValue::Map(entries))
    }
}

/// A syntax error in our words where the library's own would puzzle.
fn syntax_error(text: &str, lines: &LineIndex<'_>, error: &Error, search: bool) -> Diagnostic {
    let span = error.span().unwrap_or(text.len()..text.len());
    let place = lines.locate(span.clone());
    let said = text.get(span.clone()).unwrap_or_default();
    match error.message() {
        "duplicate key" => {
            let first = search
                .then(|| find_first_definition(text, said, &span))
                .flatten();
            let name = said.trim_matches(['"', '\'']);
            match first {
                Some(first) => {
                    duplicate_names::duplicate_name(name, place, lines.locate(first).line)
                }
                None => Diagnostic::new(
                    place,
                    format!("`{name}` is given twice"),
                    "keep one of the two",
                ),
            }
        }
        message if message.contains("recurs") => too_deep(place),
        message => {
            let help = if message.contains("string values must be quoted") {
                "a text stands in quotes in TOML: rate = \"10/s\""
            } else {
                "TOML is written `name = value`, a text in quotes, and one `[[limits]]` for each limit"
            };
            Diagnostic::new(place, format!("this is not valid TOML: {message}"), help)
        }
    }
}

/// Where a name that stands at `second` stood first in the same table. The library does not tell, so the second is
/// given another name, and its neighbour of the same name is looked up.
fn find_first_definition(text: &str, name: &str, second: &Range<usize>) -> Option<Range<usize>> {
    let mut marked = String::with_capacity(text.len() + MARK.len());
    marked.push_str(text.get(..second.start)?);
    marked.push_str(MARK);
    marked.push_str(text.get(second.end..)?);
    let (table, _) = DeTable::parse_recoverable(&marked);
    // The same name may be written with and without quotes.
    let alone = format!("{name} = 0");
    let (alone, _) = DeTable::parse_recoverable(&alone);
    let (name, _) = alone.get_ref().iter().next()?;
    find_beside_mark(table.get_ref(), name.get_ref())
}

/// Where `name` stands in the table that the mark stands in.
fn find_beside_mark(table: &DeTable<'_>, name: &str) -> Option<Range<usize>> {
    if table.contains_key(MARK_READ) {
        return table
            .iter()
            .find(|(found, _)| found.get_ref() == name)
            .map(|(found, _)| found.span());
    }
    table
        .iter()
        .find_map(|(_, value)| find_beside_mark_in_value(value, name))
}

fn find_beside_mark_in_value(value: &Spanned<DeValue<'_>>, name: &str) -> Option<Range<usize>> {
    match value.get_ref() {
        DeValue::Table(table) => find_beside_mark(table, name),
        DeValue::Array(values) => values
            .iter()
            .find_map(|value| find_beside_mark_in_value(value, name)),
        _ => None,
    }
}
