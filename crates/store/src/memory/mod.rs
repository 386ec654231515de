//! State in this process's memory: bounded, exact, and answered at once.
//!
//! Buckets live in a table of one-word states, windows in one of two-word states, logs, leases and reservations on shelves.
//! Everything is sized when the store is made and never grows. A state that has expired is the same as none, so nothing
//! sweeps and nothing pauses. When there is no room, states of limits above their share go first, then the state whose loss
//! forgives the least; what goes is dropped or kept in an overflow sketch of its limit, as the limit says ([`WhenFull`]).
//!
//! Must not know: what keys mean, policies, transports.

mod batch;
mod batch_check;
mod eviction_priority;
mod fast_path;
mod group;
mod hash;
mod limit_map;
mod limit_usage;
mod lock_bit;
#[cfg(all(test, loom))]
mod loom_models;
mod occupancy;
mod overflow;
mod pages;
mod slot_table;
mod snapshot;
mod spend;
mod sync;
mod variable_state;
mod word_state;

use std::fmt;
use std::sync::Arc;

use tollgate_core::compose::BatchOutcome;
use tollgate_core::limit::{State, StateSize, WhenFull};
use tollgate_core::token_bucket::Tat;
use tollgate_core::{Nanos, Timestamp};

pub use self::limit_usage::LimitUsage;
pub use self::occupancy::Occupancy;
pub use self::snapshot::SnapshotError;

use self::batch::Batch;
use self::eviction_priority::EvictionPriorities;
use self::hash::{HashSeed, StateHash, limit_of};
use self::limit_usage::{LimitUsages, Table};
use self::overflow::OverflowSketches;
use self::slot_table::SlotTable;
use self::variable_state::VariableStates;
use self::word_state::{StateWords, WordState as _};
use crate::clock::{Clock, SystemClock};
use crate::contract::{IdentifiedLimit, LimitId, MAX_CHECKS, QuotaCheck, Store, StoreReply};
use crate::invalid_size::InvalidSize;
use crate::key::StoreKey;
use crate::store_error::{StoreError, StoreErrorKind};

/// The most keys that a store can be made for.
pub const MAX_KEYS: usize = 1 << 30;

/// The latest instant there is. A state may lie as far ahead of it again, and its top bit is a lock.
const LAST_INSTANT: Timestamp = Timestamp::from_nanos(1 << 62);

/// The most bytes of collections (log entries, leases, reservations) for each key that a store is made for. A bound and
/// not an allocation: what nobody uses is not taken.
const COLLECTION_BYTES_PER_KEY: usize = 512;
/// Bytes of both tables for each key: a group of 128 for every four buckets and for every three windows.
const TABLE_BYTES_PER_KEY: usize = 128 / 4 + 128 / 3 + 1;

/// A store in memory.
///
/// ```
/// use std::num::NonZeroU16;
/// use tollgate_core::{Outcome, Rate, TokenBucket};
/// use tollgate_store::{QuotaCheck, StoreKey, LimitId, MemoryStore, Op, IdentifiedLimit, TestStore};
///
/// let store = MemoryStore::for_keys(10_000)?;
/// let quota = TokenBucket::at(Rate::per_second(10)).burst(1).build()?;
/// let ruled = IdentifiedLimit { id: LimitId(NonZeroU16::MIN), limit: quota.into() };
/// store.learn(&ruled);
///
/// let check = QuotaCheck { key: StoreKey::of(b"alice")?, ruled: &ruled, op: Op::Spend(1) };
/// assert_eq!(store.ask([check])?.0.outcome(), Outcome::Allow);
/// let (verdict, [answer]) = store.ask([check])?;
/// assert!(!verdict.is_admitted());
/// assert_eq!(answer.status.remaining, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MemoryStore<C = SystemClock> {
    clock: C,
    secret: HashSeed,
    priorities: EvictionPriorities,
    word_table: SlotTable<1>,
    pair_table: SlotTable<2>,
    variable_states: VariableStates,
    usages: Arc<LimitUsages>,
    overflow: OverflowSketches,
}

/// How often this thread has waited for another inside any store. Counted in debug builds only, for tests.
#[doc(hidden)]
#[must_use]
pub fn waits_of_this_thread() -> Option<u64> {
    sync::waits_of_this_thread()
}

/// What a store has had to do for want of room, and what it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreUsage {
    /// Live states that were given up for others. Each forgave a key what it owed, unless its limit is
    /// [`WhenFull::Refuse`].
    pub evictions: u64,
    /// Decisions that the overflow sketch made.
    pub overflow_decisions: u64,
    /// Bytes reserved for words and pairs. Pages that nobody has touched are not resident.
    pub table_bytes: usize,
    /// Bytes that collections take.
    pub collection_bytes: usize,
    /// Bytes that overflow sketches take: none before the first is needed, at most 16 MiB.
    pub overflow_bytes: usize,
}

