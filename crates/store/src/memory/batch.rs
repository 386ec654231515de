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
    places: [Option<StateHash>; N],
    holdings: [SlotAccess<'a>; N],
    doors: [Option<BitGuard<'a>>; N],
    /// Locked shards with their indices, in ascending order.
    shelves: [Option<(usize, MutexGuard<'a, VariableStateShard>)>; N],
    /// The overflow sketch, locked last and only if it is needed.
    overflow: Option<MutexGuard<'a, Sketch>>,
    /// The instant of the decision, and the store that cleans up the shards after it.
    decided: Option<(Timestamp, &'a VariableStates)>,
}

impl<const N: usize> Drop for Batch<'_, N> {
    /// Runs also after an error or a panic, so that no state stays claimed.
    fn drop(&mut self) {
        if let Some((now, shelves)) = self.decided {
            for (_, shelf) in self.shelves.iter_mut().flatten() {
                shelves.end_batch(shelf, now);
            }
        }
    }
}

impl<'a, const N: usize> Batch<'a, N> {
    /// Decides at most N checks.
    pub(super) fn decide<C: Clock>(
        memory: &'a MemoryStore<C>,
        checks: &[QuotaCheck<'_>],
        answers: &mut [StoreReply],
    ) -> Result<BatchOutcome, StoreError> {
        let mut batch = Self {
            places: [None; N],
            holdings: std::array::from_fn(|_| SlotAccess::Nothing),
            doors: std::array::from_fn(|_| None),
            shelves: std::array::from_fn(|_| None),
            overflow: None,
            decided: None,
        };
        batch.locate(memory, checks)?;
        while !(batch.take_known(memory, checks) || batch.take_all(memory, checks)) {
            batch.release();
        }
        batch.lock_shelves(memory, checks);
        let now = memory.now();
        batch.decided = Some((now, memory.variable_states()));
        batch.settle(memory, checks, answers, now)
    }

    fn locate<C: Clock>(
        &mut self,
        memory: &MemoryStore<C>,
        checks: &[QuotaCheck<'_>],
    ) -> Result<(), StoreError> {
        for (index, check) in checks.iter().enumerate() {
            let place = memory.hash_state(&check.key, check.limit.id);
            let known = self.places.iter().take(index).flatten();
            if known.into_iter().any(|other| *other == place) {
                let detail = "the same key occurs twice under the same limit";
                return Err(StoreError::new(StoreErrorKind::BadRequest, detail));
            }
            if let Some(slot) = self.places.get_mut(index) {
                *slot = Some(place);
            }
        }
        Ok(())
    }

    /// Locks the slots of all keys if all of them have one: the common case, without insert locks.
    fn take_known<C: Clock>(
        &mut self,
        memory: &'a MemoryStore<C>,
        checks: &[QuotaCheck<'_>],
    ) -> bool {
        self.take_slots(memory, checks, false)
    }

    /// Takes insert locks, then slots, then makes room for keys without a slot.
    fn take_all<C: Clock>(
        &mut self,
        memory: &'a MemoryStore<C>,
        checks: &[QuotaCheck<'_>],
    ) -> bool {
        self.release();
        self.take_doors(memory, checks);
        if !self.take_slots(memory, checks, true) {
            return false;
        }
        let now = memory.now();
        for (index, check) in checks.iter().enumerate() {
            let (Some(place), Some(SlotAccess::Nothing)) =
                (self.place(index), self.holdings.get(index))
            else {
                continue;
            };
            memory
                .priorities()
                .add_if_unknown(check.limit.id, &check.limit.limit);
            let is_owed = || memory.overflow().has_debt(place.bits(), now);
            let found = match check.limit.limit.state_size() {
                StateSize::Collection => continue,
                _ if is_owed() => None,
                StateSize::Word => self
                    .room(memory.word_table(), memory, place, now)
                    .map(SlotAccess::NewWord),
                StateSize::Pair => self
                    .room(memory.pair_table(), memory, place, now)
                    .map(SlotAccess::NewPair),
            };
            if let Some(holding) = self.holdings.get_mut(index) {
                *holding = found.unwrap_or(SlotAccess::Full);
            }
        }
        true
    }

    fn room<C: Clock, const W: usize>(
        &mut self,
        table: &'a SlotTable<W>,
        memory: &'a MemoryStore<C>,
        place: StateHash,
        now: Timestamp,
    ) -> Option<VacantSlot<'a, W>> {
        let address = table.insert_lock_address(place);
        let door = self
            .doors
            .iter_mut()
            .flatten()
            .find(|door| door.address() == address)?;
        table.make_room(place, door, now, memory.priorities())
    }

    fn take_doors<C: Clock>(&mut self, memory: &'a MemoryStore<C>, checks: &[QuotaCheck<'_>]) {
        let mut wanted: [Option<(usize, usize)>; N] = [None; N];
        for (index, check) in checks.iter().enumerate() {
            let Some(place) = self.place(index) else {
                continue;
            };
            let address = match check.limit.limit.state_size() {
                StateSize::Word => memory.word_table().insert_lock_address(place),
                StateSize::Pair => memory.pair_table().insert_lock_address(place),
                StateSize::Collection => continue,
            };
            if let Some(slot) = wanted.get_mut(index) {
                *slot = Some((address, index));
            }
        }
        wanted.sort_unstable();
        let places = self.places;
        let mut last = None;
        for ((address, index), door) in wanted.iter().flatten().zip(&mut self.doors) {
            let Some(place) = places.get(*index).copied().flatten() else {
                continue;
            };
            if last == Some(*address) {
                continue;
            }
            last = Some(*address);
            *door = match checks
                .get(*index)
                .map(|check| check.limit.limit.state_size())
            {
                Some(StateSize::Word) => memory.word_table().insert_lock(place),
                Some(StateSize::Pair) => memory.pair_table().insert_lock(place),
                _ => None,
            };
        }
    }

    /// Locks the slots of keys that have one, by address. Returns false if a key was moved meanwhile, or if a key has
    /// no slot and `may_miss` is false.
    fn take_slots<C: Clock>(
        &mut self,
        memory: &'a MemoryStore<C>,
        checks: &[QuotaCheck<'_>],
        may_miss: bool,
    ) -> bool {
        let mut found: [Option<FoundSlot<'a>>; N] = std::array::from_fn(|_| None);
        let mut order: [Option<(usize, usize)>; N] = [None; N];
        for (index, check) in checks.iter().enumerate() {
            let Some(place) = self.place(index) else {
                continue;
            };
            let slot = match check.limit.limit.state_size() {
                StateSize::Word => memory.word_table().find(place).map(FoundSlot::Word),
                StateSize::Pair => memory.pair_table().find(place).map(FoundSlot::Pair),
                StateSize::Collection => continue,
            };
            if slot.is_none() && !may_miss {
                return false;
            }
            if let (Some(place), Some(order)) = (found.get_mut(index), order.get_mut(index)) {
                *order = slot.as_ref().map(|slot| (slot.address(), index));
                *place = slot;
            }
        }
        order.sort_unstable();
        for (_, index) in order.iter().flatten() {
            let (Some(slot), Some(place)) = (
                found.get_mut(*index).and_then(Option::take),
                self.place(*index),
            ) else {
                continue;
            };
            let (holding, tag) = slot.take();
            if tag != place.tag() {
                return false;
            }
            if let Some(slot) = self.holdings.get_mut(*index) {
                *slot = holding;
            }
        }
        true
    }

    fn lock_shelves<C: Clock>(&mut self, memory: &'a MemoryStore<C>, checks: &[QuotaCheck<'_>]) {
        let mut wanted: [Option<usize>; N] = [None; N];
        for (index, check) in checks.iter().enumerate() {
            let needs_shelf =
                check.limit.limit.state_size() == StateSize::Collection || is_reserved(check.op);
            if let (true, Some(place), Some(slot)) =
                (needs_shelf, self.place(index), wanted.get_mut(index))
            {
                *slot = Some(memory.variable_states().index(place));
            }
        }
        wanted.sort_unstable();
        let mut last = None;
        for (index, shelf) in wanted.iter().flatten().zip(&mut self.shelves) {
            if last != Some(*index) {
                *shelf = memory
                    .variable_states()
                    .lock(*index)
                    .map(|guard| (*index, guard));
            }
            last = Some(*index);
        }
    }

    /// Decides every check, then stores all changes or none.
    fn settle<C: Clock>(
        &mut self,
        memory: &'a MemoryStore<C>,
        checks: &[QuotaCheck<'_>],
        answers: &mut [StoreReply],
        now: Timestamp,
    ) -> Result<BatchOutcome, StoreError> {
        let mut verdict = BatchOutcome::default();
        let mut steps: [Option<CheckTransition>; N] = std::array::from_fn(|_| None);
        for (index, check) in checks.iter().enumerate() {
            let Some(mut step) = self.step(memory, check, index, now) else {
                continue;
            };
            let stepped = step.decide()?;
            verdict.add(stepped.outcome());
            if let Some(slot) = steps.get_mut(index) {
                *slot = Some(stepped);
            }
        }
        for (index, check) in checks.iter().enumerate() {
            let Some(stepped) = steps.get_mut(index).and_then(Option::take) else {
                continue;
            };
            let Some(mut step) = self.step(memory, check, index, now) else {
                continue;
            };
            let answer = step.commit(stepped, verdict.is_admitted());
            if let Some(slot) = answers.get_mut(index) {
                *slot = answer;
            }
        }
        Ok(verdict)
    }

    /// The check with its locked state. `None` only for an index without a check.
    fn step<'b, C: Clock>(
        &'b mut self,
        memory: &'a MemoryStore<C>,
        check: &'b QuotaCheck<'b>,
        index: usize,
        now: Timestamp,
    ) -> Option<BatchCheck<'b, 'a, C>> {
        let place = self.place(index)?;
        let shelf_index = memory.variable_states().index(place);
        let shelf = self
            .shelves
            .iter_mut()
            .flatten()
            .find(|(locked, _)| *locked == shelf_index)
            .map(|(_, shelf)| &mut **shelf);
        let holding = self.holdings.get_mut(index)?;
        let overflow = &mut self.overflow;
        Some(BatchCheck {
            memory,
            check,
            hash: place,
            now,
            slot: holding,
            shard: shelf,
            overflow,
        })
    }

    fn place(&self, index: usize) -> Option<StateHash> {
        self.places.get(index).copied().flatten()
    }

    fn release(&mut self) {
        self.holdings = std::array::from_fn(|_| SlotAccess::Nothing);
        self.doors = std::array::from_fn(|_| None);
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
    fn take(self) -> (SlotAccess<'a>, u64) {
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

pub(super) const fn is_reserved(op: Op) -> bool {
    matches!(
        op,
        Op::Reserve { .. } | Op::SettleReserved { .. } | Op::CancelReserved(_)
    )
}
