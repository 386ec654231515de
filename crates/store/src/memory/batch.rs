//! One batch on any number of limits: lock all states in one order, decide at one instant, charge all or none.
//!
//! The lock order is: insert locks of new keys, by address; slots, by address; variable-state shards, by index. No
//! thread waits for an earlier kind while it holds a later one, so there is no deadlock. Must not know: how tables and
//! shards are built.

use std::sync::MutexGuard;

use tollgate_core::Timestamp;
use tollgate_core::compose::BatchOutcome;
use tollgate_core::limit::StateSize;
use tollgate_core::sketch::Sketch;

use super::MemoryStore;
use super::batch_check::{BatchCheck, CheckTransition};
use super::group::{Slot, SlotGuard};
use super::hash::StateHash;
use super::lock_bit::BitGuard;
use super::slot_table::{SlotTable, VacantSlot};
use super::variable_state::{VariableStateShard, VariableStates};
use crate::clock::Clock;
use crate::contract::{Op, QuotaCheck, StoreReply};
use crate::store_error::{StoreError, StoreErrorKind};

/// The slot that a check has locked.
#[derive(Debug, Default)]
pub(super) enum SlotAccess<'a> {
    /// None yet, or the state is in a shard.
    #[default]
    Nothing,
    Word(SlotGuard<'a, 1>),
    Pair(SlotGuard<'a, 2>),
    NewWord(VacantSlot<'a, 1>),
    NewPair(VacantSlot<'a, 2>),
    /// There is no room for the key: the overflow sketch decides.
    Full,
}

/// A batch of at most N checks. Arrays are in the order of the checks unless noted.
pub(super) struct Batch<'a, const N: usize> {
    hashes: [Option<StateHash>; N],
    slots: [SlotAccess<'a>; N],
    insert_locks: [Option<BitGuard<'a>>; N],
    /// Locked shards with their indices, in ascending order.
    shards: [Option<(usize, MutexGuard<'a, VariableStateShard>)>; N],
    /// The overflow sketch, locked last and only if it is needed.
    overflow: Option<MutexGuard<'a, Sketch>>,
    /// The instant of the decision, and the store that cleans up the shards after it.
    decided: Option<(Timestamp, &'a VariableStates)>,
}

impl<const N: usize> Drop for Batch<'_, N> {
    /// Runs also after an error or a panic, so that no state stays claimed.
    fn drop(&mut self) {
        if let Some((now, states)) = self.decided {
            for (_, shard) in self.shards.iter_mut().flatten() {
                states.end_batch(shard, now);
            }
        }
    }
}

impl<'a, const N: usize> Batch<'a, N> {
    /// Decides at most N checks.
    pub(super) fn decide<C: Clock>(
        store: &'a MemoryStore<C>,
        checks: &[QuotaCheck<'_>],
        answers: &mut [StoreReply],
    ) -> Result<BatchOutcome, StoreError> {
        let mut batch = Self {
            hashes: [None; N],
            slots: std::array::from_fn(|_| SlotAccess::Nothing),
            insert_locks: std::array::from_fn(|_| None),
            shards: std::array::from_fn(|_| None),
            overflow: None,
            decided: None,
        };
        batch.hash_checks(store, checks)?;
        while !(batch.lock_existing(store, checks) || batch.lock_or_make_room(store, checks)) {
            batch.release();
        }
        batch.lock_shards(store, checks);
        let now = store.now();
        batch.decided = Some((now, store.variable_states()));
        batch.decide_and_commit(store, checks, answers, now)
    }

    fn hash_checks<C: Clock>(
        &mut self,
        store: &MemoryStore<C>,
        checks: &[QuotaCheck<'_>],
    ) -> Result<(), StoreError> {
        for (index, check) in checks.iter().enumerate() {
            let hash = store.hash_state(&check.key, check.limit.id);
            let known = self.hashes.iter().take(index).flatten();
            if known.into_iter().any(|other| *other == hash) {
                let detail = "duplicate key of one limit in the batch";
                return Err(StoreError::new(StoreErrorKind::BadRequest, detail));
            }
            if let Some(slot) = self.hashes.get_mut(index) {
                *slot = Some(hash);
            }
        }
        Ok(())
    }

    /// Locks the slots of all keys if all of them have one: the common case, without insert locks.
    fn lock_existing<C: Clock>(
        &mut self,
        store: &'a MemoryStore<C>,
        checks: &[QuotaCheck<'_>],
    ) -> bool {
        self.lock_slots(store, checks, false)
    }

    /// Takes insert locks, then slots, then makes room for keys without a slot.
    fn lock_or_make_room<C: Clock>(
        &mut self,
        store: &'a MemoryStore<C>,
        checks: &[QuotaCheck<'_>],
    ) -> bool {
        self.release();
        self.lock_inserts(store, checks);
        if !self.lock_slots(store, checks, true) {
            return false;
        }
        let now = store.now();
        for (index, check) in checks.iter().enumerate() {
            let (Some(hash), Some(SlotAccess::Nothing)) = (self.hash(index), self.slots.get(index))
            else {
                continue;
            };
            store
                .priorities()
                .add_if_unknown(check.limit.id, &check.limit.limit);
            let has_debt = || store.overflow().has_debt(hash.bits(), now);
            let found = match check.limit.limit.state_size() {
                StateSize::Collection => continue,
                _ if has_debt() => None,
                StateSize::Word => self
                    .make_room(store.word_table(), store, hash, now)
                    .map(SlotAccess::NewWord),
                StateSize::Pair => self
                    .make_room(store.pair_table(), store, hash, now)
                    .map(SlotAccess::NewPair),
            };
            if let Some(access) = self.slots.get_mut(index) {
                *access = found.unwrap_or(SlotAccess::Full);
            }
        }
        true
    }

    fn make_room<C: Clock, const W: usize>(
        &mut self,
        table: &'a SlotTable<W>,
        store: &'a MemoryStore<C>,
        hash: StateHash,
        now: Timestamp,
    ) -> Option<VacantSlot<'a, W>> {
        let address = table.insert_lock_address(hash);
        let insert_lock = self
            .insert_locks
            .iter_mut()
            .flatten()
            .find(|insert_lock| insert_lock.address() == address)?;
        table.make_room(hash, insert_lock, now, store.priorities())
    }

    fn lock_inserts<C: Clock>(&mut self, store: &'a MemoryStore<C>, checks: &[QuotaCheck<'_>]) {
        let mut wanted: [Option<(usize, usize)>; N] = [None; N];
        for (index, check) in checks.iter().enumerate() {
            let Some(hash) = self.hash(index) else {
                continue;
            };
            let address = match check.limit.limit.state_size() {
                StateSize::Word => store.word_table().insert_lock_address(hash),
                StateSize::Pair => store.pair_table().insert_lock_address(hash),
                StateSize::Collection => continue,
            };
            if let Some(slot) = wanted.get_mut(index) {
                *slot = Some((address, index));
            }
        }
        wanted.sort_unstable();
        let hashes = self.hashes;
        let mut last = None;
        for ((address, index), insert_lock) in wanted.iter().flatten().zip(&mut self.insert_locks) {
            let Some(hash) = hashes.get(*index).copied().flatten() else {
                continue;
            };
            if last == Some(*address) {
                continue;
            }
            last = Some(*address);
            *insert_lock = match checks
                .get(*index)
                .map(|check| check.limit.limit.state_size())
            {
                Some(StateSize::Word) => store.word_table().insert_lock(hash),
                Some(StateSize::Pair) => store.pair_table().insert_lock(hash),
                _ => None,
            };
        }
    }

    /// Locks the slots of keys that have one, by address. Returns false if a key was moved meanwhile, or if a key has
    /// no slot and `may_miss` is false.
    fn lock_slots<C: Clock>(
        &mut self,
        store: &'a MemoryStore<C>,
        checks: &[QuotaCheck<'_>],
        may_miss: bool,
    ) -> bool {
        let mut found: [Option<FoundSlot<'a>>; N] = std::array::from_fn(|_| None);
        let mut order: [Option<(usize, usize)>; N] = [None; N];
        for (index, check) in checks.iter().enumerate() {
            let Some(hash) = self.hash(index) else {
                continue;
            };
            let slot = match check.limit.limit.state_size() {
                StateSize::Word => store.word_table().find(hash).map(FoundSlot::Word),
                StateSize::Pair => store.pair_table().find(hash).map(FoundSlot::Pair),
                StateSize::Collection => continue,
            };
            if slot.is_none() && !may_miss {
                return false;
            }
            if let (Some(entry), Some(order)) = (found.get_mut(index), order.get_mut(index)) {
                *order = slot.as_ref().map(|slot| (slot.address(), index));
                *entry = slot;
            }
        }
        order.sort_unstable();
        for (_, index) in order.iter().flatten() {
            let (Some(slot), Some(hash)) = (
                found.get_mut(*index).and_then(Option::take),
                self.hash(*index),
            ) else {
                continue;
            };
            let (access, tag) = slot.lock();
            if tag != hash.tag() {
                return false;
            }
            if let Some(slot) = self.slots.get_mut(*index) {
                *slot = access;
            }
        }
        true
    }

    fn lock_shards<C: Clock>(&mut self, store: &'a MemoryStore<C>, checks: &[QuotaCheck<'_>]) {
        let mut wanted: [Option<usize>; N] = [None; N];
        for (index, check) in checks.iter().enumerate() {
            let needs_shard = check.limit.limit.state_size() == StateSize::Collection
                || is_reservation_op(check.op);
            if let (true, Some(hash), Some(slot)) =
                (needs_shard, self.hash(index), wanted.get_mut(index))
            {
                *slot = Some(store.variable_states().index(hash));
            }
        }
        wanted.sort_unstable();
        let mut last = None;
        for (index, shard) in wanted.iter().flatten().zip(&mut self.shards) {
            if last != Some(*index) {
                *shard = store
                    .variable_states()
                    .lock(*index)
                    .map(|guard| (*index, guard));
            }
            last = Some(*index);
        }
    }

    /// Decides every check, then stores all changes or none.
    fn decide_and_commit<C: Clock>(
        &mut self,
        store: &'a MemoryStore<C>,
        checks: &[QuotaCheck<'_>],
        answers: &mut [StoreReply],
        now: Timestamp,
    ) -> Result<BatchOutcome, StoreError> {
        let mut outcome = BatchOutcome::default();
        let mut transitions: [Option<CheckTransition>; N] = std::array::from_fn(|_| None);
        for (index, check) in checks.iter().enumerate() {
            let Some(mut batch_check) = self.batch_check(store, check, index, now) else {
                continue;
            };
            let transition = batch_check.decide()?;
            outcome.add(transition.outcome());
            if let Some(slot) = transitions.get_mut(index) {
                *slot = Some(transition);
            }
        }
        for (index, check) in checks.iter().enumerate() {
            let Some(transition) = transitions.get_mut(index).and_then(Option::take) else {
                continue;
            };
            let Some(mut batch_check) = self.batch_check(store, check, index, now) else {
                continue;
            };
            let answer = batch_check.commit(transition, outcome.is_admitted());
            if let Some(slot) = answers.get_mut(index) {
                *slot = answer;
            }
        }
        Ok(outcome)
    }

    /// The check with its locked state. `None` only for an index without a check.
    fn batch_check<'b, C: Clock>(
        &'b mut self,
        store: &'a MemoryStore<C>,
        check: &'b QuotaCheck<'b>,
        index: usize,
        now: Timestamp,
    ) -> Option<BatchCheck<'b, 'a, C>> {
        let hash = self.hash(index)?;
        let shard_index = store.variable_states().index(hash);
        let shard = self
            .shards
            .iter_mut()
            .flatten()
            .find(|(locked, _)| *locked == shard_index)
            .map(|(_, shard)| &mut **shard);
        let access = self.slots.get_mut(index)?;
        let overflow = &mut self.overflow;
        Some(BatchCheck {
            store,
            check,
            hash,
            now,
            slot: access,
            shard,
            overflow,
        })
    }

    fn hash(&self, index: usize) -> Option<StateHash> {
        self.hashes.get(index).copied().flatten()
    }

    fn release(&mut self) {
        self.slots = std::array::from_fn(|_| SlotAccess::Nothing);
        self.insert_locks = std::array::from_fn(|_| None);
    }
}

/// A slot that was found and is not locked yet.
enum FoundSlot<'a> {
    Word(Slot<'a, 1>),
    Pair(Slot<'a, 2>),
}

impl<'a> FoundSlot<'a> {
    fn address(&self) -> usize {
        match self {
            Self::Word(slot) => slot.address(),
            Self::Pair(slot) => slot.address(),
        }
    }

    /// Locks the slot and returns its tag.
    fn lock(self) -> (SlotAccess<'a>, u64) {
        match self {
            Self::Word(slot) => {
                let owned = slot.lock();
                let tag = owned.tag();
                (SlotAccess::Word(owned), tag)
            }
            Self::Pair(slot) => {
                let owned = slot.lock();
                let tag = owned.tag();
                (SlotAccess::Pair(owned), tag)
            }
        }
    }
}

pub(super) const fn is_reservation_op(op: Op) -> bool {
    matches!(
        op,
        Op::Reserve { .. } | Op::SettleReserved { .. } | Op::CancelReserved(_)
    )
}
