//! A prefix tree: finds all stored prefixes of a value in one pass.
//!
//! With reversed input it finds suffixes. Must not know: globs, attributes.

/// Values by prefix.
#[derive(Debug)]
pub(super) struct PrefixTree<T> {
    nodes: Vec<PrefixNode<T>>,
}

#[derive(Debug)]
struct PrefixNode<T> {
    values: Vec<T>,
    /// Sorted by first byte; labels are never empty.
    edges: Vec<Edge>,
}

#[derive(Debug)]
struct Edge {
    first: u8,
    label: Box<[u8]>,
    to: usize,
}

impl<T> PrefixTree<T> {
    pub(super) fn new() -> Self {
        Self {
            nodes: vec![PrefixNode::empty()],
        }
    }

    /// Adds a value under a prefix.
    pub(super) fn add(&mut self, beginning: &[u8], value: T) {
        let mut at = 0;
        let mut rest = beginning;
        while let Some(first) = rest.first() {
            let fresh = self.nodes.len();
            let Some(node) = self.nodes.get_mut(at) else {
                return;
            };
            match node.edges.binary_search_by_key(first, |edge| edge.first) {
                Err(position) => {
                    node.edges.insert(position, Edge::new(rest, fresh));
                    self.nodes.push(PrefixNode::empty());
                    at = fresh;
                    rest = &[];
                }
                Ok(position) => {
                    let Some(edge) = node.edges.get_mut(position) else {
                        return;
                    };
                    let shared = edge
                        .label
                        .iter()
                        .zip(rest)
                        .take_while(|(a, b)| a == b)
                        .count();
                    at = edge.to;
                    if shared < edge.label.len() {
                        // Splits the edge: a new node takes the rest of the label.
                        let (head, tail) = edge.label.split_at(shared);
                        let below = Edge::new(tail, edge.to);
                        *edge = Edge::new(head, fresh);
                        self.nodes.push(PrefixNode {
                            values: Vec::new(),
                            edges: vec![below],
                        });
                        at = fresh;
                    }
                    rest = rest.get(shared..).unwrap_or_default();
                }
            }
        }
        if let Some(node) = self.nodes.get_mut(at) {
            node.values.push(value);
        }
    }

    /// Visits the values of all prefixes of the bytes, shortest first.
    pub(super) fn visit(&self, mut bytes: impl Iterator<Item = u8>, mut visit: impl FnMut(&T)) {
        let mut at = self.nodes.first();
        while let Some(node) = at {
            node.values.iter().for_each(&mut visit);
            if node.edges.is_empty() {
                return;
            }
            let Some(first) = bytes.next() else {
                return;
            };
            let Some(edge) = node
                .edges
                .binary_search_by_key(&first, |edge| edge.first)
                .ok()
                .and_then(|position| node.edges.get(position))
            else {
                return;
            };
            if !edge
                .label
                .iter()
                .skip(1)
                .all(|expected| bytes.next() == Some(*expected))
            {
                return;
            }
            at = self.nodes.get(edge.to);
        }
    }
}

impl<T> PrefixNode<T> {
    const fn empty() -> Self {
        Self {
            values: Vec::new(),
            edges: Vec::new(),
        }
    }
}

impl Edge {
    fn new(label: &[u8], to: usize) -> Self {
        Self {
            first: label.first().copied().unwrap_or(0),
            label: label.into(),
            to,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_prefixes_of_a_value_are_found_and_no_others() {
        let texts = [
            "", "a", "abc", "abd", "abcde", "b", "ab", "abc", "/files/", "/fi",
        ];
        let mut prefixes = PrefixTree::new();
        for (index, text) in texts.iter().enumerate() {
            prefixes.add(text.as_bytes(), index);
        }
        for value in [
            "", "a", "ab", "abc", "abcd", "abcdef", "abx", "c", "/files/x", "/file",
        ] {
            let mut matched = Vec::new();
            prefixes.visit(value.bytes(), |index| matched.push(*index));
            matched.sort_unstable();
            let expected: Vec<usize> = (0..texts.len())
                .filter(|index| value.starts_with(texts[*index]))
                .collect();
            assert_eq!(matched, expected, "{value}");
        }
    }
}
