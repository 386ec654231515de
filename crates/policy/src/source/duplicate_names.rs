//! Duplicate names in a map.
//!
//! Must not know: formats, fields.

use std::collections::HashMap;

use super::diagnostic::Diagnostic;
use super::node::{SourceLocation, SourceNode, SourceValue};

/// Finds every duplicate name in the tree.
#[must_use]
pub fn find_duplicate_names(tree: &SourceNode) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    find(tree, &mut diagnostics);
    diagnostics
}

fn find(node: &SourceNode, diagnostics: &mut Vec<Diagnostic>) {
    match &node.value {
        SourceValue::Null | SourceValue::Scalar { .. } => {}
        SourceValue::List(values) => {
            for value in values {
                find(value, diagnostics);
            }
        }
        SourceValue::Map(entries) => {
            let mut first: HashMap<&str, SourceLocation> = HashMap::new();
            for entry in entries {
                let name = &*entry.name.value;
                if let Some(before) = first.get(name) {
                    diagnostics.push(duplicate_name(name, entry.name.location, before.line));
                } else {
                    first.insert(name, entry.name.location);
                }
                find(&entry.value, diagnostics);
            }
        }
    }
}

/// The diagnostic of one duplicate.
pub(super) fn duplicate_name(name: &str, location: SourceLocation, first_line: u32) -> Diagnostic {
    Diagnostic::new(
        location,
        format!("`{name}` is given twice; first on line {first_line}"),
        "keep one of the two",
    )
}
