//! Parses TOML into a tree. Tables keep the order of the file.
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

/// The maximum number of duplicates whose first definition is searched: each search parses the file once more.
const MAX_SEARCHES: usize = 8;

/// A name that no file contains, to mark a position.
const MARK: &str = "\"\\u0001 tollgate: which table is this? \\u0001\"";
/// The same name after parsing.
const MARK_READ: &str = "\u{1} tollgate: which table is this? \u{1}";

/// Parses a text, and reports all syntax errors.
pub(super) fn parse(text: &str, lines: &LineIndex<'_>) -> Result<SourceNode, Vec<Diagnostic>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let diagnostics = errors
            .iter()
            .enumerate()
            .map(|(index, error)| syntax_error(text, lines, error, index < MAX_SEARCHES));
        return Err(diagnostics.collect());
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
        .map_err(|diagnostic| vec![diagnostic])
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
        let location = self.lines.locate(spanned.span());
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(too_many(location));
        }
        let value = match spanned.get_ref() {
            DeValue::Table(_) | DeValue::Array(_) if depth >= MAX_DEPTH => {
                return Err(too_deep(location));
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
            // Numbers, booleans and dates stay as written.
            _ => SourceValue::Scalar {
                text: self.text.get(spanned.span()).unwrap_or_default().into(),
                quoted: false,
            },
        };
        Ok(SourceNode { location, value })
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

/// The diagnostic of a syntax error, with our own message for common errors.
fn syntax_error(text: &str, lines: &LineIndex<'_>, error: &Error, search: bool) -> Diagnostic {
    let span = error.span().unwrap_or(text.len()..text.len());
    let location = lines.locate(span.clone());
    let name_text = text.get(span.clone()).unwrap_or_default();
    match error.message() {
        "duplicate key" => {
            let first = search
                .then(|| find_first_definition(text, name_text, &span))
                .flatten();
            let name = name_text.trim_matches(['"', '\'']);
            match first {
                Some(first) => {
                    duplicate_names::duplicate_name(name, location, lines.locate(first).line)
                }
                None => Diagnostic::new(
                    location,
                    format!("`{name}` is given twice"),
                    "keep one of the two",
                ),
            }
        }
        message if message.contains("recurs") => too_deep(location),
        message => {
            let help = if message.contains("string values must be quoted") {
                "TOML texts need quotes: rate = \"10/s\""
            } else {
                "TOML is written `name = value`, a text in quotes, and one `[[limits]]` for each limit"
            };
            Diagnostic::new(location, format!("this is not valid TOML: {message}"), help)
        }
    }
}

/// Finds the first definition of a duplicate name. The library does not report it. So the name at `second` is replaced
/// by the mark, and the table with the mark is searched for the name.
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

/// Finds `name` in the table with the mark.
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
