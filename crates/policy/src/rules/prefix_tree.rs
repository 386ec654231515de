//! Texts by what they begin with: all stored beginnings of a value, found while reading it once.
//!
//! Read backwards, the same finds endings. Must not know: globs, attributes.

/// Values under beginnings.
#[derive(Debug)]
pub(super) struct PrefixTree<T> {
    nodes: Vec<PrefixNode<T>>,
}

#[derive(Debug)]
struct PrefixNode<T> {
    values: Vec<T>,
    /// By their first bytes, ascending; labels are never empty.
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

    /// Adds a value under a beginning.
    pub(super) fn add(&mut self, beginning: &[u8], value: T) {
        let mut at = 0;
        let mut rest = beginning;
        while let Some(first) = rest.first() {
            let fresh = self.nodes.len();
            let Some(node) = self.nodes.get_mut(at) else {
                return;
            };
            match node.edges.binary_search_by_key(first, |edge| edge.first) {
                Err(place) => {
                    node.edges.insert(place, Edge::new(rest, fresh));
                    self.nodes.push(PrefixNode::empty());
                    at = fresh;
                    rest = &[];
                }
                Ok(place) => {
                    let Some(edge) = node.edges.get_mut(place) else {
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
                        // The label forks: a node in between takes over what follows the fork.
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

    /// Visits the values under all beginnings of the bytes, the shortest first.
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
                .and_then(|place| node.edges.get(place))
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
    fn all_beginnings_of_a_value_are_found_and_no_others() {
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
            let mut found = Vec::new();
            prefixes.visit(value.bytes(), |index| found.push(*index));
            found.sort_unstable();
            let expected: Vec<usize> = (0..texts.len())
                .filter(|index| value.starts_with(texts[*index]))
                .collect();
            assert_eq!(found, expected, "{value}");
        }
    }
}
