//! States of variable size: logs, leases, and the reservations of any limit. They are sharded, with one lock per shard,
//! and bounded in number and in bytes.
//!
//! An expired state counts as absent. A full shard evicts the state whose loss refunds the least, but never one that
//! holds a lease or a reservation, nor one of a denied key. Must not know: words, slots, batches.

mod shard;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tollgate_core::limit::{Limit, State};
use tollgate_core::reservation::{ReservationLedger, ReservationOptions};
use tollgate_core::{Nanos, Timestamp};

use self::shard::{BatchClaim, ENTRY_BYTES, limit_if_variable};
pub(super) use self::shard::{VariableState, VariableStateShard};
use super::hash::StateHash;
use crate::contract::{LimitId, MAX_CHECKS};

/// States in one shard.
const STATES_PER_SHARD: usize = 8;
/// Shards in one block: eight kibibytes, allocated in one to two microseconds.
const SHARDS_PER_BLOCK: usize = 256;
/// How far the bytes may exceed their budget: each thread checks the budget before it adds the entries of a batch.
const EXCESS_BYTES: usize = 1 << 20;
/// How long a reservation is kept after it has expired.
const RESERVATION_RETENTION: Nanos = Nanos::MINUTE;
/// The largest number of reservations under one key of one limit.
const MAX_RESERVATIONS: usize = 1_024;

/// All shards, in blocks that are allocated on first use. A store without variable states allocates none.
#[derive(Debug)]
pub(super) struct VariableStates {
    shard_blocks: Box<[OnceLock<ShardBlock>]>,
    count: usize,
    /// Budget and current use of bytes, over all states.
    budget: usize,
    used: AtomicUsize,
    evictions: AtomicU64,
    /// Retention of expired reservations, and the largest number under one key.
    retention: Nanos,
    max_records: usize,
}

type ShardBlock = Box<[Mutex<VariableStateShard>]>;

impl VariableStates {
    /// Shards for about `keys` keys, whose states may use `budget` bytes.
    pub(super) fn new(keys: usize, budget: usize) -> Self {
        let count = keys.div_ceil(STATES_PER_SHARD / 2).max(1);
        let mut cases = Vec::new();
        cases.resize_with(count.div_ceil(SHARDS_PER_BLOCK), OnceLock::new);
        Self {
            shard_blocks: cases.into_boxed_slice(),
            count,
            budget,
            used: AtomicUsize::new(0),
            evictions: AtomicU64::new(0),
            retention: RESERVATION_RETENTION,
            max_records: MAX_RESERVATIONS,
        }
    }

    /// Sets how reservations are kept.
    pub(super) const fn set_reservation_options(&mut self, retention: Nanos, max_records: usize) {
        (self.retention, self.max_records) = (retention, max_records);
    }

    /// The options of a reservation with this hold.
    pub(super) const fn reservation_options(&self, hold: Nanos) -> ReservationOptions {
        ReservationOptions {
            hold,
            retention: self.retention,
            max_records: self.max_records,
        }
    }

    /// The index of a key's shard: the lock order.
    pub(super) fn index(&self, hash: StateHash) -> usize {
        hash.primary_group(self.count)
    }

