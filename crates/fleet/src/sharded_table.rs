//! A bounded table by key, sharded over several locks that are held for a few instructions.
//!
//! Must not know: what it stores.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use siphasher::sip128::{Hasher128 as _, SipHasher24};
use tollgate_store::{LimitId, StoreKey};

/// The number of shards, each with its own lock.
const SHARDS: usize = 64;

/// The keyed digest of a key and its limit.
pub(crate) type KeyDigest = u128;

/// A shard of the table, and its totals.
#[derive(Debug)]
pub(crate) struct Shard<E, C> {
    pub(crate) entries: HashMap<KeyDigest, Box<E>, BuildHasherDefault<DigestHasher>>,
    pub(crate) totals: C,
}

pub(crate) struct ShardedTable<E, C> {
    shards: Box<[Mutex<Shard<E, C>>]>,
    max_per_shard: usize,
    secret: [u64; 2],
}

impl<E, C: Default> ShardedTable<E, C> {
    pub(crate) fn with_capacity(keys: usize) -> Self {
        let random = || RandomState::new().build_hasher().finish();
        Self {
            shards: (0..SHARDS).map(|_| Mutex::new(empty_shard())).collect(),
            max_per_shard: keys.div_ceil(SHARDS).max(1),
            secret: [random(), random()],
        }
    }

    /// Two keys with the same digest would share a lease, so the digest has 128 bits and a secret key.
    pub(crate) fn digest(&self, key: &StoreKey<'_>, limit: LimitId) -> KeyDigest {
        let [one, two] = self.secret;
        let mut hasher = SipHasher24::new_with_keys(one, two);
        key.encode(|bytes| hasher.write(bytes));
        hasher.write_u16(limit.0.get());
        hasher.finish128().as_u128()
    }

    pub(crate) fn shard(&self, digest: KeyDigest) -> Option<MutexGuard<'_, Shard<E, C>>> {
        let index = usize::try_from(digest >> 96).unwrap_or(0) % SHARDS;
        self.shard_at(index)
    }

    /// The shard at this index.
    pub(crate) fn shard_at(&self, index: usize) -> Option<MutexGuard<'_, Shard<E, C>>> {
        // Entries are consistent whenever the lock is free, and no code under the lock panics.
        let lock = |shard| Mutex::lock(shard).unwrap_or_else(PoisonError::into_inner);
        self.shards.get(index).map(lock)
    }

    pub(crate) const fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// Whether a shard has no room for another key.
    pub(crate) fn is_full(&self, shard: &Shard<E, C>) -> bool {
        shard.entries.len() >= self.max_per_shard
    }
}

fn empty_shard<E, C: Default>() -> Shard<E, C> {
    Shard {
        entries: HashMap::default(),
        totals: C::default(),
    }
}

impl<E, C> fmt::Debug for ShardedTable<E, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("most", &self.max_per_shard)
            .finish_non_exhaustive()
    }
}

/// A hasher for keys that are digests already.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DigestHasher(u64);

impl Hasher for DigestHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u128(&mut self, digest: u128) {
        self.0 = u64::try_from(digest & u128::from(u64::MAX)).unwrap_or(0);
    }
}
