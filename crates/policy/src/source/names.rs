//! Names that stand twice in one map, of which one silently wins in most readers.
//!
//! Must not know: formats, fields.

use std::collections::HashMap;

use super::node::{Node, Place, Value};
use super::problem::Problem;

/// Every name that stands in its map a second time, wherever in the tree.
#[must_use]
pub fn given_twice(tree: &Node) -> Vec<Problem> {
    let mut problems = Vec::new();
    find(tree, &mut problems);
    problems
}

fn find(node: &Node, problems: &mut Vec<Problem>) {
    match &node.value {
        Value::Nothing | Value::Scalar { .. } => {}
        Value::List(values) => {
            for value in values {
                find(value, problems);
            }
        }
        Value::Map(entries) => {
            let mut first: HashMap<&str, Place> = HashMap::new();
            for entry in entries {
                let name = &*entry.name.value;
                if let Some(before) = first.get(name) {
                    problems.push(twice(name, entry.name.place, before.line));
                } else {
                    first.insert(name, entry.name.place);
                }
                find(&entry.value, problems);
            }
        }
    }
}

/// The problem of one name.
pub(super) fn twice(name: &str, place: Place, first_line: u32) -> Problem {
    Problem::new(
        place,
        format!("`{name}` is given twice; first on line {first_line}"),
        "keep one of the two",
    )
}
