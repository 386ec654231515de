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
const RESERVATION_MEMORY: Nanos = Nanos::MINUTE;
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
    memory: Nanos,
    most: usize,
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
            memory: RESERVATION_MEMORY,
            most: MAX_RESERVATIONS,
        }
    }

    /// Sets how reservations are kept.
    pub(super) const fn set_reservation_options(&mut self, memory: Nanos, most: usize) {
        (self.memory, self.most) = (memory, most);
    }

    /// The options of a reservation with this hold.
    pub(super) const fn reservation_options(&self, hold: Nanos) -> ReservationOptions {
        ReservationOptions {
            hold,
            retention: self.memory,
            max_records: self.most,
        }
    }

    /// The index of a key's shard: the lock order.
    pub(super) fn index(&self, place: StateHash) -> usize {
        place.primary_group(self.count)
    }

    pub(super) fn lock(&self, index: usize) -> Option<MutexGuard<'_, VariableStateShard>> {
        // A panic under the lock leaves consistent states: each change is a single call.
        let case = self
            .shard_blocks
            .get(index / SHARDS_PER_BLOCK)?
            .get_or_init(|| {
                let mut case = Vec::new();
                case.resize_with(SHARDS_PER_BLOCK, Mutex::default);
                case.into_boxed_slice()
            });
        let shelf = case.get(index % SHARDS_PER_BLOCK)?;
        Some(shelf.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The key's state, inserted if it is missing, and claimed until [`end_batch`](Self::end_batch). `None` if there is
    /// no room. Bytes for growth are checked separately.
    pub(super) fn get_or_insert<'a>(
        &self,
        shelf: &'a mut VariableStateShard,
        place: StateHash,
        limit: &Limit,
        now: Timestamp,
    ) -> Option<&'a mut VariableState> {
        let index = match shelf.position(place) {
            Some(index) => index,
            None => self.insert(shelf, place, limit, now)?,
        };
        let stored = shelf.states.get_mut(index)?;
        // The quota may have changed since, and with it how long the state counts.
        stored.limit = limit_if_variable(limit);
        if stored.claim == BatchClaim::None {
            stored.claim = BatchClaim::Known;
        }
        Some(stored)
    }

    /// Whether one more entry fits, after deleting expired states of the shard.
    pub(super) fn has_room_to_grow(&self, shelf: &mut VariableStateShard, now: Timestamp) -> bool {
        if !self.has_bytes() {
            self.clear_expired(shelf, now);
        }
        self.has_bytes()
    }

    /// Ends a batch on this shard: removes inserted states that stayed empty, then evicts states until the shard fits.
    pub(super) fn end_batch(&self, shelf: &mut VariableStateShard, now: Timestamp) {
        self.retain(shelf, |stored| {
            stored.claim != BatchClaim::New || !stored.is_blank()
        });
        while shelf.states.len() > STATES_PER_SHARD {
            let Some((worth, victim)) = shelf.eviction_candidate(now) else {
                break;
            };
            let stored = shelf.states.swap_remove(victim);
            self.used.fetch_sub(stored.bytes, Ordering::Relaxed);
            self.evictions
                .fetch_add(u64::from(worth > 0), Ordering::Relaxed);
        }
        for stored in &mut shelf.states {
            stored.claim = BatchClaim::None;
        }
    }

    /// All allocated shards, one after the other, each locked while it is in use.
    pub(super) fn shards(&self) -> impl Iterator<Item = MutexGuard<'_, VariableStateShard>> {
        let put_up = self.shard_blocks.iter().filter_map(OnceLock::get);
        put_up
            .flatten()
            .map(|shelf| shelf.lock().unwrap_or_else(PoisonError::into_inner))
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
        place: StateHash,
        limit: Option<Limit>,
        state: State,
        ledger: ReservationLedger,
    ) -> bool {
        let mut stored = VariableState {
            hash: place,
            limit,
            state,
            ledger,
            bytes: 0,
            claim: BatchClaim::None,
        };
        let Some(mut shelf) = self.lock(self.index(place)) else {
            return false;
        };
        if shelf.position(place).is_some() || shelf.states.len() >= STATES_PER_SHARD + MAX_CHECKS {
            return false;
        }
        self.recount_bytes(&mut stored);
        shelf.states.push(stored);
        true
    }

    /// Replaces the old quota of one limit by the new one in every state.
    pub(super) fn replace_limit(&self, id: LimitId, old: &Limit, new: &Limit) {
        // States that are in a table have no quota here.
        let (Some(old), Some(new)) = (limit_if_variable(old), limit_if_variable(new)) else {
            return;
        };
        for mut shelf in self.shards() {
            let of_limit = |stored: &&mut VariableState| stored.hash.limit() == id;
            for stored in shelf.states.iter_mut().filter(of_limit) {
                if stored.limit == Some(old) {
                    stored.limit = Some(new);
                }
            }
        }
    }

    /// Removes all states of a limit.
    pub(super) fn remove_limit(&self, id: LimitId) {
        for mut shelf in self.shards() {
            self.retain(&mut shelf, |stored| stored.hash.limit() != id);
        }
    }

    /// Live states that were evicted.
    pub(super) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    /// Counts a state's bytes again after a change.
    pub(super) fn recount_bytes(&self, stored: &mut VariableState) {
        let bytes = stored.size_in_bytes();
        self.used.fetch_add(bytes, Ordering::Relaxed);
        self.used.fetch_sub(stored.bytes, Ordering::Relaxed);
        stored.bytes = bytes;
    }

    /// Removes a key's state. Returns whether there was one.
    pub(super) fn remove(&self, shelf: &mut VariableStateShard, place: StateHash) -> bool {
        let Some(index) = shelf.position(place) else {
            return false;
        };
        let stored = shelf.states.swap_remove(index);
        self.used.fetch_sub(stored.bytes, Ordering::Relaxed);
        true
    }

    /// Bytes of all states.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn has_bytes(&self) -> bool {
        self.used().saturating_add(ENTRY_BYTES) <= self.budget
    }

    fn clear_expired(&self, shelf: &mut VariableStateShard, now: Timestamp) {
        let terms = self.reservation_options(Nanos::ZERO);
        self.retain(shelf, |stored| {
            stored.claim != BatchClaim::None || !stored.is_expired(now, &terms)
        });
    }

    fn retain(&self, shelf: &mut VariableStateShard, stays: impl Fn(&VariableState) -> bool) {
        shelf.states.retain(|stored| {
            let stays = stays(stored);
            if !stays {
                self.used.fetch_sub(stored.bytes, Ordering::Relaxed);
            }
            stays
        });
    }

    /// Inserts a state, beyond the shard's bound if necessary. `end_batch` decides whether it stays and which state is
    /// evicted. So a denied request or a peek never evicts a state.
    fn insert(
        &self,
        shelf: &mut VariableStateShard,
        place: StateHash,
        limit: &Limit,
        now: Timestamp,
    ) -> Option<usize> {
        if !self.has_room_to_grow(shelf, now) {
            return None;
        }
        if shelf.states.len() >= STATES_PER_SHARD {
            self.clear_expired(shelf, now);
        }
        let to_go = shelf
            .states
            .len()
            .saturating_add(1)
            .saturating_sub(STATES_PER_SHARD);
        if to_go > 0 && shelf.evictable_count(now) < to_go {
            return None;
        }
        let mut stored = VariableState {
            hash: place,
            limit: limit_if_variable(limit),
            state: State::default(),
            ledger: ReservationLedger::default(),
            bytes: 0,
            claim: BatchClaim::New,
        };
        self.recount_bytes(&mut stored);
        shelf.states.push(stored);
        Some(shelf.states.len().saturating_sub(1))
    }
}

