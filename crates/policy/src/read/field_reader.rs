//! Reads a map field by field, and reports unknown names with a suggestion.
//!
//! Must not know: which fields there are.

use super::TreeReader;
use super::scalar::describe_node;
use crate::grammar::{nearest_name, quote};
use crate::source::{MapEntry, SourceLocation, SourceNode, SourceValue};

/// The fields of one map while it is read.
#[derive(Debug)]
pub struct FieldReader<'a> {
    /// The subject of messages: "limit `login`", "`cost`".
    pub(super) subject: String,
    /// Its location.
    pub(super) location: SourceLocation,
    /// All entries of the map.
    pub(super) entries: &'a [MapEntry],
    known_names: Vec<&'static str>,
}

impl<'a> FieldReader<'a> {
    /// Opens a map. Any other value is reported.
    pub fn open(
        reader: &mut TreeReader,
        node: &'a SourceNode,
        of: impl Into<String>,
        example: &str,
    ) -> Option<Self> {
        let of = of.into();
        if let SourceValue::Map(entries) = &node.value {
            return Some(Self {
                subject: of,
                location: node.location,
                entries,
                known_names: Vec::new(),
            });
        }
        reader.diagnostics.add(
            node.location,
            format!("{of} must be a map, found {}", describe_node(node)),
            format!("write it as `{example}`"),
        );
        None
    }

    /// The value of a field, if the file sets it. A name without a value is reported.
    pub fn take(&mut self, reader: &mut TreeReader, name: &'static str) -> Option<&'a SourceNode> {
        let entry = self.entry(name)?;
        if matches!(entry.value.value, SourceValue::Null) {
            reader.diagnostics.add(
                entry.name.location,
                format!("{}: `{name}` has no value", self.subject),
                format!("give it one, or leave `{name}` out"),
            );
            return None;
        }
        Some(&entry.value)
    }

    /// The value of a required field.
    pub fn require(
        &mut self,
        reader: &mut TreeReader,
        name: &'static str,
        example: &str,
    ) -> Option<&'a SourceNode> {
        if self.entry(name).is_none() {
            reader.diagnostics.add(
                self.location,
                format!("{} has no `{name}`", self.subject),
                format!("add `{name}: {example}`"),
            );
            return None;
        }
        self.take(reader, name)
    }

    /// Whether the file sets a field, with or without a value.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.entries.iter().any(|entry| &*entry.name.value == name)
    }

    /// The entries that were not read as fields, for maps with free names.
    pub(super) fn unread_entries(&self) -> impl Iterator<Item = &'a MapEntry> + use<'a> {
        let names = self.known_names.clone();
        let entries = self.entries;
        entries
            .iter()
            .filter(move |entry| !names.contains(&&*entry.name.value))
    }

    /// The value of a field, which may be null.
    pub fn find(&mut self, name: &'static str) -> Option<&'a SourceNode> {
        self.entry(name).map(|entry| &entry.value)
    }

    /// Reports all unknown names.
    pub fn finish(self, reader: &mut TreeReader) {
        self.finish_with(reader, |_| None);
    }

    /// Reports all unknown names. `own_help` returns a special suggestion for some of them.
    pub fn finish_with(self, reader: &mut TreeReader, own_help: impl Fn(&str) -> Option<String>) {
        for entry in self.unread_entries() {
            let name = &*entry.name.value;
            let help = own_help(name).unwrap_or_else(|| self.suggestion(name));
            reader.diagnostics.add(
                entry.name.location,
                format!("{}: unknown field {}", self.subject, quote(name)),
                help,
            );
        }
    }

    /// Suggests the field that was probably meant, or lists all fields.
    fn suggestion(&self, name: &str) -> String {
        match nearest_name(name, self.known_names.iter().copied()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None if self.known_names.len() == 1 => {
                format!("the only field is {}", join_names(&self.known_names, "and"))
            }
            None => format!("the fields are {}", join_names(&self.known_names, "and")),
        }
    }

    fn entry(&mut self, name: &'static str) -> Option<&'a MapEntry> {
        if !self.known_names.contains(&name) {
            self.known_names.push(name);
        }
        self.entries.iter().find(|entry| &*entry.name.value == name)
    }
}

/// Joins names in backquotes with commas, and with `word` before the last.
pub(super) fn join_names(names: &[&str], word: &str) -> String {
    let mut text = String::new();
    for (index, name) in names.iter().enumerate() {
        let separator = match index {
            0 => "",
            last if last + 1 == names.len() => &format!(" {word} "),
            _ => ", ",
        };
        text.push_str(separator);
        text.push_str(&format!("`{name}`"));
    }
    text
}
