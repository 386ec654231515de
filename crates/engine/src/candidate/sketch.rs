//! The keys that occur most often among very many, in a fixed amount of memory (Space-Saving, after Metwally, Agrawal
//! and El Abbadi).
//!
//! There are so many places. A key that has one is counted in it; a key that has none takes the place of the key counted
//! least, and inherits that count as the error of its own. So of `n` notes every key with more than `n / MOST_KEYS` has a
//! place, and a count is never too low and too high by at most its error, which is at most `n / MOST_KEYS`. Must not
//! know: what is counted, whose keys they are.

use super::{Compared, DivergingKey};

/// How many keys have a place.
pub const MOST_KEYS: usize = 64;

/// So many bytes of a key are kept to be shown.
const SHOWN: usize = 96;

#[derive(Clone, Copy, Debug)]
struct Place {
    digest: [u8; 16],
    would_deny: u64,
    would_allow: u64,
    /// What the keys before it had.
    error: u64,
    key: [u8; SHOWN],
    len: u8,
}

impl Place {
    const fn count(&self) -> u64 {
        self.error
            .saturating_add(self.would_deny)
            .saturating_add(self.would_allow)
    }

    fn shown(&self) -> &[u8] {
        self.key.get(..usize::from(self.len)).unwrap_or_default()
    }
}

/// All room is taken at once; noting a key takes no more.
#[derive(Debug)]
pub(super) struct Sketch {
    places: Vec<Place>,
}

impl Sketch {
    pub(super) fn new() -> Self {
        Self {
            places: Vec::with_capacity(MOST_KEYS),
        }
    }

    pub(super) fn note(&mut self, digest: [u8; 16], key: &[u8], what: Compared) {
        let known = self.places.iter().position(|one| one.digest == digest);
        let at = known.or_else(|| self.settle(digest, key));
        if let Some(place) = at.and_then(|at| self.places.get_mut(at)) {
            match what {
                Compared::Alike => {}
                Compared::WouldDeny => place.would_deny = place.would_deny.saturating_add(1),
                Compared::WouldAllow => place.would_allow = place.would_allow.saturating_add(1),
            }
        }
    }

    /// Finds a place for a new key.
    fn settle(&mut self, digest: [u8; 16], key: &[u8]) -> Option<usize> {
        let len = key.len().min(SHOWN);
        let mut place = Place {
            digest,
            would_deny: 0,
            would_allow: 0,
            error: 0,
            key: [0; SHOWN],
            len: u8::try_from(len).unwrap_or(0),
        };
        if let (Some(room), Some(key)) = (place.key.get_mut(..len), key.get(..len)) {
            room.copy_from_slice(key);
        }
        if self.places.len() < MOST_KEYS {
            self.places.push(place);
            return self.places.len().checked_sub(1);
        }
        let counted = self.places.iter().enumerate();
        let (least, gone) = counted.min_by_key(|(_, one)| one.count())?;
        place.error = gone.count();
        *self.places.get_mut(least)? = place;
        Some(least)
    }

    /// Who has a place, the highest count first. This allocates, and is for those who read the numbers.
    pub(super) fn top(&self, readable: impl Fn(&[u8]) -> String) -> Vec<DivergingKey> {
        let mut places: Vec<&Place> = self.places.iter().collect();
        places.sort_by_key(|one| (std::cmp::Reverse(one.count()), one.digest));
        let key = |one: &Place| DivergingKey {
            key: readable(one.shown()),
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

    /// What is wrong with what a sketch says of these true counts.
    fn complaint(top: &[DivergingKey], truth: &HashMap<u64, u64>) -> Option<String> {
        let n: u64 = truth.values().sum();
        let most_error = n / u64::try_from(MOST_KEYS).unwrap();
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
    fn frequent_keys_are_there_and_counts_are_within_their_error() {
        for seed in 0..5 {
            let (mut sketch, mut truth) = (Sketch::new(), HashMap::new());
            stream(&mut Dice::new(seed), |key| {
                sketch.note(digest(key), b"", Compared::WouldDeny);
                *truth.entry(key).or_default() += 1;
            });
            assert_eq!(
                complaint(&sketch.top(|_| String::new()), &truth),
                None,
                "seed {seed}"
            );
            assert_eq!(sketch.places.capacity(), MOST_KEYS);
        }
    }

    #[test]
    fn control_a_sketch_that_forgets_what_it_inherits_is_noticed() {
        let (mut sketch, mut truth) = (Sketch::new(), HashMap::new());
        stream(&mut Dice::new(1), |key| {
            sketch.note(digest(key), b"", Compared::WouldDeny);
            for place in &mut sketch.places {
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
        sketch.note(digest(1), &long, Compared::WouldAllow);
        sketch.note(digest(1), &long, Compared::WouldDeny);
        sketch.note(digest(1), &long, Compared::WouldDeny);
        let top = sketch.top(|key| key.len().to_string());
        assert_eq!(
            (top[0].would_deny, top[0].would_allow, top[0].error),
            (2, 1, 0)
        );
        assert_eq!(top[0].key, SHOWN.to_string());
    }
}
