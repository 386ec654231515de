//! The declaration of a field: its name, default, documentation, JSON Schema, and the function that reads it.
//!
//! Each map of a policy has a table of field declarations in the file that reads it. The reader, the suggestions for
//! unknown names, the JSON Schema and the field reference all use these tables, so each field is declared once. `check`
//! has the rules about several fields. Must not know: which fields there are.

use serde_json::Value;

use super::TreeReader;
use super::field_reader::FieldReader;
use crate::source::SourceNode;

/// One field of a map that becomes a `T`.
pub(crate) struct Field<T> {
    pub(crate) spec: FieldSpec,
    /// Reads the value into the target, or reports a diagnostic. The third argument is the name of the field.
    read: fn(&mut TreeReader, &SourceNode, &'static str, &mut T),
}

/// Everything about a field except the function that reads it.
#[derive(Clone, Copy)]
pub(crate) struct FieldSpec {
    pub(crate) name: &'static str,
    pub(crate) default: FieldDefault,
    /// One sentence, for editors and for docs/policy.md.
    pub(crate) doc: &'static str,
    /// The JSON Schema of its value.
    pub(crate) schema: fn() -> Value,
}

/// What it means to omit a field.
#[derive(Clone, Copy)]
pub(crate) enum FieldDefault {
    /// It is an error. The suggestion uses this example value.
    Required(&'static str),
    /// This value is the default.
    Value(&'static str),
    /// This text describes the default.
    Description(&'static str),
    /// There is no default: the feature is off.
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

/// The specs of all fields in a table.
pub(crate) fn field_specs<T>(table: &[Field<T>]) -> impl Iterator<Item = FieldSpec> {
    table.iter().map(|field| field.spec)
}

impl FieldReader<'_> {
    /// Reads the fields of a table into the target, in the order of the table.
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

/// Assigns the value if it could be read.
pub(super) fn set_if_some<T>(target: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *target = value;
    }
}
