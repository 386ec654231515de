//! The tree of descriptors, and the path of a request's entries through it.
//!
//! There is one level for each entry. A level first tries the node with exactly `key_value`, then its patterns in the order of
//! the file, then the node with only the key. The search never backtracks, even if nothing below the chosen node matches.
//! Walking allocates nothing. Must not know: files, counters, rules.

use std::collections::HashMap;

use super::pattern::{JoinedEntry, Pattern};
use super::pattern_index::PatternIndex;
use super::request::{DescriptorEntry, MAX_ENTRIES};

/// The descriptor trees of all domains.
#[derive(Debug, Default)]
pub(super) struct DescriptorTree {
    nodes: Vec<DescriptorNode>,
    /// Nodes by their parent and the hash of their text.
    index: HashMap<(u32, u64), u32>,
    domains: HashMap<Box<str>, u32>,
}

/// A node of the tree.
#[derive(Debug, Default)]
struct DescriptorNode {
    text: Box<str>,
    /// Another node with the same parent and hash.
    next_with_same_hash: Option<u32>,
    patterns: PatternIndex,
    has_children: bool,
    rule: Option<u32>,
    options: NodeOptions,
}

/// Options of a node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NodeOptions {
    /// `share_threshold`: all values that match its pattern share a counter.
    pub(super) shared: bool,
    /// `value_to_metric`
    pub(super) value_to_metric: bool,
}

/// The path of a request's entries: the node of each entry.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DescriptorPath {
    nodes: [u32; MAX_ENTRIES],
    /// The entries that matched a pattern; one bit each.
    by_pattern: u16,
    /// The entries that matched by their key only.
    by_key: u16,
    /// The entries that are counted by their pattern.
    shared: u16,
}

impl DescriptorPath {
    /// Whether any entry is counted by its pattern.
    pub(super) const fn is_shared(&self) -> bool {
        self.shared != 0
    }
}

impl DescriptorTree {
    /// The names of all domains, unordered.
    pub(super) fn domains(&self) -> impl Iterator<Item = &str> {
        self.domains.keys().map(|name| &**name)
    }

    /// The root of a domain, if the domain is known.
    pub(super) fn domain(&self, name: &str) -> Option<u32> {
        self.domains.get(name).copied()
    }

    /// Adds a domain and returns its root. It replaces a domain of the same name.
    pub(super) fn add_domain(&mut self, name: &str) -> u32 {
        let root = self.push(DescriptorNode::default());
        self.domains.insert(name.into(), root);
        root
    }

    /// Adds a node below another. The error is the existing node with the same text.
    pub(super) fn add(
        &mut self,
        parent: u32,
        reads: &str,
        options: NodeOptions,
    ) -> Result<u32, u32> {
        let text = JoinedEntry::from_text(reads);
        if let Some(known) = self.child(parent, &text) {
            return Err(known);
        }
        let key = (parent, text.hash());
        let node = self.push(DescriptorNode {
            text: reads.into(),
            next_with_same_hash: self.index.get(&key).copied(),
            options,
            ..DescriptorNode::default()
        });
        self.index.insert(key, node);
        if let Some(parent_node) = self.node_mut(parent) {
            parent_node.has_children = true;
            if let Some(pattern) = Pattern::parse(reads) {
                parent_node.patterns.push(pattern, node);
            }
        }
        Ok(node)
    }

    /// Sets the rule of a node.
    pub(super) fn set_rule(&mut self, node: u32, rule: u32) {
        if let Some(node) = self.node_mut(node) {
            node.rule = Some(rule);
        }
    }

    /// The rule that applies to the entries, and their path. The rule must be at the node of the last entry.
    pub(super) fn find(
        &self,
        domain: u32,
        entries: &[DescriptorEntry<'_>],
    ) -> Option<(u32, DescriptorPath)> {
        let mut path = DescriptorPath::default();
        let mut at = domain;
        for ((index, entry), step) in entries.iter().enumerate().zip(&mut path.nodes) {
            let bit = 1_u16.checked_shl(u32::try_from(index).ok()?)?;
            let both = JoinedEntry::from_entry(entry);
            let current = self.node(at)?;
            if !current.has_children {
                return None;
            }
            at = if let Some(node) = self.child(at, &both) {
                node
            } else if let Some(node) = current.patterns.find(&both) {
                path.by_pattern |= bit;
                if self.node(node)?.options.shared {
                    path.shared |= bit;
                }
                node
            } else {
                path.by_key |= bit;
                self.child(at, &JoinedEntry::from_text(entry.key))?
            };
            *step = at;
        }
        let rule = self.node(at)?.rule?;
        Some((rule, path))
    }

    /// The text by which an entry's value is counted: the pattern if its threshold is shared, else the value.
    pub(super) fn counted_value<'a>(
        &'a self,
        path: &DescriptorPath,
        index: usize,
        entry: &DescriptorEntry<'a>,
    ) -> &'a str {
        if !has_bit(path.shared, index) {
            return entry.value;
        }
        match self.value_pattern(path, index, entry) {
            "" => entry.value,
            pattern => pattern,
        }
    }

    /// The text of an entry's value in the metric's name.
    pub(super) fn metric_value<'a>(
        &'a self,
        path: &DescriptorPath,
        index: usize,
        entry: &DescriptorEntry<'a>,
    ) -> &'a str {
        let to_metric = || {
            let node = path.nodes.get(index).and_then(|&node| self.node(node));
            node.is_some_and(|node| node.options.value_to_metric)
        };
        if has_bit(path.by_pattern, index) {
            if has_bit(path.shared, index) {
                self.counted_value(path, index, entry)
            } else if to_metric() {
                entry.value
            } else {
                self.value_pattern(path, index, entry)
            }
        } else if has_bit(path.by_key, index) && !to_metric() {
            ""
        } else {
            entry.value
        }
    }

    /// The value part of a node's pattern.
    fn value_pattern<'a>(
        &'a self,
        path: &DescriptorPath,
        index: usize,
        entry: &DescriptorEntry<'_>,
    ) -> &'a str {
        let node = path.nodes.get(index).and_then(|&node| self.node(node));
        let reads = node.map_or("", |node| &node.text);
        let value = reads
            .strip_prefix(entry.key)
            .and_then(|rest| rest.strip_prefix('_'));
        value.unwrap_or(reads)
    }

    fn child(&self, parent: u32, text: &JoinedEntry<'_>) -> Option<u32> {
        let mut next = self.index.get(&(parent, text.hash())).copied();
        while let Some(id) = next {
            let node = self.node(id)?;
            if text.equals(&node.text) {
                return Some(id);
            }
            next = node.next_with_same_hash;
        }
        None
    }

    fn push(&mut self, node: DescriptorNode) -> u32 {
        // The size of files bounds the number of nodes far below this.
        let id = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        self.nodes.push(node);
        id
    }

    fn node(&self, id: u32) -> Option<&DescriptorNode> {
        self.nodes.get(usize::try_from(id).ok()?)
    }

    fn node_mut(&mut self, id: u32) -> Option<&mut DescriptorNode> {
        self.nodes.get_mut(usize::try_from(id).ok()?)
    }
}

fn has_bit(bits: u16, index: usize) -> bool {
    let shift = u32::try_from(index).unwrap_or(u32::MAX);
    bits.checked_shr(shift).is_some_and(|bits| bits & 1 == 1)
}
