//! States that do not fit in words: logs, leases, and the reservations of any limit. Boxes on shelves, one lock a shelf,
//! with a bound on boxes and on bytes.
//!
//! A box that has expired is as good as none. When a shelf is full, the box whose loss forgives the least goes, but never
//! one that holds a lease or a reservation, nor one whose key is being denied. Must not know: words, slots, batches.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tollgate_core::limit::{Limit, State, StateSize, WhenFull};
use tollgate_core::reservation::{ReservationLedger, ReservationOptions};
use tollgate_core::token_bucket::Tat;
use tollgate_core::{Nanos, Timestamp};

use super::hash::StateHash;
use super::limit_usage::{LimitUsages, Table};
use crate::contract::{LimitId, MAX_CHECKS};

/// Boxes on one shelf.
const STATES_PER_SHARD: usize = 8;
/// VariableStates in one case: eight kibibytes, put up in a microsecond or two.
const SHARDS_PER_BLOCK: usize = 256;
/// What one entry of a collection takes at most, with what growing by doubling wastes.
const ENTRY_BYTES: usize = 160;
/// How far beyond their bound the bytes may be: each thread looks whether there are some before it adds a batch's entries.
const EXCESS_BYTES: usize = 1 << 20;
/// How long a reservation is remembered after it has expired.
const RESERVATION_MEMORY: Nanos = Nanos::MINUTE;
/// The most reservations under one key of one limit.
const MAX_RESERVATIONS: usize = 1_024;

/// All shelves, in cases that are put up when somebody first needs one: whoever keeps only words pays for none, and
/// nobody waits for all of them.
#[derive(Debug)]
pub(super) struct VariableStates {
    shard_blocks: Box<[OnceLock<ShardBlock>]>,
    count: usize,
    /// Bytes that all boxes together may take, and that they do.
    budget: usize,
    used: AtomicUsize,
    /// What each limit takes.
    usages: Arc<LimitUsages>,
    /// How long a reservation is remembered after it has expired, and how many there may be under one key.
    memory: Nanos,
    most: usize,
}

type ShardBlock = Box<[Mutex<VariableStateShard>]>;

/// A few boxes under one lock.
#[derive(Debug, Default)]
pub(super) struct VariableStateShard {
    states: Vec<VariableState>,
    /// Tag and debt of the boxes that the present batch has pushed out.
    evicted: Vec<(u64, Tat)>,
}

/// In which order boxes go; the least goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum BoxRank {
    /// Its limit takes so many bytes, which is above its share; so much of its quota is used.
    AboveShare(Reverse<u64>, u64),
    /// So much of its quota is used.
    WithinShare(u64),
    /// It holds a place, or its key is being denied, by the newcomer's own limit, which forgets.
    DeniedByForgetful,
}

/// One key's collections under one limit.
#[derive(Debug)]
pub(super) struct VariableState {
    pub(super) hash: StateHash,
    /// What its state is judged by; none if that is kept elsewhere, and only reservations are here.
    pub(super) limit: Option<Limit>,
    pub(super) state: State,
    pub(super) ledger: ReservationLedger,
    /// The bytes it was last counted as.
    bytes: usize,
    claim: BatchClaim,
}

/// What the batch that is being decided has to do with a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BatchClaim {
    None,
    /// It needs the box, which was there before.
    Known,
    /// It brought the box.
    New,
}

