//! The keys that occur most often among very many, in a fixed amount of memory (Space-Saving, after Metwally, Agrawal
//! and El Abbadi).
//!
//! There are so many places. A key that has one is counted in it; a key that has none takes the place of the key counted
//! least, and inherits that count as the error of its own. So of `n` notes every key with more than `n / MOST_KEYS` has a
//! place, and a count is never too low and too high by at most its error, which is at most `n / MOST_KEYS`. Must not
//! know: what is counted, whose keys they are.

use super::{ComparisonOutcome, DivergingKey};

/// How many keys have a place.
pub const MAX_TRACKED_KEYS: usize = 64;

/// So many bytes of a key are kept to be shown.
const MAX_KEY_BYTES: usize = 96;

#[derive(Clone, Copy, Debug)]
struct SketchEntry {
    digest: [u8; 16],
    would_deny: u64,
    would_allow: u64,
    /// What the keys before it had.
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

/// All room is taken at once; noting a key takes no more.
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

    /// Finds a place for a new key.
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

    /// Who has a place, the highest count first. This allocates, and is for those who read the numbers.
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
    use crate::testing::SeededRng;
    use std::collections::HashMap;

    fn digest(key: u64) -> [u8; 16] {
        u128::from(key).to_be_bytes()
    }

    /// What is wrong with what a sketch says of these true counts.
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

    /// A stream in which a few keys are frequent and very many occur about once.
    fn stream(dice: &mut SeededRng, mut each: impl FnMut(u64)) {
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
    fn frequent_keys_are_there_and_counts_are_within_their_error() {
        for seed in 0..5 {
            let (mut sketch, mut truth) = (Sketch::new(), HashMap::new());
            stream(&mut SeededRng::new(seed), |key| {
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
    fn control_a_sketch_that_forgets_what_it_inherits_is_noticed() {
        let (mut sketch, mut truth) = (Sketch::new(), HashMap::new());
        stream(&mut SeededRng::new(1), |key| {
            sketch.record(digest(key), b"", ComparisonOutcome::WouldDeny);
            for place in &mut sketch.entries {
                place.error = 0;
            }
            *truth.entry(key).or_default() += 1;
        });
        assert!(complaint(&sketch.top(|_| String::new()), &truth).is_some());
    }

    #[test]
    fn both_directions_are_told_apart_and_long_keys_are_cut() {
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
