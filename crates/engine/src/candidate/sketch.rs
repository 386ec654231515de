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

    pub(super) fn record(&mut self, digest: [u8; 16], key: &[u8], what: ComparisonOutcome) {
        let known = self.entries.iter().position(|one| one.digest == digest);
        let at = known.or_else(|| self.insert(digest, key));
        if let Some(place) = at.and_then(|at| self.entries.get_mut(at)) {
            match what {
                ComparisonOutcome::Same => {}
                ComparisonOutcome::WouldDeny => {
                    place.would_deny = place.would_deny.saturating_add(1)
                }
                ComparisonOutcome::WouldAllow => {
                    place.would_allow = place.would_allow.saturating_add(1)
                }
            }
        }
    }

    /// Inserts a new key, replacing the least frequent one if the sketch is full.
    fn insert(&mut self, digest: [u8; 16], key: &[u8]) -> Option<usize> {
        let len = key.len().min(MAX_KEY_BYTES);
        let mut place = SketchEntry {
            digest,
            would_deny: 0,
            would_allow: 0,
            error: 0,
            key: [0; MAX_KEY_BYTES],
            len: u8::try_from(len).unwrap_or(0),
        };
        if let (Some(room), Some(key)) = (place.key.get_mut(..len), key.get(..len)) {
            room.copy_from_slice(key);
        }
        if self.entries.len() < MAX_TRACKED_KEYS {
            self.entries.push(place);
            return self.entries.len().checked_sub(1);
        }
        let counted = self.entries.iter().enumerate();
        let (least, gone) = counted.min_by_key(|(_, one)| one.count())?;
        place.error = gone.count();
        *self.entries.get_mut(least)? = place;
        Some(least)
    }

    /// The tracked keys, the highest count first. Allocates: for readers, not for decisions.
    pub(super) fn top(&self, readable: impl Fn(&[u8]) -> String) -> Vec<DivergingKey> {
        let mut places: Vec<&SketchEntry> = self.entries.iter().collect();
        places.sort_by_key(|one| (std::cmp::Reverse(one.count()), one.digest));
        let key = |one: &SketchEntry| DivergingKey {
            key: readable(one.key_prefix()),
            digest: one.digest,
            would_deny: one.would_deny,
            would_allow: one.would_allow,
            error: one.error,
        };
        places.into_iter().map(key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Dice;
    use std::collections::HashMap;

    fn digest(key: u64) -> [u8; 16] {
        u128::from(key).to_be_bytes()
    }

    /// The first property that a sketch violates, given the true counts.
    fn complaint(top: &[DivergingKey], truth: &HashMap<u64, u64>) -> Option<String> {
        let n: u64 = truth.values().sum();
        let most_error = n / u64::try_from(MAX_TRACKED_KEYS).unwrap();
        for one in top {
            let key = u64::try_from(u128::from_be_bytes(one.digest)).unwrap();
            let (true_count, least) = (truth[&key], one.would_deny + one.would_allow);
            if !(least..=least + one.error).contains(&true_count) {
                return Some(format!(
                    "{key}: {true_count} is not {least} + {}",
                    one.error
                ));
            }
            if one.error > most_error {
                return Some(format!("{key}: an error of {} in {n}", one.error));
            }
        }
        let is_there = |key: u64| top.iter().any(|one| one.digest == digest(key));
        let missing = truth
            .iter()
            .find(|(key, count)| **count > most_error && !is_there(**key));
        missing.map(|(key, count)| format!("{key} occurred {count} times and is missing"))
    }

    /// A stream with a few frequent keys and many that occur about once.
    fn stream(dice: &mut Dice, mut each: impl FnMut(u64)) {
        for _ in 0..20_000 {
            let key = match dice.below(3) {
                0 => dice.below(10),
                1 => 100 + dice.below(200),
                _ => 1_000 + dice.below(100_000),
            };
            each(key);
        }
    }

    #[test]
    fn frequent_keys_are_tracked_and_counts_are_within_their_error() {
        for seed in 0..5 {
            let (mut sketch, mut truth) = (Sketch::new(), HashMap::new());
            stream(&mut Dice::new(seed), |key| {
                sketch.record(digest(key), b"", ComparisonOutcome::WouldDeny);
                *truth.entry(key).or_default() += 1;
            });
            assert_eq!(
                complaint(&sketch.top(|_| String::new()), &truth),
                None,
                "seed {seed}"
            );
            assert_eq!(sketch.entries.capacity(), MAX_TRACKED_KEYS);
        }
    }

    #[test]
    fn control_a_sketch_without_inherited_errors_is_caught() {
        let (mut sketch, mut truth) = (Sketch::new(), HashMap::new());
        stream(&mut Dice::new(1), |key| {
            sketch.record(digest(key), b"", ComparisonOutcome::WouldDeny);
            for place in &mut sketch.entries {
                place.error = 0;
            }
            *truth.entry(key).or_default() += 1;
        });
        assert!(complaint(&sketch.top(|_| String::new()), &truth).is_some());
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
