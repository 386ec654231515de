//! Charges that were admitted without the store, to be replayed when it recovers: one sum for each key of each limit.
//!
//! The table is bounded; what does not fit is counted as dropped. Charges of a call whose reply was lost are not
//! recorded, because they might be charged twice. Must not know: what decided instead.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use tollgate_core::compose::BatchOutcome;
use tollgate_store::{IdentifiedLimit, LimitId, Op, QuotaCheck, StoreError, StoreKey, StoreReply};

use crate::fleet::Fleet;

/// The most keys that one round replays, so that a store that has just recovered is not overloaded.
const MAX_PER_ROUND: usize = 4_096;
/// The number of shards, each with its own lock. Every decision without the store takes one of them.
const SHARDS: usize = 64;

/// A key of a limit. Lookups borrow it, so that a known key needs no allocation.
#[derive(Debug)]
struct ReplayKey {
    limit: LimitId,
    key: Box<[u8]>,
}

/// The same, borrowed or owned.
trait AsReplayKey {
    fn parts(&self) -> (LimitId, &[u8]);
}

impl AsReplayKey for ReplayKey {
    fn parts(&self) -> (LimitId, &[u8]) {
        (self.limit, &self.key)
    }
}

impl AsReplayKey for (LimitId, &[u8]) {
    fn parts(&self) -> (LimitId, &[u8]) {
        *self
    }
}

impl PartialEq for dyn AsReplayKey + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for dyn AsReplayKey + '_ {}

impl Hash for dyn AsReplayKey + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (limit, key) = self.parts();
        state.write_u16(limit.0.get());
        state.write(key);
    }
}

impl PartialEq for ReplayKey {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for ReplayKey {}

impl Hash for ReplayKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self as &dyn AsReplayKey).hash(state);
    }
}

impl<'a> Borrow<dyn AsReplayKey + 'a> for ReplayKey {
    fn borrow(&self) -> &(dyn AsReplayKey + 'a) {
        self
    }
}

/// Charges by limit and key.
type Sums = HashMap<ReplayKey, UnreportedSpend, RandomState>;

/// Charges to replay.
#[derive(Debug)]
pub(crate) struct Replay {
    shards: Box<[Mutex<Sums>]>,
    /// The number of keys in all shards.
    count: AtomicUsize,
    max_keys: usize,
    dropped: AtomicU64,
}

/// The charges of one key.
#[derive(Clone, Debug)]
struct UnreportedSpend {
    partition: usize,
    slot_key: Option<Box<[u8]>>,
    limit: IdentifiedLimit,
    cost: u64,
}

impl Replay {
    pub(crate) fn for_keys(max_keys: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            count: AtomicUsize::new(0),
            max_keys,
            dropped: AtomicU64::new(0),
        }
    }

    /// Records a charge that its partition of the store does not know of.
    pub(crate) fn record(
        &self,
        partition: usize,
        check: &QuotaCheck<'_>,
        slot_key: Option<&StoreKey<'_>>,
        cost: u64,
    ) {
        let (Some(key), true) = (check.key.single(), cost > 0) else {
            return;
        };
        let key_ref: &dyn AsReplayKey = &(check.limit.id, key);
        let Some(mut spent) = self.shards.get(shard_of(key)).map(lock) else {
            return;
        };
        if let Some(existing) = spent.get_mut(key_ref) {
            existing.cost = existing.cost.saturating_add(cost);
            if existing.limit != *check.limit {
                existing.limit = *check.limit;
            }
        } else if self.count.load(Ordering::Relaxed) >= self.max_keys {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        } else {
            let replay_key = ReplayKey {
                limit: check.limit.id,
                key: Box::from(key),
            };
            let spend = UnreportedSpend {
                partition,
                slot_key: slot_key.and_then(StoreKey::single).map(Box::from),
                limit: *check.limit,
                cost,
            };
            spent.insert(replay_key, spend);
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Takes some of the charges of one partition.
    fn take_due(&self, partition: usize) -> Vec<(Box<[u8]>, UnreportedSpend)> {
        let mut all = Vec::new();
        if self.count.load(Ordering::Relaxed) == 0 {
            return all;
        }
        for shard in &self.shards {
            let mut spent = lock(shard);
            let mut capacity = MAX_PER_ROUND.saturating_sub(all.len());
            let is_due = |_: &ReplayKey, spend: &mut UnreportedSpend| {
                let is_due = spend.partition == partition && capacity > 0;
                capacity = capacity.saturating_sub(usize::from(is_due));
                is_due
            };
            let due = spent.extract_if(is_due);
            all.extend(due.map(|(replay_key, spend)| (replay_key.key, spend)));
        }
        self.count.fetch_sub(all.len(), Ordering::Relaxed);
        all
    }
}

/// The shard of a key, by its last bytes, where keys differ. Keys with the same end share a lock.
fn shard_of(key: &[u8]) -> usize {
    let end = match key.last_chunk::<8>() {
        Some(end) => u64::from_le_bytes(*end),
        None => key.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    };
    let mixed = end.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    usize::try_from(mixed).unwrap_or(0) % SHARDS
}

/// Entries are written whole, so a poisoned lock leaves them consistent.
fn lock(shard: &Mutex<Sums>) -> MutexGuard<'_, Sums> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fleet {
    /// Replays charges to a partition of the store. After an error the remaining ones are kept for the next time,
    /// except for those that the store may have charged.
    pub(crate) async fn replay_partition(&self, partition: usize) -> Result<(), StoreError> {
        let mut due = self.replay.take_due(partition).into_iter();
        while let Some((key, spend)) = due.next() {
            let result = self.replay_one(&key, &spend).await;
            let Err(error) = result else {
                self.counters.count_replayed();
                continue;
            };
            let may_be_charged = error.may_have_charged() || error.is_callers_fault();
            let uncharged = (!may_be_charged).then_some((key, spend));
            for (key, spend) in uncharged.into_iter().chain(due) {
                if let Ok(key) = StoreKey::new(&key) {
                    let check = QuotaCheck {
                        key,
                        limit: &spend.limit,
                        op: Op::ChargeAlways(spend.cost),
                    };
                    let slot_key = spend
                        .slot_key
                        .as_deref()
                        .and_then(|slot_key| StoreKey::new(slot_key).ok());
                    self.replay
                        .record(partition, &check, slot_key.as_ref(), spend.cost);
                }
            }
            return Err(error);
        }
        Ok(())
    }

    async fn replay_one(
        &self,
        key: &[u8],
        spend: &UnreportedSpend,
    ) -> Result<BatchOutcome, StoreError> {
        let Ok(key) = StoreKey::new(key) else {
            return Ok(BatchOutcome::default());
        };
        let checks = [QuotaCheck {
            key,
            limit: &spend.limit,
            op: Op::ChargeAlways(spend.cost),
        }];
        let slot_keys = [spend
            .slot_key
            .as_deref()
            .and_then(|slot_key| StoreKey::new(slot_key).ok())];
        let mut replies = [StoreReply::EMPTY];
        self.remote.decide(&slot_keys, &checks, &mut replies).await
    }
}