impl VariableStateShard {
    /// The key's state, if it has one.
    pub(super) fn get(&mut self, place: StateHash) -> Option<&mut VariableState> {
        let index = self.position(place)?;
        self.states.get_mut(index)
    }

    /// The states that have not expired.
    pub(super) fn live(
        &self,
        now: Timestamp,
        terms: &ReservationOptions,
    ) -> impl Iterator<Item = &VariableState> {
        let boxes = self.states.iter();
        boxes.filter(move |stored| !stored.is_expired(now, terms))
    }

    fn position(&self, place: StateHash) -> Option<usize> {
        self.states.iter().position(|stored| stored.hash == place)
    }

    /// The state whose loss refunds the least, with its priority.
    fn eviction_candidate(&self, now: Timestamp) -> Option<(u64, usize)> {
        let boxes = self.states.iter().enumerate();
        boxes
            .filter_map(|(i, stored)| Some((stored.eviction_priority(now)?, i)))
            .min()
    }

    /// The number of states that may be evicted.
    fn evictable_count(&self, now: Timestamp) -> usize {
        let worths = self
            .states
            .iter()
            .filter_map(|stored| stored.eviction_priority(now));
        worths.count()
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
        let is_losable = status.remaining > 0 && limit.lease_duration().is_none();
        // Limits with variable state are far below 2^32.
        is_losable.then(|| used.saturating_mul(1 << 32) / status.limit.max(1))
    }

