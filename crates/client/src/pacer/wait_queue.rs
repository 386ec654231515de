//! The requests that wait, in slots that are reused. A waiter has no timer of its own.
//!
//! Must not know: pace, order.

use tollgate_core::{Nanos, Timestamp};

use super::partition_table::BucketId;
use super::{Grant, WaiterState};
use crate::error::PaceError;
use crate::request::{PaceRequest, RequestCost};

/// A request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WaiterId {
    slot: u32,
    /// Distinguishes the waiters that use a slot one after another.
    generation: u32,
}

impl WaiterId {
    /// The slot, which no other waiter has at the same time.
    #[must_use]
    pub fn slot(self) -> usize {
        usize::try_from(self.slot).unwrap_or(usize::MAX)
    }
}

/// What a waiter waits for.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) bucket: BucketId,
    pub(super) cost: RequestCost,
    pub(super) deadline: Option<Timestamp>,
}

#[derive(Debug)]
enum SlotState {
    Free,
    Waiting(Waiter),
    Finished(Result<Grant, PaceError>),
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    state: SlotState,
}

/// The requests that wait, at most `max`.
#[derive(Debug)]
pub(super) struct WaitQueue {
    slots: Vec<Slot>,
    free: Vec<u32>,
    waiting: usize,
    max: usize,
}

impl WaitQueue {
    pub(super) const fn new(max: usize) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            waiting: 0,
            max,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.waiting
    }

    pub(super) fn push(&mut self, bucket: BucketId, request: &PaceRequest<'_>) -> Option<WaiterId> {
        // Finished waiters hold a slot until their task takes the result.
        if self.slots.len() - self.free.len() >= self.max {
            return None;
        }
        let state = SlotState::Waiting(Waiter {
            bucket,
            cost: request.cost,
            deadline: request.deadline,
        });
        self.waiting += 1;
        if let Some(index) = self.free.pop() {
            let slot = self.slots.get_mut(usize::try_from(index).ok()?)?;
            slot.state = state;
            return Some(WaiterId {
                slot: index,
                generation: slot.generation,
            });
        }
        let index = u32::try_from(self.slots.len()).ok()?;
        self.slots.push(Slot {
            generation: 0,
            state,
        });
        Some(WaiterId {
            slot: index,
            generation: 0,
        })
    }

    /// The waiter, if it still waits.
    pub(super) fn get(&self, id: WaiterId) -> Option<&Waiter> {
        let slot = self
            .slots
            .get(id.slot())
            .filter(|slot| slot.generation == id.generation)?;
        match &slot.state {
            SlotState::Waiting(waiter) => Some(waiter),
            SlotState::Free | SlotState::Finished(_) => None,
        }
    }

    /// Moves the deadline of a waiter into the past, so that it fails at the next grant.
    pub(super) fn expire(&mut self, id: WaiterId) {
        if let Some(slot) = self.slot_mut(id)
            && let SlotState::Waiting(waiter) = &mut slot.state
        {
            waiter.deadline = Some(Timestamp::EPOCH);
        }
    }

    /// Ends a wait with its result.
    pub(super) fn finish(&mut self, id: WaiterId, result: Result<Grant, PaceError>) {
        if let Some(slot) = self.slot_mut(id) {
            slot.state = SlotState::Finished(result);
            self.waiting = self.waiting.saturating_sub(1);
        }
    }

    /// The state of a waiter. The result is returned once, and frees the slot.
    pub(super) fn poll(&mut self, id: WaiterId) -> WaiterState {
        let gone = || WaiterState::Failed(PaceError::DeadlineTooClose { wait: Nanos::ZERO });
        let Some(slot) = self.slot_mut(id) else {
            return gone();
        };
        if matches!(slot.state, SlotState::Waiting(_)) {
            return WaiterState::Waiting;
        }
        match self.free_slot(id) {
            Some(SlotState::Finished(Ok(grant))) => WaiterState::Granted(grant),
            Some(SlotState::Finished(Err(error))) => WaiterState::Failed(error),
            _ => gone(),
        }
    }

    /// Removes a waiter. Returns the grant that it had and did not take.
    pub(super) fn remove(&mut self, id: WaiterId) -> Option<Grant> {
        self.slot_mut(id)?;
        match self.free_slot(id)? {
            SlotState::Finished(Ok(grant)) => Some(grant),
            SlotState::Waiting(_) => {
                self.waiting = self.waiting.saturating_sub(1);
                None
            }
            SlotState::Free | SlotState::Finished(Err(_)) => None,
        }
    }

    fn slot_mut(&mut self, id: WaiterId) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(id.slot())?;
        (slot.generation == id.generation && !matches!(slot.state, SlotState::Free)).then_some(slot)
    }

    fn free_slot(&mut self, id: WaiterId) -> Option<SlotState> {
        let slot = self.slots.get_mut(id.slot())?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.slot);
        Some(std::mem::replace(&mut slot.state, SlotState::Free))
    }
}
