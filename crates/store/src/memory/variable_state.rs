//! States of variable size: logs, leases, and the reservations of any limit. They are sharded, with one lock per shard,
//! and bounded in number and in bytes.
//!
//! An expired state counts as absent. A full shard evicts the state whose loss refunds the least, but never one that
//! holds a lease or a reservation, nor one of a denied key. Must not know: words, slots, batches.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tollgate_core::limit::{Limit, State, StateSize};
use tollgate_core::reservation::{ReservationLedger, ReservationOptions};
use tollgate_core::{Nanos, Timestamp};

use super::hash::StateHash;
use crate::contract::{LimitId, MAX_CHECKS};

/// States in one shard.
const STATES_PER_SHARD: usize = 8;
/// Shards in one block: eight kibibytes, allocated in one to two microseconds.
const SHARDS_PER_BLOCK: usize = 256;
/// The largest size of one entry of a collection, including what doubling growth wastes.
const ENTRY_BYTES: usize = 160;
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

/// A few states under one lock.
#[derive(Debug, Default)]
pub(super) struct VariableStateShard {
    states: Vec<VariableState>,
}

/// The variable state of one key under one limit.
#[derive(Debug)]
pub(super) struct VariableState {
    pub(super) hash: StateHash,
    /// The limit of the state; `None` if the state is in a table and only reservations are here.
    pub(super) limit: Option<Limit>,
    pub(super) state: State,
    pub(super) ledger: ReservationLedger,
    /// The bytes that it was last counted as.
    bytes: usize,
    claim: BatchClaim,
}

/// How the running batch uses a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BatchClaim {
    None,
    /// The batch uses the state, which existed before.
    Known,
    /// The batch inserted the state.
    New,
}

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

impl VariableStateShard {
    /// The key's state, if it has one.
    pub(super) fn get(&mut self, hash: StateHash) -> Option<&mut VariableState> {
        let index = self.position(hash)?;
        self.states.get_mut(index)
    }

    /// The states that have not expired.
    pub(super) fn live(
        &self,
        now: Timestamp,
        options: &ReservationOptions,
    ) -> impl Iterator<Item = &VariableState> {
        let entries = self.states.iter();
        entries.filter(move |entry| !entry.is_expired(now, options))
    }

    fn position(&self, hash: StateHash) -> Option<usize> {
        self.states.iter().position(|entry| entry.hash == hash)
    }

    /// The state whose loss refunds the least, with its priority.
    fn eviction_candidate(&self, now: Timestamp) -> Option<(u64, usize)> {
        let entries = self.states.iter().enumerate();
        entries
            .filter_map(|(i, entry)| Some((entry.eviction_priority(now)?, i)))
            .min()
    }

    /// The number of states that may be evicted.
    fn evictable_count(&self, now: Timestamp) -> usize {
        let priorities = self
            .states
            .iter()
            .filter_map(|entry| entry.eviction_priority(now));
        priorities.count()
    }
}

impl VariableState {
    /// The used fraction of the quota, in units of 2^-32; `None` if the state must not be evicted: it holds a lease or
    /// a reservation, its key is denied, or the running batch uses it.
    fn eviction_priority(&self, now: Timestamp) -> Option<u64> {
        if self.claim != BatchClaim::None || !self.ledger.is_empty() {
            return None;
        }
        let Some(limit) = &self.limit else {
            return Some(0);
        };
        let status = limit.status(&self.state, now);
        let used = status.limit.saturating_sub(status.remaining);
        let is_evictable = status.remaining > 0 && limit.lease_duration().is_none();
        // Limits with variable state are far below 2^32.
        is_evictable.then(|| used.saturating_mul(1 << 32) / status.limit.max(1))
    }

    /// Whether the state is empty.
    fn is_blank(&self) -> bool {
        matches!(self.state, State::Empty) && self.ledger.is_empty()
    }

    fn is_expired(&self, now: Timestamp, options: &ReservationOptions) -> bool {
        let is_forgotten = self.ledger.time_until_empty(now, options).is_zero();
        let has_reset = |limit: &Limit| limit.status(&self.state, now).reset_after.is_zero();
        is_forgotten && self.limit.as_ref().is_none_or(has_reset)
    }

    fn size_in_bytes(&self) -> usize {
        let entries = self.state.entries().saturating_add(self.ledger.len());
        entries
            .saturating_mul(ENTRY_BYTES)
            .saturating_add(size_of::<Self>())
    }
}

