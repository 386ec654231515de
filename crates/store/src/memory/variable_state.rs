//! States of variable size: logs, leases, and the reservations of any limit. They are sharded, with one lock per shard,
//! and bounded in number and in bytes.
//!
//! An expired state counts as absent. Which state a full shard evicts is in [`eviction`]. Must not know: words, slots,
//! batches.

mod eviction;
mod shard;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tollgate_core::concurrency::LeaseId;
use tollgate_core::limit::{Limit, State};
use tollgate_core::reservation::{ReservationLedger, ReservationOptions};
use tollgate_core::token_bucket::Tat;
use tollgate_core::{Nanos, Timestamp};

use self::shard::{BatchClaim, ENTRY_BYTES, limit_if_variable};
pub(super) use self::shard::{VariableState, VariableStateShard};
use super::hash::StateHash;
use super::limit_usage::{LimitUsages, Table};
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
    /// What each limit uses.
    usages: Arc<LimitUsages>,
    /// Retention of expired reservations, and the largest number under one key.
    retention: Nanos,
    max_records: usize,
}

type ShardBlock = Box<[Mutex<VariableStateShard>]>;

impl VariableStates {
    /// Shards for about `keys` keys, whose states may use `budget` bytes.
    pub(super) fn new(keys: usize, budget: usize, usages: Arc<LimitUsages>) -> Self {
        let count = keys.div_ceil(STATES_PER_SHARD / 2).max(1);
        let mut cases = Vec::new();
        cases.resize_with(count.div_ceil(SHARDS_PER_BLOCK), OnceLock::new);
        Self {
            shard_blocks: cases.into_boxed_slice(),
            count,
            budget,
            used: AtomicUsize::new(0),
            usages,
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

    /// Whether one more entry of this limit fits, after deleting expired states of the shard and evicting states of limits
    /// above their share.
    pub(super) fn has_room_to_grow(
        &self,
        shard: &mut VariableStateShard,
        limit: LimitId,
        now: Timestamp,
    ) -> bool {
        if !self.has_bytes(limit) {
            self.clear_expired(shard, now);
        }
        while !self.has_bytes(limit) {
            if !self.evict_above_share(shard, limit, now) {
                return false;
            }
        }
        true
    }

    /// Ends a batch on this shard: removes inserted states that stayed empty, then evicts states until the shard fits.
    /// Returns tag and debt of evicted states that must not be forgotten.
    pub(super) fn end_batch(
        &self,
        shard: &mut VariableStateShard,
        now: Timestamp,
    ) -> Vec<(u64, Tat)> {
        self.retain(shard, |entry| {
            entry.claim != BatchClaim::New || !entry.is_blank()
        });
        while shard.states.len() > STATES_PER_SHARD && self.evict_for_new(shard, now) {}
        for entry in &mut shard.states {
            entry.claim = BatchClaim::None;
        }
        std::mem::take(&mut shard.evicted)
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

    /// Restores a state from a snapshot of a store of another size, if there is room for it by the rule of eviction. Returns tag and
    /// debt of states that lost their place.
    pub(super) fn migrate(
        &self,
        hash: StateHash,
        limit: Option<Limit>,
        state: State,
        ledger: ReservationLedger,
        now: Timestamp,
    ) -> Vec<(u64, Tat)> {
        let mut entry = VariableState {
            hash,
            limit,
            state,
            ledger,
            bytes: 0,
            claim: BatchClaim::New,
        };
        let Some(mut shard) = self.lock(self.index(hash)) else {
            return Vec::new();
        };
        let entries = entry.state.entries().saturating_add(entry.ledger.len());
        let has_room = shard.position(hash).is_none()
            && self.has_room_to_grow(&mut shard, hash.limit(), now)
            && self.can_hold(entries)
            && (shard.states.len() < STATES_PER_SHARD
                || self.evictable_count(&shard, hash.limit(), now) > 0);
        if !has_room {
            self.usages.count_eviction(hash.limit().0.get());
            let mut lost = self.end_batch(&mut shard, now);
            lost.push((hash.tag(), entry.debt(now)));
            return lost;
        }
        self.recount_bytes(&mut entry);
        shard.states.push(entry);
        self.end_batch(&mut shard, now)
    }

    /// Removes the leases that `is_kept` does not name.
    pub(super) fn retain_leases(&self, is_kept: impl Fn(LeaseId) -> bool) {
        for mut shard in self.shards() {
            for entry in &mut shard.states {
                if let State::Leases(leases) = &entry.state {
                    let kept = leases.iter().filter(|lease| is_kept(lease.id)).copied();
                    entry.state = State::Leases(kept.collect());
                    self.recount_bytes(entry);
                }
            }
        }
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

    /// Counts a state's bytes again after a change.
    pub(super) fn recount_bytes(&self, entry: &mut VariableState) {
        let bytes = entry.size_in_bytes();
        let limit = entry.hash.limit().0.get();
        self.used.fetch_add(bytes, Ordering::Relaxed);
        self.used.fetch_sub(entry.bytes, Ordering::Relaxed);
        self.usages.add(limit, Table::Collections, bytes);
        self.usages.remove(limit, Table::Collections, entry.bytes);
        entry.bytes = bytes;
    }

    /// Returns the bytes of a removed state.
    fn release_bytes(&self, entry: &VariableState) {
        self.used.fetch_sub(entry.bytes, Ordering::Relaxed);
        let limit = entry.hash.limit().0.get();
        self.usages.remove(limit, Table::Collections, entry.bytes);
    }

    /// Removes a key's state. Returns whether there was one.
    pub(super) fn remove(&self, shard: &mut VariableStateShard, hash: StateHash) -> bool {
        let Some(index) = shard.position(hash) else {
            return false;
        };
        let entry = shard.states.swap_remove(index);
        self.release_bytes(&entry);
        true
    }

    /// Bytes of all states.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
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
                self.release_bytes(entry);
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
        if !self.has_room_to_grow(shard, hash.limit(), now) {
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
        if excess > 0 && self.evictable_count(shard, hash.limit(), now) < excess {
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
