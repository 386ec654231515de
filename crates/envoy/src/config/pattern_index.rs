//! Finds the first pattern of a level that an entry matches, without trying all of them.
//!
//! Patterns are indexed by the text before their first star. An entry's prefixes are hashed, and at each length that
//! occurs in the index, the patterns with that prefix are tried in the order of the file. Must not know: rules.

use std::collections::HashMap;

use super::pattern::{JoinedEntry, Pattern};

/// Patterns in the order of the file, and the node of each.
#[derive(Debug, Default)]
pub(super) struct PatternIndex {
    list: Vec<(Pattern, u32)>,
    /// The lengths of prefixes, sorted and without duplicates.
    prefix_lengths: Vec<usize>,
    /// The patterns of each prefix, in the order of the file, by the prefix's hash.
    by_prefix: HashMap<u64, Vec<usize>>,
}

impl PatternIndex {
    /// Adds a pattern after all others.
    pub(super) fn push(&mut self, pattern: Pattern, node: u32) {
        let beginning = pattern.prefix();
        if let Err(index) = self.prefix_lengths.binary_search(&beginning.len()) {
            self.prefix_lengths.insert(index, beginning.len());
        }
        let candidates = self
            .by_prefix
            .entry(JoinedEntry::from_text(beginning).hash());
        candidates.or_default().push(self.list.len());
        self.list.push((pattern, node));
    }

    /// The node of the first pattern that an entry matches.
    pub(super) fn find(&self, text: &JoinedEntry<'_>) -> Option<u32> {
        let mut first = None;
        for hash in text.prefix_hashes(&self.prefix_lengths) {
            let Some(candidates) = self.by_prefix.get(&hash) else {
                continue;
            };
            let before = |index: &&usize| first.is_none_or(|(found, _)| **index < found);
            let mut candidates = candidates.iter().take_while(before);
            let found = candidates.find_map(|&index| {
                let (pattern, node) = self.list.get(index)?;
                pattern.matches(text).then_some((index, *node))
            });
            first = found.or(first);
        }
        first.map(|(_, node)| node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::request::DescriptorEntry;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_matching_pattern_is_found_as_by_trying_all(
            patterns in vec("[ab_]{0,4}\\*[ab*]{0,3}", 0..12),
            key in "[ab]{0,3}",
            value in "[ab_]{0,6}",
        ) {
            let entry = DescriptorEntry::new(&key, &value);
            let text = JoinedEntry::from_entry(&entry);
            let mut all = PatternIndex::default();
            let mut expected = None;
            for (pattern, node) in patterns.iter().zip(0..) {
                let pattern = Pattern::parse(pattern).unwrap();
                if pattern.matches(&text) && expected.is_none() {
                    expected = Some(node);
                }
                all.push(pattern, node);
            }
            prop_assert_eq!(all.find(&text), expected);
        }
    }
}
