//! The memory store: bounded state in this process, exact decisions without waiting.
//!
//! Token buckets are in a table of one-word states, windows in a table of two-word states; logs, leases and
//! reservations are in sharded variable states. All sizes are fixed when the store is made. An expired state equals an
//! unused one, so there is no sweeper and no pause. A full table first evicts states of limits above their share, then the
//! state whose loss refunds the least. An evicted state is dropped, or kept in an overflow sketch of its limit that may deny
//! too much, as the limit says ([`WhenFull`]).
//!
//! Must not know: what keys mean, policies, transports.

mod batch;
mod batch_check;
mod eviction_priority;
mod fast_path;
mod group;
mod hash;
mod hash_tops;
mod limit_map;
mod limit_usage;
mod lock_bit;
#[cfg(all(test, loom))]
mod loom_models;
mod occupancy;
mod overflow;
mod pages;
mod prefetch;
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

/// The largest number of keys of a store.
pub const MAX_KEYS: usize = 1 << 30;

/// The latest instant. A state may be twice as late, and its top bit is a lock.
const LAST_INSTANT: Timestamp = Timestamp::from_nanos(1 << 62);

/// Bytes of variable states (log entries, leases, reservations) per key. A bound, not an allocation.
const COLLECTION_BYTES_PER_KEY: usize = 512;
/// Bytes of both tables per key: a group of 128 bytes for every four buckets and for every three windows, and two bytes of hash for
/// each of their seven and five slots.
const TABLE_BYTES_PER_KEY: usize = (128 + 14) / 4 + (128 + 10) / 3 + 2;

/// A store in memory.
///
/// ```
/// use std::num::NonZeroU16;
/// use tollgate_core::{Outcome, Rate, TokenBucket};
/// use tollgate_store::{IdentifiedLimit, LimitId, MemoryStore, Op, QuotaCheck, StoreKey};
///
/// let store = MemoryStore::for_keys(10_000)?;
/// let quota = TokenBucket::builder(Rate::per_second(10)).burst(1).build()?;
/// let limit = IdentifiedLimit { id: LimitId(NonZeroU16::MIN), limit: quota.into() };
/// store.add_limit(&limit);
///
/// let check = QuotaCheck { key: StoreKey::new(b"alice")?, limit: &limit, op: Op::Spend(1) };
/// assert_eq!(store.decide_array([check])?.0.outcome(), Outcome::Allow);
/// let (outcome, [answer]) = store.decide_array([check])?;
/// assert!(!outcome.is_admitted());
/// assert_eq!(answer.status.remaining, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MemoryStore<C = SystemClock> {
    clock: C,
    hash_seed: HashSeed,
    priorities: EvictionPriorities,
    word_table: SlotTable<1>,
    pair_table: SlotTable<2>,
    variable_states: VariableStates,
    usages: Arc<LimitUsages>,
    overflow: OverflowSketches,
}

/// How often this thread has waited for another inside any store. Counted only in debug builds, for tests.
#[doc(hidden)]
#[must_use]
pub fn waits_of_this_thread() -> Option<u64> {
    sync::waits_of_this_thread()
}

/// Evictions, overflow decisions and memory of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreUsage {
    /// Live states that were evicted. Each eviction refunded the key's charges, unless its limit is
    /// [`WhenFull::Refuse`].
    pub evictions: u64,
    /// Decisions by the overflow sketch.
    pub overflow_decisions: u64,
    /// Bytes reserved for both tables. Untouched pages are not resident.
    pub table_bytes: usize,
    /// Bytes of variable states.
    pub collection_bytes: usize,
    /// Bytes that overflow sketches take: none before the first is needed, at most 16 MiB.
    pub overflow_bytes: usize,
}

impl MemoryStore {
    /// A store with room for about `keys` concurrently used keys of each kind, on the machine's clock.
    ///
    /// # Errors
    /// The number must be 1 to [`MAX_KEYS`], and there must be memory for it.
    pub fn for_keys(keys: usize) -> Result<Self, InvalidSize> {
        Self::with_clock(keys, SystemClock::new())
    }