impl VariableStates {
    /// VariableStates for about so many keys, whose collections may take so many bytes.
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
            memory: RESERVATION_MEMORY,
            most: MAX_RESERVATIONS,
        }
    }

    /// Changes how reservations are remembered.
    pub(super) const fn set_reservation_options(&mut self, memory: Nanos, most: usize) {
        (self.memory, self.most) = (memory, most);
    }

    /// The terms of a reservation with this hold.
    pub(super) const fn reservation_options(&self, hold: Nanos) -> ReservationOptions {
        ReservationOptions {
            hold,
            retention: self.memory,
            max_records: self.most,
        }
    }

    /// Which shelf a key's box is on: the order in which several are locked.
    pub(super) fn index(&self, place: StateHash) -> usize {
        place.primary_group(self.count)
    }

    pub(super) fn lock(&self, index: usize) -> Option<MutexGuard<'_, VariableStateShard>> {
        // A panic under the lock left whole boxes behind: each change to one is a single call.
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

    /// Makes sure that the key has a box and keeps it until the batch is [tidied](Self::tidy) up after. `None` if there is
    /// no room for one. Whether there are bytes for it to grow is another question.
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

    /// Whether one more entry may be remembered, after making what room the shelf allows.
    pub(super) fn has_room_to_grow(
        &self,
        shelf: &mut VariableStateShard,
        newcomer: LimitId,
        now: Timestamp,
    ) -> bool {
        if !self.has_bytes(newcomer) {
            self.clear_expired(shelf, now);
        }
        while !self.has_bytes(newcomer) {
            match self.eviction_candidate(shelf, newcomer, now) {
                Some((BoxRank::AboveShare(..), victim)) => self.evict(shelf, victim, now),
                _ => return false,
            }
        }
        true
    }

    /// Ends a batch on this shelf: newcomers that came to nothing leave, others leave for those that stay. Answers tag and
    /// debt of those that left and must not be forgotten.
    pub(super) fn end_batch(
        &self,
        shelf: &mut VariableStateShard,
        now: Timestamp,
    ) -> Vec<(u64, Tat)> {
        self.retain(shelf, |stored| {
            stored.claim != BatchClaim::New || !stored.is_blank()
        });
        while shelf.states.len() > STATES_PER_SHARD {
            let newcomer = shelf.states.iter().find(|s| s.claim == BatchClaim::New);
            let Some((_, victim)) = newcomer
                .map(|stored| stored.hash.limit())
                .and_then(|newcomer| self.eviction_candidate(shelf, newcomer, now))
            else {
                break;
            };
            self.evict(shelf, victim, now);
        }
        for stored in &mut shelf.states {
            stored.claim = BatchClaim::None;
        }
        std::mem::take(&mut shelf.evicted)
    }

    /// Every shelf of the cases that have been put up, one after the other, locked for as long as it is looked at.
    pub(super) fn shards(&self) -> impl Iterator<Item = MutexGuard<'_, VariableStateShard>> {
        let put_up = self.shard_blocks.iter().filter_map(OnceLock::get);
        put_up
            .flatten()
            .map(|shelf| shelf.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How many shelves there are.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// Whether there could be bytes for a box with so many entries, in a store that threads have filled as far as they can.
    pub(super) fn can_hold(&self, entries: usize) -> bool {
        let bytes = entries
            .saturating_mul(ENTRY_BYTES)
            .saturating_add(size_of::<VariableState>());
        self.used().saturating_add(bytes) <= self.budget.saturating_add(EXCESS_BYTES)
    }

    /// Puts a box back that was on its shelf before. Answers false if it cannot have been: there is one of that key, or
    /// more than a batch leaves behind.
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

    /// Judges every box of one limit that was judged by its old quota by the new one.
    pub(super) fn replace_limit(&self, id: LimitId, old: &Limit, new: &Limit) {
        // Boxes whose state is kept elsewhere are judged by nothing.
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

    /// Takes all boxes of a limit away.
    pub(super) fn remove_limit(&self, id: LimitId) {
        for mut shelf in self.shards() {
            self.retain(&mut shelf, |stored| stored.hash.limit() != id);
        }
    }

    /// Counts a box again after it has changed.
    pub(super) fn recount_bytes(&self, stored: &mut VariableState) {
        let bytes = stored.size_in_bytes();
        let limit = stored.hash.limit().0.get();
        self.used.fetch_add(bytes, Ordering::Relaxed);
        self.used.fetch_sub(stored.bytes, Ordering::Relaxed);
        self.usages.add(limit, Table::Collections, bytes);
        self.usages.remove(limit, Table::Collections, stored.bytes);
        stored.bytes = bytes;
    }

    /// Gives the bytes of a box back that is gone.
    fn release_bytes(&self, stored: &VariableState) {
        self.used.fetch_sub(stored.bytes, Ordering::Relaxed);
        let limit = stored.hash.limit().0.get();
        self.usages.remove(limit, Table::Collections, stored.bytes);
    }

    /// Gives a box up for others.
    fn evict(&self, shelf: &mut VariableStateShard, victim: usize, now: Timestamp) {
        let stored = shelf.states.swap_remove(victim);
        self.release_bytes(&stored);
        let limit = stored.hash.limit().0.get();
        let debt = stored.debt(now);
        if debt > now.as_nanos() {
            self.usages.count_eviction(limit);
            if self.usages.when_full(limit) == WhenFull::Refuse {
                shelf.evicted.push((stored.hash.tag(), debt));
            }
        }
    }

    /// The box that goes first, if one may go. `newcomer` is the limit that needs the room.
    fn eviction_candidate(
        &self,
        shelf: &VariableStateShard,
        newcomer: LimitId,
        now: Timestamp,
    ) -> Option<(BoxRank, usize)> {
        let share = self.share(newcomer);
        let rank = |stored: &VariableState| self.rank(stored, newcomer, share, now);
        let boxes = shelf.states.iter().enumerate();
        boxes
            .filter_map(|(index, stored)| Some((rank(stored)?, index)))
            .min()
    }

    /// The bytes that each limit may take before its boxes go first.
    fn share(&self, newcomer: LimitId) -> u64 {
        self.usages
            .share(Table::Collections, newcomer.0.get(), self.budget, 1)
    }

    /// How many boxes may go for a newcomer of this limit.
    fn evictable_count(
        &self,
        shelf: &VariableStateShard,
        newcomer: LimitId,
        now: Timestamp,
    ) -> usize {
        let share = self.share(newcomer);
        let rank = |stored: &VariableState| self.rank(stored, newcomer, share, now);
        shelf.states.iter().filter_map(rank).count()
    }

    /// When a box goes; `None` if it must stay: it holds a reservation, or a place or a denied key that its limit does not
    /// forget, or the present batch needs it.
    fn rank(
        &self,
        stored: &VariableState,
        newcomer: LimitId,
        share: u64,
        now: Timestamp,
    ) -> Option<BoxRank> {
        if stored.claim != BatchClaim::None || !stored.ledger.is_empty() {
            return None;
        }
        let (id, (used, is_denied, holds_places)) = (stored.hash.limit(), stored.usage(now));
        let forgets = self.usages.when_full(id.0.get()) == WhenFull::Forget;
        let taken = self.usages.taken(id.0.get(), Table::Collections);
        if taken > share && (forgets || !holds_places) {
            return Some(BoxRank::AboveShare(Reverse(taken), used));
        }
        if !is_denied && !holds_places {
            return Some(BoxRank::WithinShare(used));
        }
        (forgets && newcomer == id).then_some(BoxRank::DeniedByForgetful)
    }

    /// Takes a key's box away. Answers whether there was one.
    pub(super) fn remove(&self, shelf: &mut VariableStateShard, place: StateHash) -> bool {
        let Some(index) = shelf.position(place) else {
            return false;
        };
        let stored = shelf.states.swap_remove(index);
        self.release_bytes(&stored);
        true
    }

    /// Bytes that all boxes take.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether a limit may take bytes for one more entry. The last eighth is for limits within their share: a shelf without
    /// a box of the limit that has taken all others must not be without bytes.
    fn has_bytes(&self, limit: LimitId) -> bool {
        let half = u64::try_from(self.budget / 2).unwrap_or(u64::MAX);
        let share = self.share(limit).min(half);
        let bound = if self.usages.taken(limit.0.get(), Table::Collections) > share {
            self.budget - self.budget / 8
        } else {
            self.budget
        };
        self.used().saturating_add(ENTRY_BYTES) <= bound
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
                self.release_bytes(stored);
            }
            stays
        });
    }

    /// A box beyond the shelf's end if need be: whether it stays, and for whom others go, is seen when the batch has been
    /// decided. A request that is denied, or only looks, must cost nobody their state.
    fn insert(
        &self,
        shelf: &mut VariableStateShard,
        place: StateHash,
        limit: &Limit,
        now: Timestamp,
    ) -> Option<usize> {
        if !self.has_room_to_grow(shelf, place.limit(), now) {
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
        if to_go > 0 && self.evictable_count(shelf, place.limit(), now) < to_go {
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
    /// The key's box, if it has one.
    pub(super) fn get(&mut self, place: StateHash) -> Option<&mut VariableState> {
        let index = self.position(place)?;
        self.states.get_mut(index)
    }

    /// The boxes that have not expired.
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
}

impl VariableState {
    /// How much of its quota the key has used, in parts of 2^32, whether it is being denied, and whether it holds places.
    fn usage(&self, now: Timestamp) -> (u64, bool, bool) {
        let Some(limit) = &self.limit else {
            return (0, false, false);
        };
        let status = limit.status(&self.state, now);
        let used = status.limit.saturating_sub(status.remaining);
        // Limits on shelves are far below 2^32.
        let part = used.saturating_mul(1 << 32) / status.limit.max(1);
        (
            part,
            status.remaining == 0,
            limit.lease_duration().is_some(),
        )
    }

    /// What the key owes as the state of the bucket that stands in for its limit. Places have no such bucket: then it is
    /// until when the last is held.
    pub(super) fn debt(&self, now: Timestamp) -> Tat {
        let Some(limit) = &self.limit else {
            return 0;
        };
        let status = limit.status(&self.state, now);
        let until = now.after(status.reset_after).as_nanos();
        let used = status.limit.saturating_sub(status.remaining);
        let Some(bucket) = limit.stricter_bucket().filter(|_| used > 0) else {
            return until;
        };
        let spare = status.limit.saturating_sub(bucket.limit());
        let interval = bucket.interval().as_nanos();
        let owed = |from: u64, units: u64| from.saturating_add(units.saturating_mul(interval));
        owed(now.as_nanos(), used).min(owed(until, used.saturating_sub(spare)))
    }

    /// Whether nothing was ever stored in it.
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

/// What a box under this limit is judged by, if its state is in the box.
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

    /// One shelf with bytes for everything.
    fn one_shelf() -> VariableStates {
        VariableStates::new(1, 1 << 20, Arc::new(LimitUsages::new()))
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

    /// A newcomer used to push somebody out as soon as it was looked at, even if it was then denied or had only asked.
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
        assert_eq!(shelves.usages.total().evictions, 0);
    }

    /// Two newcomers of one batch on one shelf: the second used to push the first out, whose charge was then lost.
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
        assert_eq!(shelves.usages.total().evictions, 2);
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

    /// Whether a ledger had expired used to be asked of its oldest record.
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

    /// A box used to be judged by the quota by which its key was last asked about, also after that had been lowered.
    #[test]
    fn whom_a_lowered_quota_denies_is_not_the_one_to_go() {
        let shelves = full();
        let lower: Limit = SlidingLog::builder(2, Nanos::MINUTE)
            .build()
            .unwrap()
            .into();
        let losable = || {
            let shelf = shelves.lock(0).unwrap();
            shelves.evictable_count(&shelf, LimitId(NonZeroU16::MIN), NOW)
        };
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

    /// A box used to be judged by the quota that it was made under.
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
