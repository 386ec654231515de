//! One request on any number of limits: take what is needed in one order, decide at one instant, charge all or none.
//!
//! The order is: doors of keys that are new, by address; slots, by address; shelves, by index. Nobody who holds a later
//! kind waits for an earlier one, so nobody waits in a circle. Must not know: how tables and shelves are built.

use std::sync::MutexGuard;

use tollgate_core::Timestamp;
use tollgate_core::compose::BatchOutcome;
use tollgate_core::limit::{StateSize, WhenFull};

use super::MemoryStore;
use super::batch_check::{BatchCheck, CheckTransition};
use super::group::{Slot, SlotGuard};
use super::hash::StateHash;
use super::limit_usage::LimitUsages;
use super::lock_bit::BitGuard;
use super::overflow::{OverflowSketches, SketchSet};
use super::slot_table::{SlotTable, VacantSlot};
use super::variable_state::{VariableStateShard, VariableStates};
use crate::clock::Clock;
use crate::contract::{Op, QuotaCheck, StoreReply};
use crate::store_error::{StoreError, StoreErrorKind};

/// What a check holds while it is decided.
#[derive(Debug, Default)]
pub(super) enum SlotAccess<'a> {
    /// Nothing yet, or nothing but a shelf.
    #[default]
    Nothing,
    Word(SlotGuard<'a, 1>),
    Pair(SlotGuard<'a, 2>),
    NewWord(VacantSlot<'a, 1>),
    NewPair(VacantSlot<'a, 2>),
    /// There is no room for the key: the overflow decides.
    Full,
}

/// The parts of a batch of at most N checks, in the order of the checks.
pub(super) struct Batch<'a, const N: usize> {
    places: [Option<StateHash>; N],
    holdings: [SlotAccess<'a>; N],
    doors: [Option<BitGuard<'a>>; N],
    /// Locked shelves with their indices, in ascending order.
    shelves: [Option<(usize, MutexGuard<'a, VariableStateShard>)>; N],
    /// The overflow sketches, locked last and only if they are needed.
    overflow: Option<MutexGuard<'a, SketchSet>>,
    /// The instant of the decision, and who cleans the shelves up after it.
    decided: Option<(Timestamp, EvictedStates<'a>)>,
}

/// Where collections are evicted from, and where what they owe is kept.
#[derive(Clone, Copy)]
struct EvictedStates<'a> {
    variable_states: &'a VariableStates,
    overflow: &'a OverflowSketches,
    usages: &'a LimitUsages,
}

impl<const N: usize> Drop for Batch<'_, N> {
    /// Also after an error, and by unwinding: no box stays claimed.
    fn drop(&mut self) {
        let Some((now, stores)) = self.decided else {
            return;
        };
        for (_, shelf) in self.shelves.iter_mut().flatten() {
            for (tag, debt) in stores.variable_states.end_batch(shelf, now) {
                // Before the shelf is unlocked: whoever no longer finds the key there finds its debt.
                let sketches = self.overflow.get_or_insert_with(|| stores.overflow.lock());
                sketches.add_debt(stores.usages, tag, debt, now);
            }
        }
    }
}

impl<'a, const N: usize> Batch<'a, N> {
    /// Decides on at most N checks.
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
        let stores = EvictedStates {
            variable_states: memory.variable_states(),
            overflow: memory.overflow(),
            usages: memory.usages(),
        };
        batch.decided = Some((now, stores));
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

    /// Takes the slots of all keys if all of them have one: the usual case, without doors.
    fn take_known<C: Clock>(
        &mut self,
        memory: &'a MemoryStore<C>,
        checks: &[QuotaCheck<'_>],
    ) -> bool {
        self.take_slots(memory, checks, false)
    }

    /// Takes doors, then slots, then looks for room for keys that have none.
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
            let debt = match memory.usages().when_full(place.limit().0.get()) {
                WhenFull::Refuse => memory.overflow_debt(place, now),
                WhenFull::Forget => None,
            };
            let found = match check.limit.limit.state_size() {
                StateSize::Collection => continue,
                // What it owes moves in with it, so that its further charges burden no other key of the sketch.
                StateSize::Word => self
                    .room(memory.word_table(), memory, place, now)
                    .map(|room| SlotAccess::NewWord(room.with_debt(debt.unwrap_or(0)))),
                // What a bucket owes is not what a window has counted: the sketch goes on deciding until it is paid.
                StateSize::Pair if debt.is_some() => None,
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
        table.make_room(place, door, now, memory.priorities(), memory.usages())
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

    /// Takes the slots of the keys that have one, by address. Answers false if somebody moved meanwhile, or if a key
    /// has none and `may_miss` does not allow that.
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

    /// Decides on every check, then stores all of it or none.
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

    /// Everything that the check needs, in hand. `None` only for an index that no check has.
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

/// A slot that was found and is not held yet.
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

    /// Takes the slot's bit; answers who lives there.
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