impl MemoryStore {
    /// A store with room for about so many keys of each kind in use at the same time, on the machine's clock.
    ///
    /// # Errors
    /// The number must be 1 to [`MAX_KEYS`], and there must be memory for it.
    pub fn for_keys(keys: usize) -> Result<Self, InvalidSize> {
        Self::with_clock(keys, SystemClock::new())
    }

    /// A store that takes at most about so many bytes, tables and collections together, on the machine's clock.
    ///
    /// # Errors
    /// It must be enough for one key and not more than for [`MAX_KEYS`], and there must be memory for it.
    pub fn for_bytes(bytes: usize) -> Result<Self, InvalidSize> {
        Self::for_keys(bytes / (TABLE_BYTES_PER_KEY + COLLECTION_BYTES_PER_KEY))
    }
}

impl<C: Clock> MemoryStore<C> {
    /// Like [`for_keys`](Memory::for_keys), on another clock.
    ///
    /// # Errors
    /// The number must be 1 to [`MAX_KEYS`], and there must be memory for it.
    pub fn with_clock(keys: usize, clock: C) -> Result<Self, InvalidSize> {
        let invalid = |reason| InvalidSize { keys, reason };
        if keys == 0 {
            return Err(invalid("it must be at least 1"));
        }
        if keys > MAX_KEYS {
            return Err(invalid("it must be at most 1073741824"));
        }
        let no_memory = |_| invalid("there is not enough memory for it");
        let usages = Arc::new(LimitUsages::new());
        Ok(Self {
            clock,
            secret: HashSeed::random(),
            priorities: EvictionPriorities::new(),
            word_table: SlotTable::for_keys(keys).map_err(no_memory)?,
            pair_table: SlotTable::for_keys(keys).map_err(no_memory)?,
            variable_states: VariableStates::new(
                keys,
                keys.saturating_mul(COLLECTION_BYTES_PER_KEY),
                Arc::clone(&usages),
            ),
            usages,
            overflow: OverflowSketches::default(),
        })
    }

    /// Makes a limit known, so that the store can tell what its states are worth. A limit that nobody announced is
    /// learnt with its first key; call this for further tiers of one. When a quota changes, [`replace`](Self::replace) it.
    pub fn add_limit(&self, ruled: &IdentifiedLimit) {
        self.usages.prepare(ruled.id);
        self.priorities.add_tier(ruled.id, &ruled.limit);
    }

    /// Says what happens to the limit's keys when there is no room for all of them. [`WhenFull::Refuse`] unless told.
    pub fn set_when_full(&self, id: LimitId, when_full: WhenFull) {
        self.usages.set_when_full(id, when_full);
    }

    /// What one limit takes of the store, and what the store had to do for want of room.
    #[must_use]
    pub fn limit_usage(&self, id: LimitId) -> LimitUsage {
        self.usages.read(id)
    }

    /// Forgets a limit that is gone: the room its states take is free. Its id must not be used again.
    pub fn remove_limit(&self, id: LimitId) {
        self.priorities.remove(id);
        self.overflow.lock().remove_limit(id.0.get());
        self.variable_states.remove_limit(id);
    }

    /// Replaces a limit's quota, or that of one of its tiers; what is owed stays owed, and whom the new quota denies is
    /// kept like anybody who is being denied. If another tier has the very same quota as `old`, [`learn`](Self::learn)
    /// that one again.
    ///
    /// Counters of a window that gets another length are carried over one by one, which looks at the whole table; a log's
    /// new quota looks at all shelves; anything else costs nothing. Decide by `new` from now on.
    pub fn replace_limit(&self, old: &IdentifiedLimit, new: &IdentifiedLimit) {
        self.priorities.replace_tier(new.id, &old.limit, &new.limit);
        self.variable_states
            .replace_limit(new.id, &old.limit, &new.limit);
        if !new.limit.has_to_carry_over(&old.limit) {
            return;
        }
        let of_limit = |tag| limit_of(tag) == old.id.0.get();
        for slot in self
            .pair_table
            .occupied_slots()
            .filter(|slot| of_limit(slot.tag()))
        {
            let mut slot = slot.lock();
            if !of_limit(slot.tag()) {
                continue;
            }
            let state = StateWords::read(&old.limit, slot.state());
            if let Some(edit) = new.limit.carry_over(&old.limit, &state, self.now()) {
                slot.set(StateWords::write(edit));
            }
        }
    }

    /// How long reservations are remembered after they have expired, and how many there may be under one key of one
    /// limit. A minute and 1,024 unless told otherwise.
    #[must_use]
    pub const fn with_reservations(mut self, memory: Nanos, most: usize) -> Self {
        self.variable_states.set_reservation_options(memory, most);
        self
    }

