//! Names that stand twice in one map, of which one silently wins in most readers.
//!
//! Must not know: formats, fields.

use std::collections::HashMap;

use super::diagnostic::Diagnostic;
use super::node::{SourceLocation, SourceNode, SourceValue};

/// Every name that stands in its map a second time, wherever in the tree.
#[must_use]
pub fn find_duplicate_names(tree: &SourceNode) -> Vec<Diagnostic> {
    let mut problems = Vec::new();
    find(tree, &mut problems);
    problems
}

fn find(node: &SourceNode, problems: &mut Vec<Diagnostic>) {
    match &node.value {
        SourceValue::Null | SourceValue::Scalar { .. } => {}
        SourceValue::List(values) => {
            for value in values {
                find(value, problems);
            }
        }
        SourceValue::Map(entries) => {
            let mut first: HashMap<&str, SourceLocation> = HashMap::new();
            for entry in entries {
                let name = &*entry.name.value;
                if let Some(before) = first.get(name) {
                    problems.push(duplicate_name(name, entry.name.location, before.line));
                } else {
                    first.insert(name, entry.name.location);
                }
                find(&entry.value, problems);
            }
        }
    }
}

/// The problem of one name.
pub(super) fn duplicate_name(name: &str, place: SourceLocation, first_line: u32) -> Diagnostic {
    Diagnostic::new(
        place,
        format!("`{name}` is given twice; first on line {first_line}"),
        "keep one of the two",
    )
}