    /// A store that uses at most about this many bytes for tables and variable states, on the machine's clock.
    ///
    /// # Errors
    /// It must be enough for one key and not more than for [`MAX_KEYS`], and there must be memory for it.
    pub fn for_bytes(bytes: usize) -> Result<Self, InvalidSize> {
        Self::for_keys(bytes / (TABLE_BYTES_PER_KEY + COLLECTION_BYTES_PER_KEY))
    }
}

impl<C: Clock> MemoryStore<C> {
    /// Like [`for_keys`](MemoryStore::for_keys), on another clock.
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
            hash_seed: HashSeed::random(),
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

    /// Announces a limit, so that the store can compute eviction priorities of its states. The first key of an
    /// unannounced limit announces it; call this for further tiers of a limit. When a quota changes, call
    /// [`replace_limit`](Self::replace_limit).
    pub fn add_limit(&self, limit: &IdentifiedLimit) {
        self.usages.prepare(limit.id);
        self.priorities.add_tier(limit.id, &limit.limit);
    }

    /// Sets what happens to the limit's keys when there is no room for all of them. The default is [`WhenFull::Refuse`].
    pub fn set_when_full(&self, id: LimitId, when_full: WhenFull) {
        self.usages.set_when_full(id, when_full);
    }

    /// What one limit uses of the store, and what the store had to do for want of room.
    #[must_use]
    pub fn limit_usage(&self, id: LimitId) -> LimitUsage {
        self.usages.read(id)
    }

    /// Removes a limit and frees the room of its states. Its id must not be used again.
    pub fn remove_limit(&self, id: LimitId) {
        self.priorities.remove(id);
        self.overflow.lock().remove_limit(id.0.get());
        self.variable_states.remove_limit(id);
    }

    /// Replaces the quota of a limit or of one of its tiers. Charges stay. Keys that the new quota denies are protected
    /// from eviction like all denied keys. If another tier has the same quota as `old`, [`add_limit`](Self::add_limit)
    /// it again.
    ///
    /// If a sliding window gets another length, this converts its counters one by one and scans the whole table. A
    /// log's new quota scans all shards. Other changes cost nothing. Decide by `new` from now on.
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

    /// How long reservations are kept after they have expired, and the largest number under one key of one limit. The
    /// defaults are one minute and 1,024.
    #[must_use]
    pub const fn with_reservations(mut self, retention: Nanos, max_records: usize) -> Self {
        self.variable_states
            .set_reservation_options(retention, max_records);
        self
    }