    /// Decides on a batch of known size and answers by value.
    ///
    /// # Errors
    /// As [`Store::decide`].
    pub fn decide_array<const N: usize>(
        &self,
        checks: [QuotaCheck<'_>; N],
    ) -> Result<(BatchOutcome, [StoreReply; N]), StoreError> {
        let mut answers = [StoreReply::EMPTY; N];
        let verdict = self.decide(&checks, &mut answers)?;
        Ok((verdict, answers))
    }

    /// What time it is for this store: the clock that its decisions are made by. In the year 2116 it stands still: a
    /// clock that far ahead is broken, and a quota that does not refill is safer than one that wraps around.
    #[must_use]
    #[inline]
    pub fn now(&self) -> Timestamp {
        self.clock.now().min(LAST_INSTANT)
    }

    /// The state of one key under one limit, if there is one.
    #[must_use]
    pub fn inspect(&self, key: &StoreKey<'_>, ruled: &IdentifiedLimit) -> Option<State> {
        let place = self.hash_state(key, ruled.id);
        match ruled.limit.state_size() {
            StateSize::Word => self
                .word_table
                .lock_slot(place)
                .map(|slot| StateWords::read(&ruled.limit, slot.state())),
            StateSize::Pair => self
                .pair_table
                .lock_slot(place)
                .map(|slot| StateWords::read(&ruled.limit, slot.state())),
            StateSize::Collection => {
                let mut shelf = self
                    .variable_states
                    .lock(self.variable_states.index(place))?;
                shelf.get(place).map(|stored| stored.state.clone())
            }
        }
    }

    /// Forgets what one key has used of one limit, and its reservations. Answers whether there was anything.
    pub fn erase(&self, key: &StoreKey<'_>, ruled: &IdentifiedLimit) -> bool {
        let place = self.hash_state(key, ruled.id);
        let had_words = match ruled.limit.state_size() {
            StateSize::Word => self
                .word_table
                .lock_slot(place)
                .map(|mut slot| {
                    slot.clear();
                    self.usages.remove(ruled.id.0.get(), Table::Words, 1);
                })
                .is_some(),
            StateSize::Pair => self
                .pair_table
                .lock_slot(place)
                .map(|mut slot| {
                    slot.clear();
                    self.usages.remove(ruled.id.0.get(), Table::Pairs, 1);
                })
                .is_some(),
            StateSize::Collection => false,
        };
        let shelf = self.variable_states.lock(self.variable_states.index(place));
        let had_box = shelf.is_some_and(|mut shelf| self.variable_states.remove(&mut shelf, place));
        had_words || had_box
    }

    /// What the store has had to do for want of room, and what it takes.
    #[must_use]
    pub fn usage(&self) -> StoreUsage {
        let total = self.usages.total();
        StoreUsage {
            evictions: total.evictions,
            overflow_decisions: total.overflow_decisions,
            overflow_bytes: self.overflow.size(),
            table_bytes: self
                .word_table
                .size()
                .saturating_add(self.pair_table.size()),
            collection_bytes: self.variable_states.used(),
        }
    }

    /// Decides on at most N checks, the short way if it can be gone.
    fn decide_up_to<const N: usize>(
        &self,
        checks: &[QuotaCheck<'_>],
        answers: &mut [StoreReply],
    ) -> Result<BatchOutcome, StoreError> {
        match fast_path::spend_all::<N, C>(self, checks, answers) {
            Some(verdict) => Ok(verdict),
            None => Batch::<N>::decide(self, checks, answers),
        }
    }

    #[inline]
    fn hash_state(&self, key: &StoreKey<'_>, id: LimitId) -> StateHash {
        self.secret.hash_state(key, id)
    }
}

impl<C> MemoryStore<C> {
    const fn word_table(&self) -> &SlotTable<1> {
        &self.word_table
    }

    const fn pair_table(&self) -> &SlotTable<2> {
        &self.pair_table
    }

    const fn variable_states(&self) -> &VariableStates {
        &self.variable_states
    }

    const fn priorities(&self) -> &EvictionPriorities {
        &self.priorities
    }

    const fn overflow(&self) -> &OverflowSketches {
        &self.overflow
    }

    fn usages(&self) -> &LimitUsages {
        &self.usages
    }

    /// What a key without a state of its own owes in its limit's sketch, if it does.
    fn overflow_debt(&self, place: StateHash, now: Timestamp) -> Option<Tat> {
        self.overflow.debt(&self.usages, place.tag(), now)
    }
}

impl<C: Clock> Store for MemoryStore<C> {
    fn decide(
        &self,
        checks: &[QuotaCheck<'_>],
        answers: &mut [StoreReply],
    ) -> Result<BatchOutcome, StoreError> {
        let bad = |detail| Err(StoreError::new(StoreErrorKind::BadRequest, detail));
        if answers.len() != checks.len() {
            return bad("there must be room for as many answers as there are checks");
        }
        match checks.len() {
            0 => Ok(BatchOutcome::default()),
            1 => self.decide_up_to::<1>(checks, answers),
            2 => self.decide_up_to::<2>(checks, answers),
            3..=4 => self.decide_up_to::<4>(checks, answers),
            5..=8 => self.decide_up_to::<8>(checks, answers),
            9..=MAX_CHECKS => self.decide_up_to::<MAX_CHECKS>(checks, answers),
            _ => bad("there are more than 32 checks"),
        }
    }
}

impl<C> fmt::Debug for MemoryStore<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("table_bytes", &self.word_table.size())
            .finish_non_exhaustive()
    }
}
