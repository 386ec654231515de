//! What is known of tokens: a bounded table by keyed digest, with what became of each until it has to be verified again.
//!
//! A token itself is never kept. The table has sets of a few entries; in a full set the entry that ends first gives way. Must not
//! know: how tokens are verified.

use std::sync::{Mutex, PoisonError};

/// The entries of a set. A digest belongs to one set, so a look-up compares at most this many.
const SET_SIZE: usize = 8;

/// Values of type `T` by digest.
#[derive(Debug)]
pub(super) struct TokenCache<T> {
    sets: Box<[Mutex<Vec<Entry<T>>>]>,
}

#[derive(Debug)]
struct Entry<T> {
    digest: u128,
    /// The keys that it was verified with.
    keys: u64,
    /// The last second that it is good for, since 1970.
    until: u64,
    value: T,
}

impl<T: Clone> TokenCache<T> {
    /// A table for at most this many tokens. Sets are allocated when they are used.
    pub(super) fn new(tokens: usize) -> Self {
        let sets = tokens.div_ceil(SET_SIZE).max(1);
        Self {
            sets: (0..sets).map(|_| Mutex::default()).collect(),
        }
    }

    /// What is known of a token under these keys at this second.
    pub(super) fn get(&self, digest: u128, keys: u64, now: u64) -> Option<T> {
        let set = self.set(digest)?.lock();
        let set = set.unwrap_or_else(PoisonError::into_inner);
        let entry = set.iter().find(|entry| entry.digest == digest)?;
        (entry.keys == keys && now <= entry.until).then(|| entry.value.clone())
    }

    /// Keeps a value until this second.
    pub(super) fn insert(&self, digest: u128, keys: u64, until: u64, value: T) {
        let Some(set) = self.set(digest) else {
            return;
        };
        let entry = Entry {
            digest,
            keys,
            until,
            value,
        };
        let mut set = set.lock().unwrap_or_else(PoisonError::into_inner);
        let same = set.iter().position(|other| other.digest == digest);
        let place = same.or_else(|| {
            let is_full = set.len() >= SET_SIZE;
            let ends = set.iter().enumerate();
            // Entries of other keys are of no use any more.
            let first = ends.min_by_key(|(_, other)| (other.keys == keys, other.until));
            first.filter(|_| is_full).map(|(index, _)| index)
        });
        match place.and_then(|index| set.get_mut(index)) {
            Some(place) => *place = entry,
            None => set.push(entry),
        }
    }

    fn set(&self, digest: u128) -> Option<&Mutex<Vec<Entry<T>>>> {
        let sets = u128::try_from(self.sets.len()).ok()?;
        let index = usize::try_from(digest.checked_rem(sets)?).ok()?;
        self.sets.get(index)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.sets.iter().map(|set| set.lock().unwrap().len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_lasts_until_its_last_second_and_only_for_its_keys() {
        let cache = TokenCache::new(8);
        cache.insert(7, 1, 100, "a");
        assert_eq!(cache.get(7, 1, 100), Some("a"));
        assert_eq!(cache.get(7, 1, 101), None);
        assert_eq!(cache.get(7, 2, 100), None, "other keys");
        assert_eq!(cache.get(8, 1, 100), None);
        cache.insert(7, 2, 100, "b");
        assert_eq!(cache.get(7, 2, 100), Some("b"));
        assert_eq!(cache.len(), 1);
    }

    #[test]
    fn any_number_of_tokens_takes_no_more_room_than_the_table_has() {
        let cache = TokenCache::new(100);
        for digest in 0..50_000_u128 {
            cache.insert(digest.wrapping_mul(0x9e37_79b9_7f4a_7c15), 1, 50, ());
        }
        assert_eq!(cache.len(), 104);
    }

    #[test]
    fn the_entry_that_ends_first_gives_way() {
        let cache = TokenCache::new(SET_SIZE);
        for digest in 0..8_u64 {
            cache.insert(digest.into(), 1, 100 + digest, digest);
        }
        cache.insert(50, 1, 500, 50);
        assert_eq!(cache.get(0, 1, 1), None);
        assert_eq!(cache.get(1, 1, 1), Some(1));
        assert_eq!(cache.get(50, 1, 1), Some(50));
    }
}