    /// Whether the state is empty.
    fn is_blank(&self) -> bool {
        matches!(self.state, State::Empty) && self.ledger.is_empty()
    }

    fn is_expired(&self, now: Timestamp, terms: &ReservationOptions) -> bool {
        let is_forgotten = self.ledger.time_until_empty(now, terms).is_zero();
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
    let is_here = limit.state_size() == StateSize::Collection;
    is_here.then_some(*limit)
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

    fn place(name: &str) -> StateHash {
        let key = StoreKey::new(name.as_bytes()).unwrap();
        HashSeed::from_words([1, 2]).hash_state(&key, LimitId(NonZeroU16::MIN))
    }

    fn log(window: Nanos) -> Limit {
        SlidingLog::builder(10, window).build().unwrap().into()
    }

    /// One shard with enough bytes for everything.
    fn one_shelf() -> VariableStates {
        VariableStates::new(1, 1 << 20)
    }

    fn spend(shelves: &VariableStates, name: &str, cost: u64) {
        let limit = log(Nanos::MINUTE);
        let mut shelf = shelves.lock(0).unwrap();
        let stored = shelves.get_or_insert(&mut shelf, place(name), &limit, NOW);
        let stored = stored.unwrap();
        let decided = limit.decide(&stored.state, NOW, Op::Spend(cost)).unwrap();
        stored.state.apply(decided.next.unwrap());
        shelves.recount_bytes(stored);
        shelves.end_batch(&mut shelf, NOW);
    }

    fn full() -> VariableStates {
        let shelves = one_shelf();
        for n in 0..STATES_PER_SHARD {
            spend(&shelves, &format!("old-{n}"), 2);
        }
        shelves
    }

    /// Regression: a new key evicted a state as soon as it was looked up, even if it was then denied or only peeked.
    #[test]
    fn whoever_only_looks_costs_nobody_their_state() {
        let shelves = full();
        let mut shelf = shelves.lock(0).unwrap();
        let newcomer = place("newcomer");
        assert!(
            shelves
                .get_or_insert(&mut shelf, newcomer, &log(Nanos::MINUTE), NOW)
                .is_some()
        );
        shelves.end_batch(&mut shelf, NOW);
        assert!(shelf.get(newcomer).is_none());
        for n in 0..STATES_PER_SHARD {
            assert!(shelf.get(place(&format!("old-{n}"))).is_some());
        }
        assert_eq!(shelves.evictions(), 0);
    }

    /// Regression: of two new keys of one batch in one shard, the second evicted the first, whose charge was lost.
    #[test]
    fn a_box_that_the_batch_needs_is_never_the_victim_and_victims_are_counted() {
        let shelves = full();
        let mut shelf = shelves.lock(0).unwrap();
        let limit = log(Nanos::MINUTE);
        for name in ["one", "two"] {
            shelves.get_or_insert(&mut shelf, place(name), &limit, NOW);
        }
        for name in ["one", "two"] {
            let stored = shelf.get(place(name)).unwrap();
            let decided = limit.decide(&stored.state, NOW, Op::Spend(1)).unwrap();
            stored.state.apply(decided.next.unwrap());
        }
        shelves.end_batch(&mut shelf, NOW);
        assert_eq!(shelf.states.len(), STATES_PER_SHARD);
        assert!(shelf.get(place("one")).is_some() && shelf.get(place("two")).is_some());
        assert_eq!(shelves.evictions(), 2);
    }

    #[test]
    fn keys_that_are_being_denied_stay_and_a_newcomer_finds_no_room() {
        let shelves = one_shelf();
        for n in 0..STATES_PER_SHARD {
            spend(&shelves, &format!("denied-{n}"), 10);
        }
        let mut shelf = shelves.lock(0).unwrap();
        let limit = log(Nanos::MINUTE);
        let newcomer = place("newcomer");
        assert!(
            shelves
                .get_or_insert(&mut shelf, newcomer, &limit, NOW)
                .is_none()
        );
        let later = NOW.after(Nanos::MINUTE);
        assert!(
            shelves
                .get_or_insert(&mut shelf, newcomer, &limit, later)
                .is_some()
        );
    }

    /// Regression: only the oldest record decided whether a ledger had expired.
    #[test]
    fn an_open_reservation_outlives_a_forgotten_one_in_the_same_box() {
        let shelves = one_shelf();
        let mut shelf = shelves.lock(0).unwrap();
        let limit = log(Nanos::SECOND);
        let (short, long) = (ReservationId(1), ReservationId(2));
        let stored = shelves
            .get_or_insert(&mut shelf, place("a"), &limit, NOW)
            .unwrap();
        for (id, hold) in [(short, Nanos::SECOND), (long, Nanos::HOUR)] {
            let terms = shelves.reservation_options(hold);
            stored
                .ledger
                .open(NOW, &terms, id, tollgate_core::Receipt::default());
        }
        shelves.end_batch(&mut shelf, NOW);
        let later = NOW.after(Nanos::from_secs(120));
        shelves.clear_expired(&mut shelf, later);
        let stored = shelf.get(place("a")).expect("the long one is still open");
        let terms = shelves.reservation_options(Nanos::ZERO);
        let correction = stored.ledger.correction(later, &terms, long, None);
        assert!(matches!(correction, Correction::Settle { .. }));
    }

    /// Regression: after a quota was lowered, a state was still measured by the old quota.
    #[test]
    fn whom_a_lowered_quota_denies_is_not_the_one_to_go() {
        let shelves = full();
        let lower: Limit = SlidingLog::builder(2, Nanos::MINUTE)
            .build()
            .unwrap()
            .into();
        let losable = || shelves.lock(0).unwrap().evictable_count(NOW);
        assert_eq!(losable(), STATES_PER_SHARD);
        let id = LimitId(NonZeroU16::MIN);
        shelves.replace_limit(id, &log(Nanos::HOUR), &lower);
        assert_eq!(losable(), STATES_PER_SHARD, "that was not its quota");
        shelves.replace_limit(LimitId(NonZeroU16::MAX), &log(Nanos::MINUTE), &lower);
        assert_eq!(losable(), STATES_PER_SHARD, "that is not its limit");
        shelves.replace_limit(id, &log(Nanos::MINUTE), &lower);
        assert_eq!(losable(), 0);
        shelves.remove_limit(id);
        assert_eq!((losable(), shelves.used()), (0, 0), "nothing is left of it");
    }

    /// Regression: a state was measured by the quota under which it was inserted.
    #[test]
    fn a_longer_window_keeps_a_log_for_longer() {
        let shelves = one_shelf();
        spend(&shelves, "a", 10);
        let mut shelf = shelves.lock(0).unwrap();
        let hourly = log(Nanos::HOUR);
        shelves.get_or_insert(&mut shelf, place("a"), &hourly, NOW);
        shelves.end_batch(&mut shelf, NOW);
        shelves.clear_expired(&mut shelf, NOW.after(Nanos::from_secs(120)));
        assert!(shelf.get(place("a")).is_some());
    }
}
