//! The declaration of a field: its name, what it means if it is left out, what editors and docs/policy.md say about it, the
//! schema of its value, and how its value is read.
//!
//! Each map of a policy has a table of declarations in the file that reads it. The reader, the suggestions for unknown
//! names, the JSON Schema and the field reference are made from these tables, so that a field is declared once. What only
//! holds between several fields is for `check`. Must not know: which fields there are.

use serde_json::Value;

use super::TreeReader;
use super::field_reader::FieldReader;
use crate::source::SourceNode;

/// One field of a map that becomes a `T`.
pub(crate) struct Field<T> {
    pub(crate) spec: FieldSpec,
    /// Puts the value into its place, or reports what is wrong with it. Gets the field's own name.
    read: fn(&mut TreeReader, &SourceNode, &'static str, &mut T),
}

/// What can be said of a field without reading it.
#[derive(Clone, Copy)]
pub(crate) struct FieldSpec {
    pub(crate) name: &'static str,
    pub(crate) default: FieldDefault,
    /// One sentence, for editors and for docs/policy.md.
    pub(crate) doc: &'static str,
    /// The JSON Schema of its value.
    pub(crate) schema: fn() -> Value,
}

/// What it means if a field is left out.
#[derive(Clone, Copy)]
pub(crate) enum FieldDefault {
    /// A mistake. The help shows this value.
    Required(&'static str),
    /// The same as this value.
    Value(&'static str),
    /// What these words say.
    Description(&'static str),
    /// Nothing: there is no such thing then.
    None,
}

impl<T> Field<T> {
    pub(crate) const fn new(
        name: &'static str,
        absent: FieldDefault,
        doc: &'static str,
        schema: fn() -> Value,
        read: fn(&mut TreeReader, &SourceNode, &'static str, &mut T),
    ) -> Self {
        Self {
            spec: FieldSpec {
                name,
                default: absent,
                doc,
                schema,
            },
            read,
        }
    }
}

/// What can be said of the fields of a table.
pub(crate) fn field_specs<T>(table: &[Field<T>]) -> impl Iterator<Item = FieldSpec> {
    table.iter().map(|field| field.spec)
}

impl FieldReader<'_> {
    /// Reads the fields of a table, in its order, into their places.
    pub(super) fn read<T>(&mut self, reader: &mut TreeReader, table: &[Field<T>], target: &mut T) {
        for field in table {
            let name = field.spec.name;
            let node = match field.spec.default {
                FieldDefault::Required(example) => self.require(reader, name, example),
                _ => self.take(reader, name),
            };
            if let Some(node) = node {
                (field.read)(reader, node, name, target);
            }
        }
    }
}

/// Puts a value that could be read into its place.
pub(super) fn set_if_some<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}