    pub(super) fn lock(&self, index: usize) -> Option<MutexGuard<'_, VariableStateShard>> {
        // A panic under the lock leaves consistent states: each change is a single call.
        let block = self
            .shard_blocks
            .get(index / SHARDS_PER_BLOCK)?
            .get_or_init(|| {
                let mut block = Vec::new();
                block.resize_with(SHARDS_PER_BLOCK, Mutex::default);
                block.into_boxed_slice()
            });
        let shard = block.get(index % SHARDS_PER_BLOCK)?;
        Some(shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The key's state, inserted if it is missing, and claimed until [`end_batch`](Self::end_batch). `None` if there is
    /// no room. Bytes for growth are checked separately.
    pub(super) fn get_or_insert<'a>(
        &self,
        shard: &'a mut VariableStateShard,
        hash: StateHash,
        limit: &Limit,
        now: Timestamp,
    ) -> Option<&'a mut VariableState> {
        let index = match shard.position(hash) {
            Some(index) => index,
            None => self.insert(shard, hash, limit, now)?,
        };
        let entry = shard.states.get_mut(index)?;
        // The quota may have changed since, and with it how long the state counts.
        entry.limit = limit_if_variable(limit);
        if entry.claim == BatchClaim::None {
            entry.claim = BatchClaim::Known;
        }
        Some(entry)
    }

    /// Whether one more entry fits, after deleting expired states of the shard.
    pub(super) fn has_room_to_grow(&self, shard: &mut VariableStateShard, now: Timestamp) -> bool {
        if !self.has_bytes() {
            self.clear_expired(shard, now);
        }
        self.has_bytes()
    }

    /// Ends a batch on this shard: removes inserted states that stayed empty, then evicts states until the shard fits.
    pub(super) fn end_batch(&self, shard: &mut VariableStateShard, now: Timestamp) {
        self.retain(shard, |entry| {
            entry.claim != BatchClaim::New || !entry.is_blank()
        });
        while shard.states.len() > STATES_PER_SHARD {
            let Some((priority, victim)) = shard.eviction_candidate(now) else {
                break;
            };
            let entry = shard.states.swap_remove(victim);
            self.used.fetch_sub(entry.bytes, Ordering::Relaxed);
            self.evictions
                .fetch_add(u64::from(priority > 0), Ordering::Relaxed);
        }
        for entry in &mut shard.states {
            entry.claim = BatchClaim::None;
        }
    }

    /// All allocated shards, one after the other, each locked while it is in use.
    pub(super) fn shards(&self) -> impl Iterator<Item = MutexGuard<'_, VariableStateShard>> {
        let allocated = self.shard_blocks.iter().filter_map(OnceLock::get);
        allocated
            .flatten()
            .map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// Whether a state with this many entries could fit, in a store that threads have filled as far as they can.
    pub(super) fn can_hold(&self, entries: usize) -> bool {
        let bytes = entries
            .saturating_mul(ENTRY_BYTES)
            .saturating_add(size_of::<VariableState>());
        self.used().saturating_add(bytes) <= self.budget.saturating_add(EXCESS_BYTES)
    }

    /// Restores a state from a snapshot. Returns false if it cannot have been saved: its key exists already, or the
    /// shard has more states than a batch can leave.
    pub(super) fn restore(
        &self,
        hash: StateHash,
        limit: Option<Limit>,
        state: State,
        ledger: ReservationLedger,
    ) -> bool {
        let mut entry = VariableState {
            hash,
            limit,
            state,
            ledger,
            bytes: 0,
            claim: BatchClaim::None,
        };
        let Some(mut shard) = self.lock(self.index(hash)) else {
            return false;
        };
        if shard.position(hash).is_some() || shard.states.len() >= STATES_PER_SHARD + MAX_CHECKS {
            return false;
        }
        self.recount_bytes(&mut entry);
        shard.states.push(entry);
        true
    }

    /// Replaces the old quota of one limit by the new one in every state.
    pub(super) fn replace_limit(&self, id: LimitId, old: &Limit, new: &Limit) {
        // States that are in a table have no quota here.
        let (Some(old), Some(new)) = (limit_if_variable(old), limit_if_variable(new)) else {
            return;
        };
        for mut shard in self.shards() {
            let of_limit = |entry: &&mut VariableState| entry.hash.limit() == id;
            for entry in shard.states.iter_mut().filter(of_limit) {
                if entry.limit == Some(old) {
                    entry.limit = Some(new);
                }
            }
        }
    }

    /// Removes all states of a limit.
    pub(super) fn remove_limit(&self, id: LimitId) {
        for mut shard in self.shards() {
            self.retain(&mut shard, |entry| entry.hash.limit() != id);
        }
    }

    /// Live states that were evicted.
    pub(super) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    /// Counts a state's bytes again after a change.
    pub(super) fn recount_bytes(&self, entry: &mut VariableState) {
        let bytes = entry.size_in_bytes();
        self.used.fetch_add(bytes, Ordering::Relaxed);
        self.used.fetch_sub(entry.bytes, Ordering::Relaxed);
        entry.bytes = bytes;
    }

    /// Removes a key's state. Returns whether there was one.
    pub(super) fn remove(&self, shard: &mut VariableStateShard, hash: StateHash) -> bool {
        let Some(index) = shard.position(hash) else {
            return false;
        };
        let entry = shard.states.swap_remove(index);
        self.used.fetch_sub(entry.bytes, Ordering::Relaxed);
        true
    }

    /// Bytes of all states.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn has_bytes(&self) -> bool {
        self.used().saturating_add(ENTRY_BYTES) <= self.budget
    }

    fn clear_expired(&self, shard: &mut VariableStateShard, now: Timestamp) {
        let options = self.reservation_options(Nanos::ZERO);
        self.retain(shard, |entry| {
            entry.claim != BatchClaim::None || !entry.is_expired(now, &options)
        });
    }

    fn retain(&self, shard: &mut VariableStateShard, is_kept: impl Fn(&VariableState) -> bool) {
        shard.states.retain(|entry| {
            let is_kept = is_kept(entry);
            if !is_kept {
                self.used.fetch_sub(entry.bytes, Ordering::Relaxed);
            }
            is_kept
        });
    }

    /// Inserts a state, beyond the shard's bound if necessary. `end_batch` decides whether it stays and which state is
    /// evicted. So a denied request or a peek never evicts a state.
    fn insert(
        &self,
        shard: &mut VariableStateShard,
        hash: StateHash,
        limit: &Limit,
        now: Timestamp,
    ) -> Option<usize> {
        if !self.has_room_to_grow(shard, now) {
            return None;
        }
        if shard.states.len() >= STATES_PER_SHARD {
            self.clear_expired(shard, now);
        }
        let excess = shard
            .states
            .len()
            .saturating_add(1)
            .saturating_sub(STATES_PER_SHARD);
        if excess > 0 && shard.evictable_count(now) < excess {
            return None;
        }
        let mut entry = VariableState {
            hash,
            limit: limit_if_variable(limit),
            state: State::default(),
            ledger: ReservationLedger::default(),
            bytes: 0,
            claim: BatchClaim::New,
        };
        self.recount_bytes(&mut entry);
        shard.states.push(entry);
        Some(shard.states.len().saturating_sub(1))
    }
}
