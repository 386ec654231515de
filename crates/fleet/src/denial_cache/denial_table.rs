//! A bounded table of denials: small sets of entries, each behind its own lock.
//!
//! Must not know: when a denial is valid.

use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use siphasher::sip128::{Hasher128 as _, SipHasher24};
use tollgate_core::limit::Limit;
use tollgate_core::{Nanos, QuotaStatus, Timestamp};
use tollgate_store::{LimitId, StoreKey};

/// Entries in one set.
const WAYS: usize = 4;
/// The most sets of a table.
const MAX_SETS: usize = 1 << 24;

/// The id of a denial: the limit, a keyed digest of the key, and the policy's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DenialId {
    limit: LimitId,
    digest: u128,
    generation: u64,
}

/// A cached denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Denial {
    /// The quota that denied.
    pub(super) limit: Limit,
    /// The denied cost.
    pub(super) cost: u64,
    /// Until when that cost is denied.
    pub(super) denied_until: Timestamp,
    /// How long the call took. The store decided at most this much later.
    pub(super) round_trip: Nanos,
    /// The limit's status, and when the call was sent.
    pub(super) status: QuotaStatus,
    pub(super) sent_at: Timestamp,
    /// Until when the denial is cached.
    pub(super) expires_at: Timestamp,
    /// The limit of the same batch with a longer wait, if there was one.
    pub(super) bound_by: Option<LimitId>,
}

type Set = [Option<(DenialId, Denial)>; WAYS];

pub(super) struct DenialTable {
    sets: Box<[Mutex<Set>]>,
    secret: [u64; 2],
}

impl DenialTable {
    pub(super) fn with_capacity(entries: usize) -> Self {
        let sets = entries.div_ceil(WAYS).clamp(1, MAX_SETS);
        let random = || RandomState::new().build_hasher().finish();
        Self {
            sets: (0..sets.next_power_of_two())
                .map(|_| Mutex::new([None; WAYS]))
                .collect(),
            secret: [random(), random()],
        }
    }

    /// Two keys with the same digest would share denials, so the digest has 128 bits and a secret key.
    pub(super) fn id(&self, key: &StoreKey<'_>, limit: LimitId, generation: u64) -> DenialId {
        let [one, two] = self.secret;
        let mut hasher = SipHasher24::new_with_keys(one, two);
        key.encode(|bytes| hasher.write(bytes));
        hasher.write_u16(limit.0.get());
        DenialId {
            limit,
            digest: hasher.finish128().as_u128(),
            generation,
        }
    }

    /// Whether the table holds this denial.
    pub(super) fn contains(&self, id: &DenialId) -> bool {
        let set = self.set(id);
        set.is_some_and(|set| set.iter().flatten().any(|(other, _)| other == id))
    }

    pub(super) fn get(&self, id: &DenialId) -> Option<Denial> {
        let set = self.set(id)?;
        let entry = set.iter().flatten().find(|(other, _)| other == id);
        entry.map(|(_, denial)| *denial)
    }

    /// Stores a denial. It replaces the entry of the same key, an empty or expired one, or the one that expires first.
    pub(super) fn put(&self, id: &DenialId, denial: Denial, now: Timestamp) {
        let Some(mut set) = self.set(id) else {
            return;
        };
        let value_of = |entry: &Option<(DenialId, Denial)>| match entry {
            Some((other, _)) if other.is_same_key(id) => (0, Timestamp::EPOCH),
            None => (1, Timestamp::EPOCH),
            Some((_, denial)) if denial.expires_at <= now => (2, denial.expires_at),
            Some((_, denial)) => (3, denial.expires_at),
        };
        if let Some(entry) = set.iter_mut().min_by_key(|entry| value_of(entry)) {
            *entry = Some((*id, denial));
        }
    }

    pub(super) fn remove(&self, id: &DenialId) {
        let Some(mut set) = self.set(id) else {
            return;
        };
        for entry in &mut *set {
            if entry.is_some_and(|(other, _)| other.is_same_key(id)) {
                *entry = None;
            }
        }
    }

    pub(super) fn clear(&self) {
        for set in &self.sets {
            *lock(set) = [None; WAYS];
        }
    }

    fn set(&self, id: &DenialId) -> Option<MutexGuard<'_, Set>> {
        // The number of sets is a power of two.
        let mask = self.sets.len().wrapping_sub(1);
        let low_bits = usize::try_from(id.digest & u128::from(u32::MAX)).unwrap_or(0);
        self.sets.get(low_bits & mask).map(lock)
    }
}

impl DenialId {
    /// The digest of the key and the limit.
    pub(super) const fn digest(&self) -> u128 {
        self.digest
    }

    /// Whether it is the same key of the same limit, under any version of the policy.
    fn is_same_key(&self, other: &Self) -> bool {
        (self.limit, self.digest) == (other.limit, other.digest)
    }
}

impl fmt::Debug for DenialTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("sets", &self.sets.len())
            .finish_non_exhaustive()
    }
}

/// An entry is written whole, so a poisoned lock leaves it consistent.
fn lock(set: &Mutex<Set>) -> MutexGuard<'_, Set> {
    set.lock().unwrap_or_else(PoisonError::into_inner)
}