/// The limit, if its state is variable and so stored here.
fn limit_if_variable(limit: &Limit) -> Option<Limit> {
    let is_variable = limit.state_size() == StateSize::Collection;
    is_variable.then_some(*limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::LimitId;
    use crate::key::StoreKey;
    use crate::memory::hash::HashSeed;
    use std::num::NonZeroU16;
    use tollgate_core::SlidingLog;
    use tollgate_core::limit::Op;
    use tollgate_core::reservation::{Correction, ReservationId};

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn hash(name: &str) -> StateHash {
        let key = StoreKey::new(name.as_bytes()).unwrap();
        HashSeed::from_words([1, 2]).hash_state(&key, LimitId(NonZeroU16::MIN))
    }

    fn log(window: Nanos) -> Limit {
        SlidingLog::builder(10, window).build().unwrap().into()
    }

    /// One shard with enough bytes for everything.
    fn one_shard() -> VariableStates {
        VariableStates::new(1, 1 << 20)
    }

    fn spend(states: &VariableStates, name: &str, cost: u64) {
        let limit = log(Nanos::MINUTE);
        let mut shard = states.lock(0).unwrap();
        let entry = states.get_or_insert(&mut shard, hash(name), &limit, NOW);
        let entry = entry.unwrap();
        let decided = limit.decide(&entry.state, NOW, Op::Spend(cost)).unwrap();
        entry.state.apply(decided.next.unwrap());
        states.recount_bytes(entry);
        states.end_batch(&mut shard, NOW);
    }

    fn full() -> VariableStates {
        let states = one_shard();
        for n in 0..STATES_PER_SHARD {
            spend(&states, &format!("old-{n}"), 2);
        }
        states
    }

    /// Regression: a new key evicted a state as soon as it was looked up, even if it was then denied or only peeked.
    #[test]
    fn whoever_only_looks_costs_nobody_their_state() {
        let states = full();
        let mut shard = states.lock(0).unwrap();
        let newcomer = hash("newcomer");
        assert!(
            states
                .get_or_insert(&mut shard, newcomer, &log(Nanos::MINUTE), NOW)
                .is_some()
        );
        states.end_batch(&mut shard, NOW);
        assert!(shard.get(newcomer).is_none());
        for n in 0..STATES_PER_SHARD {
            assert!(shard.get(hash(&format!("old-{n}"))).is_some());
        }
        assert_eq!(states.evictions(), 0);
    }

    /// Regression: of two new keys of one batch in one shard, the second evicted the first, whose charge was lost.
    #[test]
    fn a_box_that_the_batch_needs_is_never_the_victim_and_victims_are_counted() {
        let states = full();
        let mut shard = states.lock(0).unwrap();
        let limit = log(Nanos::MINUTE);
        for name in ["one", "two"] {
            states.get_or_insert(&mut shard, hash(name), &limit, NOW);
        }
        for name in ["one", "two"] {
            let entry = shard.get(hash(name)).unwrap();
            let decided = limit.decide(&entry.state, NOW, Op::Spend(1)).unwrap();
            entry.state.apply(decided.next.unwrap());
        }
        states.end_batch(&mut shard, NOW);
        assert_eq!(shard.states.len(), STATES_PER_SHARD);
        assert!(shard.get(hash("one")).is_some() && shard.get(hash("two")).is_some());
        assert_eq!(states.evictions(), 2);
    }

    #[test]
    fn keys_that_are_being_denied_stay_and_a_newcomer_finds_no_room() {
        let states = one_shard();
        for n in 0..STATES_PER_SHARD {
            spend(&states, &format!("denied-{n}"), 10);
        }
        let mut shard = states.lock(0).unwrap();
        let limit = log(Nanos::MINUTE);
        let newcomer = hash("newcomer");
        assert!(
            states
                .get_or_insert(&mut shard, newcomer, &limit, NOW)
                .is_none()
        );
        let later = NOW.after(Nanos::MINUTE);
        assert!(
            states
                .get_or_insert(&mut shard, newcomer, &limit, later)
                .is_some()
        );
    }

    /// Regression: only the oldest record decided whether a ledger had expired.
    #[test]
    fn an_open_reservation_outlives_a_forgotten_one_in_the_same_box() {
        let states = one_shard();
        let mut shard = states.lock(0).unwrap();
        let limit = log(Nanos::SECOND);
        let (short, long) = (ReservationId(1), ReservationId(2));
        let entry = states
            .get_or_insert(&mut shard, hash("a"), &limit, NOW)
            .unwrap();
        for (id, hold) in [(short, Nanos::SECOND), (long, Nanos::HOUR)] {
            let options = states.reservation_options(hold);
            entry
                .ledger
                .open(NOW, &options, id, tollgate_core::Receipt::default());
        }
        states.end_batch(&mut shard, NOW);
        let later = NOW.after(Nanos::from_secs(120));
        states.clear_expired(&mut shard, later);
        let entry = shard.get(hash("a")).expect("the long one is still open");
        let options = states.reservation_options(Nanos::ZERO);
        let correction = entry.ledger.correction(later, &options, long, None);
        assert!(matches!(correction, Correction::Settle { .. }));
    }

    /// Regression: after a quota was lowered, a state was still measured by the old quota.
    #[test]
    fn whom_a_lowered_quota_denies_is_not_the_one_to_go() {
        let states = full();
        let lower: Limit = SlidingLog::builder(2, Nanos::MINUTE)
            .build()
            .unwrap()
            .into();
        let evictable_count = || states.lock(0).unwrap().evictable_count(NOW);
        assert_eq!(evictable_count(), STATES_PER_SHARD);
        let id = LimitId(NonZeroU16::MIN);
        states.replace_limit(id, &log(Nanos::HOUR), &lower);
        assert_eq!(
            evictable_count(),
            STATES_PER_SHARD,
            "that was not its quota"
        );
        states.replace_limit(LimitId(NonZeroU16::MAX), &log(Nanos::MINUTE), &lower);
        assert_eq!(evictable_count(), STATES_PER_SHARD, "that is not its limit");
        states.replace_limit(id, &log(Nanos::MINUTE), &lower);
        assert_eq!(evictable_count(), 0);
        states.remove_limit(id);
        assert_eq!(
            (evictable_count(), states.used()),
            (0, 0),
            "nothing is left of it"
        );
    }

    /// Regression: a state was measured by the quota under which it was inserted.
    #[test]
    fn a_longer_window_keeps_a_log_for_longer() {
        let states = one_shard();
        spend(&states, "a", 10);
        let mut shard = states.lock(0).unwrap();
        let hourly = log(Nanos::HOUR);
        states.get_or_insert(&mut shard, hash("a"), &hourly, NOW);
        states.end_batch(&mut shard, NOW);
        states.clear_expired(&mut shard, NOW.after(Nanos::from_secs(120)));
        assert!(shard.get(hash("a")).is_some());
    }
}
