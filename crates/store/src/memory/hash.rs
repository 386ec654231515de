//! Hashes of keys: their groups, slots and tags in a table, keyed by a random seed.
//!
//! The hash is fast, not cryptographic. The seed leaves the process only in a snapshot, which only its owner can read.
//! Without the seed no caller can aim keys at one group or at another key. Must not know: what is stored.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};

use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;

use crate::contract::LimitId;
use crate::key::StoreKey;

/// The random seed of one store.
pub(super) struct HashSeed {
    words: [u64; 2],
    shared: SharedSeed,
}

/// A 64-bit hash that stands for one key under one limit. Two of a million keys collide in about one of forty million
/// tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StateHash {
    hash: u64,
    limit: LimitId,
}

impl HashSeed {
    /// A new seed from the system's randomness. Loom needs the same seed every time.
    pub(super) fn random() -> Self {
        if cfg!(loom) {
            return Self::from_words([1, 2]);
        }
        let word = || RandomState::new().build_hasher().finish();
        Self::from_words([word(), word()])
    }

    /// The seed with these words.
    pub(super) fn from_words(words: [u64; 2]) -> Self {
        Self {
            words,
            shared: SharedSeed::from_u64(words[1]),
        }
    }

    pub(super) const fn words(&self) -> [u64; 2] {
        self.words
    }

    #[inline]
    pub(super) fn hash_state(&self, key: &StoreKey<'_>, limit: LimitId) -> StateHash {
        self.hash_key(key).for_limit(limit)
    }

    /// The hash of the key alone, computed once for any number of limits.
    #[inline]
    pub(super) fn hash_key(&self, key: &StoreKey<'_>) -> KeyHash {
        match key.single() {
            Some(part) => {
                let mut hasher = FoldHasher::with_seed(self.words[0], &self.shared);
                hasher.write(part);
                KeyHash(hasher.finish())
            }
            None => self.hash_parts(key),
        }
    }

    /// Hashes the keys of one batch.
    #[inline]
    pub(super) const fn hasher(&self) -> BatchHasher<'_, '_> {
        BatchHasher {
            seed: self,
            last: None,
        }
    }

    /// Hashes several parts, each with its length, under another seed than a single part.
    fn hash_parts(&self, key: &StoreKey<'_>) -> KeyHash {
        let mut hasher = FoldHasher::with_seed(!self.words[0], &self.shared);
        key.encode_parts(|len, part| {
            hasher.write_u16(len);
            hasher.write(part);
        });
        KeyHash(hasher.finish())
    }
}

/// Hashes the keys of a batch. Most limits of a request have the same key: it is hashed once.
pub(super) struct BatchHasher<'s, 'k> {
    seed: &'s HashSeed,
    /// The previous key, if it has one part, and its hash.
    last: Option<(&'k [u8], KeyHash)>,
}

impl<'k> BatchHasher<'_, 'k> {
    #[inline(always)]
    pub(super) fn hash_state(&mut self, key: &StoreKey<'k>, limit: LimitId) -> StateHash {
        let part = key.single();
        let key_hash = match (self.last, part) {
            (Some((known, key_hash)), Some(part)) if std::ptr::eq(known, part) => key_hash,
            _ => {
                let key_hash = self.seed.hash_key(key);
                self.last = part.map(|part| (part, key_hash));
                key_hash
            }
        };
        key_hash.for_limit(limit)
    }
}

/// The hash of a key, the same under every limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyHash(u64);

impl KeyHash {
    /// The hash of this key under this limit. The fast hash leaves some bits weak. Folding the product with the limit
    /// mixes both into all bits, so the same key under another limit is another hash.
    #[inline]
    pub(super) fn for_limit(self, limit: LimitId) -> StateHash {
        let word = self.0 ^ (u64::from(limit.0.get()) << 48);
        let product = u128::from(word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let [high, low] = [product >> 64, product & u128::from(u64::MAX)];
        let hash = u64::try_from(high).unwrap_or(0) ^ u64::try_from(low).unwrap_or(0);
        StateHash { hash, limit }
    }
}

impl fmt::Debug for HashSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashSeed(…)")
    }
}

impl StateHash {
    /// The hash with these components.
    pub(super) const fn from_parts(hash: u64, limit: LimitId) -> Self {
        Self { hash, limit }
    }

    /// The limit of the state.
    pub(super) const fn limit(self) -> LimitId {
        self.limit
    }

    /// The index of the key's primary group, of `count` groups.
    #[inline]
    pub(super) fn primary_group(self, count: usize) -> usize {
        spread(self.hash, count)
    }

    /// The index of the group to use when the primary group is full.
    #[inline]
    pub(super) fn alternate_group(self, count: usize) -> usize {
        spread(
            self.hash
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29),
            count,
        )
    }

    /// The tag that stands for the key in a slot: its limit, and the bits of the hash that the group does not
    /// determine. Never zero, because limit ids are not zero.
    #[inline]
    pub(super) fn tag(self) -> u64 {
        (u64::from(self.limit.0.get()) << 48) | (self.hash & ((1 << 48) - 1))
    }

    /// The slot to try first in a group of `slots`.
    #[inline]
    pub(super) fn preferred_slot(self, slots: usize) -> usize {
        // Bits that neither select the group (below 2^32 groups) nor are the lowest bits of the tag.
        let bits = usize::try_from((self.hash >> 16) & 0xffff).unwrap_or(0);
        (bits * slots) >> 16
    }

    /// The hash, for other structures with the same keys.
    pub(super) const fn bits(self) -> u64 {
        self.hash
    }
}

/// Maps a uniform word to a uniform number below `count`: the upper half of their product.
#[inline]
fn spread(word: u64, count: usize) -> usize {
    let product = u128::from(word).wrapping_mul(count as u128);
    usize::try_from(product >> 64).unwrap_or(0)
}

/// The limit id in a tag.
#[inline]
pub(super) const fn limit_of(tag: u64) -> u16 {
    let [high, low, ..] = tag.to_be_bytes();
    u16::from_be_bytes([high, low])
}
