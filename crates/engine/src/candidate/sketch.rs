//! The most frequent keys of a stream in fixed memory: the Space-Saving algorithm of Metwally, Agrawal and El Abbadi.
//!
//! The sketch has a fixed number of entries. A key with an entry increments it. A key without one replaces the entry
//! with the lowest count, and inherits that count as its error. After `n` records, every key with more than `n /
//! MAX_TRACKED_KEYS` of them has an entry. A count is never too low; it is too high by at most its error, and the error
//! is at most `n / MAX_TRACKED_KEYS`. Must not know: what is counted, whose keys they are.

use super::{ComparisonOutcome, DivergingKey};

/// The number of tracked keys.
pub const MAX_TRACKED_KEYS: usize = 64;

/// The most bytes of a key that are kept for display.
const MAX_KEY_BYTES: usize = 96;

#[derive(Clone, Copy, Debug)]
struct SketchEntry {
    digest: [u8; 16],
    would_deny: u64,
    would_allow: u64,
    /// The count inherited from the replaced entry.
    error: u64,
    key: [u8; MAX_KEY_BYTES],
    len: u8,
}

impl SketchEntry {
    const fn count(&self) -> u64 {
        self.error
            .saturating_add(self.would_deny)
            .saturating_add(self.would_allow)
    }

    fn key_prefix(&self) -> &[u8] {
        self.key.get(..usize::from(self.len)).unwrap_or_default()
    }
}

/// All memory is allocated at construction; recording a key allocates nothing.
#[derive(Debug)]
pub(super) struct Sketch {
    entries: Vec<SketchEntry>,
}

impl Sketch {
    pub(super) fn new() -> Self {
        Self {
            entries: Vec::with_capacity(MAX_TRACKED_KEYS),
        }
    }

    pub(super) fn record(&mut self, digest: [u8; 16], key: &[u8], outcome: ComparisonOutcome) {
        let existing = self.entries.iter().position(|entry| entry.digest == digest);
        let index = existing.or_else(|| self.insert(digest, key));
        if let Some(entry) = index.and_then(|index| self.entries.get_mut(index)) {
            match outcome {
                ComparisonOutcome::Same => {}
                ComparisonOutcome::WouldDeny => {
                    entry.would_deny = entry.would_deny.saturating_add(1);
                }
                ComparisonOutcome::WouldAllow => {
                    entry.would_allow = entry.would_allow.saturating_add(1);
                }
            }
        }
    }

    /// Inserts a new key, replacing the least frequent one if the sketch is full.
    fn insert(&mut self, digest: [u8; 16], key: &[u8]) -> Option<usize> {
        let len = key.len().min(MAX_KEY_BYTES);
        let mut entry = SketchEntry {
            digest,
            would_deny: 0,
            would_allow: 0,
            error: 0,
            key: [0; MAX_KEY_BYTES],
            len: u8::try_from(len).unwrap_or(0),
        };
        if let (Some(buffer), Some(key)) = (entry.key.get_mut(..len), key.get(..len)) {
            buffer.copy_from_slice(key);
        }
        if self.entries.len() < MAX_TRACKED_KEYS {
            self.entries.push(entry);
            return self.entries.len().checked_sub(1);
        }
        let indexed = self.entries.iter().enumerate();
        let (least, replaced) = indexed.min_by_key(|(_, entry)| entry.count())?;
        entry.error = replaced.count();
        *self.entries.get_mut(least)? = entry;
        Some(least)
    }

    /// The tracked keys, the highest count first. Allocates: for readers, not for decisions.
    pub(super) fn top(&self, readable: impl Fn(&[u8]) -> String) -> Vec<DivergingKey> {
        let mut entries: Vec<&SketchEntry> = self.entries.iter().collect();
        entries.sort_by_key(|entry| (std::cmp::Reverse(entry.count()), entry.digest));
        let key = |entry: &SketchEntry| DivergingKey {
            key: readable(entry.key_prefix()),
            digest: entry.digest,
            would_deny: entry.would_deny,
            would_allow: entry.would_allow,
            error: entry.error,
        };
        entries.into_iter().map(key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SeededRng;
    use std::collections::HashMap;

    fn digest(key: u64) -> [u8; 16] {
        u128::from(key).to_be_bytes()
    }

    /// The first property that a sketch violates, given the true counts.
    fn violation(top: &[DivergingKey], truth: &HashMap<u64, u64>) -> Option<String> {
        let n: u64 = truth.values().sum();
        let most_error = n / u64::try_from(MAX_TRACKED_KEYS).unwrap();
        for entry in top {
            let key = u64::try_from(u128::from_be_bytes(entry.digest)).unwrap();
            let (true_count, least) = (truth[&key], entry.would_deny + entry.would_allow);
            if !(least..=least + entry.error).contains(&true_count) {
                return Some(format!(
                    "{key}: {true_count} is not {least} + {}",
                    entry.error
                ));
            }
            if entry.error > most_error {
                return Some(format!("{key}: an error of {} in {n}", entry.error));
            }
        }
        let is_there = |key: u64| top.iter().any(|entry| entry.digest == digest(key));
        let missing = truth
            .iter()
            .find(|(key, count)| **count > most_error && !is_there(**key));
        missing.map(|(key, count)| format!("{key} occurred {count} times and is missing"))
    }

    /// A stream with a few frequent keys and many that occur about once.
    fn stream(rng: &mut SeededRng, mut each: impl FnMut(u64)) {
        for _ in 0..20_000 {
            let key = match rng.below(3) {
                0 => rng.below(10),
                1 => 100 + rng.below(200),
                _ => 1_000 + rng.below(100_000),
            };
            each(key);
        }
    }

    #[test]
    fn frequent_keys_are_tracked_and_counts_are_within_their_error() {
        for seed in 0..5 {
            let (mut sketch, mut truth) = (Sketch::new(), HashMap::new());
            stream(&mut SeededRng::new(seed), |key| {
                sketch.record(digest(key), b"", ComparisonOutcome::WouldDeny);
                *truth.entry(key).or_default() += 1;
            });
            assert_eq!(
                violation(&sketch.top(|_| String::new()), &truth),
                None,
                "seed {seed}"
            );
            assert_eq!(sketch.entries.capacity(), MAX_TRACKED_KEYS);
        }
    }

    #[test]
    fn control_a_sketch_without_inherited_errors_is_caught() {
        let (mut sketch, mut truth) = (Sketch::new(), HashMap::new());
        stream(&mut SeededRng::new(1), |key| {
            sketch.record(digest(key), b"", ComparisonOutcome::WouldDeny);
            for entry in &mut sketch.entries {
                entry.error = 0;
            }
            *truth.entry(key).or_default() += 1;
        });
        assert!(violation(&sketch.top(|_| String::new()), &truth).is_some());
    }

    #[test]
    fn both_directions_are_counted_separately_and_long_keys_are_truncated() {
        let mut sketch = Sketch::new();
        let long = [b'x'; 200];
        sketch.record(digest(1), &long, ComparisonOutcome::WouldAllow);
        sketch.record(digest(1), &long, ComparisonOutcome::WouldDeny);
        sketch.record(digest(1), &long, ComparisonOutcome::WouldDeny);
        let top = sketch.top(|key| key.len().to_string());
        assert_eq!(
            (top[0].would_deny, top[0].would_allow, top[0].error),
            (2, 1, 0)
        );
        assert_eq!(top[0].key, MAX_KEY_BYTES.to_string());
    }
}
