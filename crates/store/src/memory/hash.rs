//! Where a key lives in the table and what stands for it there, under a secret that no caller knows.
//!
//! The hash is fast rather than cryptographic: without the secret, which never leaves the process except into a snapshot
//! that only its owner can read, nobody can aim keys at one group or at another key. Must not know: what is stored.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};

use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;

use crate::contract::LimitId;
use crate::key::StoreKey;

/// The process's secret.
pub(super) struct HashSeed {
    words: [u64; 2],
    shared: SharedSeed,
}

/// Sixty-four bits that stand for one key under one limit. Two of a million keys share them by chance about once in
/// forty million tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StateHash {
    hash: u64,
    limit: LimitId,
}

impl HashSeed {
    /// A new secret from the system's randomness. A model checker needs the same one every time.
    pub(super) fn random() -> Self {
        if cfg!(loom) {
            return Self::from_words([1, 2]);
        }
        let word = || RandomState::new().build_hasher().finish();
        Self::from_words([word(), word()])
    }

    /// The secret that these words were taken from.
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

    /// The key by itself, hashed once however many limits it is asked about.
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

    /// Several parts, each with its length; under a seed that no single part has.
    fn hash_parts(&self, key: &StoreKey<'_>) -> KeyHash {
        let mut hasher = FoldHasher::with_seed(!self.words[0], &self.shared);
        key.encode_parts(|len, part| {
            hasher.write_u16(len);
            hasher.write(part);
        });
        KeyHash(hasher.finish())
    }
}

/// A key's hash, the same under every limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyHash(u64);

impl KeyHash {
    /// Where the key lives under this limit. The fast hash leaves some bits weak; folding the product with the limit in
    /// it spreads both over all of them, so the same key under another limit is another key.
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
        f.write_str("Secret(…)")
    }
}

impl StateHash {
    /// The place that these were taken from.
    pub(super) const fn from_parts(hash: u64, limit: LimitId) -> Self {
        Self { hash, limit }
    }

    /// Whose state it is.
    pub(super) const fn limit(self) -> LimitId {
        self.limit
    }

    /// Which of `count` groups the key belongs to.
    #[inline]
    pub(super) fn primary_group(self, count: usize) -> usize {
        spread(self.hash, count)
    }

    /// Where it goes when there is no room at home.
    #[inline]
    pub(super) fn alternate_group(self, count: usize) -> usize {
        spread(
            self.hash
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29),
            count,
        )
    }

    /// What stands for the key in a slot: its limit, and the bits of the hash that its group does not tell. Never
    /// zero, because no limit is number zero.
    #[inline]
    pub(super) fn tag(self) -> u64 {
        (u64::from(self.limit.0.get()) << 48) | (self.hash & ((1 << 48) - 1))
    }

    /// Where in a group of `slots` to look first.
    #[inline]
    pub(super) fn preferred_slot(self, slots: usize) -> usize {
        // Three bits that neither choose the group, below 2^32 of them, nor are the lowest of the tag.
        let bits = usize::try_from((self.hash >> 24) & 7).unwrap_or(0);
        if bits < slots { bits } else { bits - slots }
    }

    /// Bits for other structures that are keyed the same way.
    pub(super) const fn bits(self) -> u64 {
        self.hash
    }
}

/// A uniform word as a uniform number below `count`: the high half of their product.
#[inline]
fn spread(word: u64, count: usize) -> usize {
    let product = u128::from(word).wrapping_mul(count as u128);
    usize::try_from(product >> 64).unwrap_or(0)
}

/// The limit that a tag belongs to.
#[inline]
pub(super) const fn limit_of(tag: u64) -> u16 {
    let [high, low, ..] = tag.to_be_bytes();
    u16::from_be_bytes([high, low])
}
