//! Values with a YAML anchor, and the copies that aliases make of them.
//!
//! Ten anchors of ten aliases each are ten billion values. So copies count against the same bounds as values that are written
//! out: the number of values, the depth, and the bytes of text. Must not know: events of the YAML library, fields.

use std::collections::{HashMap, HashSet};

use super::diagnostic::Diagnostic;
use super::node::{MapEntry, SourceLocation, SourceNode, SourceValue};
use super::{MAX_BYTES, MAX_DEPTH, MAX_NODES, too_deep, too_many};

/// The anchored values so far, by the number of the anchor.
#[derive(Default)]
pub(super) struct Anchors {
    values: HashMap<usize, Anchored>,
    /// The values that are kept: an anchor inside another is kept twice.
    kept_nodes: usize,
    /// The bytes of all texts that aliases have copied.
    copied_bytes: usize,
}

struct Anchored {
    node: SourceNode,
    size: TreeSize,
}

/// What a tree counts against the bounds.
#[derive(Clone, Copy, Default)]
struct TreeSize {
    /// Values and names.
    nodes: usize,
    depth: usize,
    bytes: usize,
}

impl Anchors {
    /// Keeps a value for later aliases. A later anchor of the same name has another number.
    pub(super) fn insert(&mut self, anchor: usize, node: &SourceNode) -> Result<(), Diagnostic> {
        let size = measure(node);
        self.kept_nodes = self.kept_nodes.saturating_add(size.nodes);
        if self.kept_nodes > MAX_NODES {
            return Err(too_many(node.location));
        }
        let node = node.clone();
        self.values.insert(anchor, Anchored { node, size });
        Ok(())
    }

    /// A copy of the value that an alias at this location stands for. `nodes` counts the values of the file, `depth` the
    /// collections around the alias.
    pub(super) fn copy(
        &mut self,
        anchor: usize,
        location: SourceLocation,
        nodes: &mut usize,
        depth: usize,
    ) -> Result<SourceValue, Diagnostic> {
        let Some(anchored) = self.values.get(&anchor) else {
            return Err(Diagnostic::new(
                location,
                "this alias is inside the value that it stands for",
                "a value cannot contain itself; write the fields out",
            ));
        };
        let size = anchored.size;
        *nodes = nodes.saturating_add(size.nodes);
        self.copied_bytes = self.copied_bytes.saturating_add(size.bytes);
        if *nodes > MAX_NODES {
            return Err(too_many(location));
        }
        if depth.saturating_add(size.depth) > MAX_DEPTH {
            return Err(too_deep(location));
        }
        if self.copied_bytes > MAX_BYTES {
            return Err(Diagnostic::new(
                location,
                format!("aliases stand for more than {MAX_BYTES} bytes of text"),
                "use fewer aliases of long texts",
            ));
        }
        Ok(anchored.node.value.clone())
    }
}

fn measure(node: &SourceNode) -> TreeSize {
    let add = |sum: TreeSize, part: TreeSize| TreeSize {
        nodes: sum.nodes.saturating_add(part.nodes),
        depth: sum.depth.max(part.depth),
        bytes: sum.bytes.saturating_add(part.bytes),
    };
    let named = |entry: &MapEntry| {
        let mut size = measure(&entry.value);
        size.nodes = size.nodes.saturating_add(1);
        size.bytes = size.bytes.saturating_add(entry.name.value.len());
        size
    };
    let (inside, is_collection) = match &node.value {
        SourceValue::Null => (TreeSize::default(), false),
        SourceValue::Scalar { text, .. } => {
            let bytes = text.len();
            (
                TreeSize {
                    bytes,
                    ..TreeSize::default()
                },
                false,
            )
        }
        SourceValue::List(values) => (
            values.iter().map(measure).fold(TreeSize::default(), add),
            true,
        ),
        SourceValue::Map(entries) => (
            entries.iter().map(named).fold(TreeSize::default(), add),
            true,
        ),
    };
    TreeSize {
        nodes: inside.nodes.saturating_add(1),
        depth: inside.depth.saturating_add(usize::from(is_collection)),
        bytes: inside.bytes,
    }
}

/// The entries of a merge key's value: of one map, or of several, the earlier ones first. `None` if it is something else.
pub(super) fn merged_entries(value: SourceValue) -> Option<Vec<MapEntry>> {
    match value {
        SourceValue::Map(entries) => Some(entries),
        SourceValue::List(maps) => {
            let entries = maps.into_iter().map(|map| match map.value {
                SourceValue::Map(entries) => Some(entries),
                _ => None,
            });
            Some(entries.collect::<Option<Vec<_>>>()?.concat())
        }
        _ => None,
    }
}

/// Adds merged entries to a map. A name that the map has itself wins, then the first one that is merged.
pub(super) fn merge(entries: &mut Vec<MapEntry>, merged: Vec<MapEntry>) {
    if merged.is_empty() {
        return;
    }
    let mut names: HashSet<Box<str>> = entries
        .iter()
        .map(|entry| entry.name.value.clone())
        .collect();
    for entry in merged {
        if names.insert(entry.name.value.clone()) {
            entries.push(entry);
        }
    }
}
