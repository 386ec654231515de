//! The requests that wait, in slots that are reused. A waiter has no timer of its own.
//!
//! Must not know: pace, order.

use std::collections::BTreeSet;

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
    pub(super) queued_at: Timestamp,
    /// The last time at which it still waits: its deadline, or the end of the longest wait.
    pub(super) latest: Timestamp,
    /// The same, or long ago if its turn is known to come later. Then it fails at the next look.
    expires_at: Timestamp,
}

impl Waiter {
    /// Why it fails, if its turn would come at `turn`.
    pub(super) fn error(&self, turn: Timestamp, now: Timestamp, max: Nanos) -> PaceError {
        let turn = turn.max(now);
        if self.deadline.is_some_and(|deadline| deadline < turn) {
            let wait = turn.since(now);
            return PaceError::DeadlineTooClose { wait };
        }
        let wait = turn.since(self.queued_at);
        PaceError::WaitTooLong { wait, max }
    }
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
    /// When each waiter expires, and its slot. One timer is set for the first.
    expiries: BTreeSet<(Timestamp, u32)>,
    waiting: usize,
    max: usize,
}

impl WaitQueue {
    pub(super) const fn new(max: usize) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            expiries: BTreeSet::new(),
            waiting: 0,
            max,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.waiting
    }

    /// Adds a request that waits since then, and at most so long.
    pub(super) fn push(
        &mut self,
        bucket: BucketId,
        request: &PaceRequest<'_>,
        since: Timestamp,
        max_wait: Nanos,
    ) -> Option<WaiterId> {
        // Finished waiters hold a slot until their task takes the result.
        if self.slots.len() - self.free.len() >= self.max {
            return None;
        }
        let latest = since.after(max_wait);
        let latest = request.deadline.map_or(latest, |at| at.min(latest));
        let state = SlotState::Waiting(Waiter {
            bucket,
            cost: request.cost,
            deadline: request.deadline,
            queued_at: since,
            latest,
            expires_at: latest,
        });
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.slots.len()).ok()?;
                self.slots.push(Slot {
                    generation: 0,
                    state: SlotState::Free,
                });
                index
            }
        };
        let slot = self.slots.get_mut(usize::try_from(index).ok()?)?;
        slot.state = state;
        self.waiting += 1;
        self.expiries.insert((latest, index));
        Some(WaiterId {
            slot: index,
            generation: slot.generation,
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

    /// Lets a waiter expire now, because its turn is known to come too late.
    pub(super) fn expire(&mut self, id: WaiterId) {
        let Some(slot) = self.slots.get_mut(id.slot()) else {
            return;
        };
        if let SlotState::Waiting(waiter) = &mut slot.state
            && slot.generation == id.generation
        {
            self.expiries.remove(&(waiter.expires_at, id.slot));
            waiter.expires_at = Timestamp::EPOCH;
            self.expiries.insert((waiter.expires_at, id.slot));
        }
    }

    /// When the first waiter expires.
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        let (at, _) = self.expiries.first()?;
        Some(at.after(Nanos::from_nanos(1)))
    }

    /// Takes a waiter that has expired, to be finished.
    pub(super) fn take_expired(&mut self, now: Timestamp) -> Option<WaiterId> {
        self.expiries.first().filter(|(at, _)| *at < now)?;
        let (_, slot) = self.expiries.pop_first()?;
        let generation = self.slots.get(usize::try_from(slot).ok()?)?.generation;
        Some(WaiterId { slot, generation })
    }

    /// Ends a wait with its result.
    pub(super) fn finish(&mut self, id: WaiterId, result: Result<Grant, PaceError>) {
        if let Some(slot) = self.slot_mut(id) {
            let before = std::mem::replace(&mut slot.state, SlotState::Finished(result));
            self.on_wait_ended(id, &before);
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
            state => {
                self.on_wait_ended(id, &state);
                None
            }
        }
    }

    fn on_wait_ended(&mut self, id: WaiterId, before: &SlotState) {
        if let SlotState::Waiting(waiter) = before {
            self.waiting = self.waiting.saturating_sub(1);
            self.expiries.remove(&(waiter.expires_at, id.slot));
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