    /// Decides a batch of constant size and returns the replies by value.
    ///
    /// # Errors
    /// As [`Store::decide`].
    pub fn decide_array<const N: usize>(
        &self,
        checks: [QuotaCheck<'_>; N],
    ) -> Result<(BatchOutcome, [StoreReply; N]), StoreError> {
        let mut answers = [StoreReply::EMPTY; N];
        let outcome = self.decide(&checks, &mut answers)?;
        Ok((outcome, answers))
    }

    /// The store's current time. It stands still from the year 2116 on: a clock that far ahead is broken, and a quota
    /// that does not refill is safer than one that wraps around.
    #[must_use]
    #[inline]
    pub fn now(&self) -> Timestamp {
        self.clock.now().min(LAST_INSTANT)
    }

    /// Begins to load the memory in which the key's token bucket is or would be. A caller that knows the next keys calls it some
    /// hundred nanoseconds before it decides on them, because a large table is not in the processor's caches. It changes nothing.
    #[inline]
    pub fn prefetch_bucket(&self, key: &StoreKey<'_>, id: LimitId) {
        self.word_table.prefetch(self.hash_state(key, id));
    }

    /// The state of one key under one limit, if there is one.
    #[must_use]
    pub fn inspect(&self, key: &StoreKey<'_>, limit: &IdentifiedLimit) -> Option<State> {
        let hash = self.hash_state(key, limit.id);
        match limit.limit.state_size() {
            StateSize::Word => self
                .word_table
                .lock_slot(hash)
                .map(|slot| StateWords::read(&limit.limit, slot.state())),
            StateSize::Pair => self
                .pair_table
                .lock_slot(hash)
                .map(|slot| StateWords::read(&limit.limit, slot.state())),
            StateSize::Collection => {
                let mut shard = self
                    .variable_states
                    .lock(self.variable_states.index(hash))?;
                shard.get(hash).map(|entry| entry.state.clone())
            }
        }
    }

    /// Deletes the state of one key under one limit, and its reservations. Returns whether there was any.
    pub fn erase(&self, key: &StoreKey<'_>, limit: &IdentifiedLimit) -> bool {
        let hash = self.hash_state(key, limit.id);
        let had_words = match limit.limit.state_size() {
            StateSize::Word => self
                .word_table
                .lock_slot(hash)
                .map(|mut slot| {
                    slot.clear();
                    self.usages.remove(limit.id.0.get(), Table::Words, 1);
                })
                .is_some(),
            StateSize::Pair => self
                .pair_table
                .lock_slot(hash)
                .map(|mut slot| {
                    slot.clear();
                    self.usages.remove(limit.id.0.get(), Table::Pairs, 1);
                })
                .is_some(),
            StateSize::Collection => false,
        };
        let shard = self.variable_states.lock(self.variable_states.index(hash));
        let had_variable_state =
            shard.is_some_and(|mut shard| self.variable_states.remove(&mut shard, hash));
        had_words || had_variable_state
    }

    /// Evictions, overflow decisions and memory of the store.
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

    /// Decides at most N checks, on the fast path if possible.
    fn decide_up_to<const N: usize>(
        &self,
        checks: &[QuotaCheck<'_>],
        answers: &mut [StoreReply],
    ) -> Result<BatchOutcome, StoreError> {
        match fast_path::spend_all::<N, C>(self, checks, answers) {
            Some(outcome) => Ok(outcome),
            None => Batch::<N>::decide(self, checks, answers),
        }
    }

    #[inline]
    fn hash_state(&self, key: &StoreKey<'_>, id: LimitId) -> StateHash {
        self.hash_seed.hash_state(key, id)
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

    /// The debt in its limit's sketch of a key without a state of its own, if it has one.
    fn overflow_debt(&self, hash: StateHash, now: Timestamp) -> Option<Tat> {
        self.overflow.debt(&self.usages, hash.tag(), now)
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
            return bad("answers and checks must have the same length");
        }
        if let ([check], [answer]) = (checks, &mut *answers)
            && let Some(outcome) = fast_path::spend_one(self, check, answer)
        {
            return Ok(outcome);
        }
        match checks.len() {
            0 => Ok(BatchOutcome::default()),
            1 => self.decide_up_to::<1>(checks, answers),
            2 => self.decide_up_to::<2>(checks, answers),
            3..=4 => self.decide_up_to::<4>(checks, answers),
            5..=6 => self.decide_up_to::<6>(checks, answers),
            7..=8 => self.decide_up_to::<8>(checks, answers),
            9..=32 => self.decide_up_to::<32>(checks, answers),
            33..=MAX_CHECKS => self.decide_up_to::<MAX_CHECKS>(checks, answers),
            _ => bad("too many checks in one batch, the maximum is 128"),
        }
    }

    #[inline]
    fn prefetch(&self, checks: &[QuotaCheck<'_>]) {
        let mut hasher = self.hash_seed.hasher();
        for check in checks {
            let hash = hasher.hash_state(&check.key, check.limit.id);
            match check.limit.limit.state_size() {
                StateSize::Word => self.word_table.prefetch(hash),
                StateSize::Pair => self.pair_table.prefetch(hash),
                // It is in a map behind a lock, which cannot be looked into without waiting.
                StateSize::Collection => {}
            }
        }
    }
}

impl<C> fmt::Debug for MemoryStore<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("table_bytes", &self.word_table.size())
            .finish_non_exhaustive()
    }
}
