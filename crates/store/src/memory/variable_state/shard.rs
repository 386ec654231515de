//! One shard: a few variable states under one lock, and their eviction priorities.
//!
//! Must not know: other shards, the budget of bytes.

use tollgate_core::Timestamp;
use tollgate_core::limit::{Limit, State, StateSize};
use tollgate_core::reservation::{ReservationLedger, ReservationOptions};

use crate::memory::hash::StateHash;

/// The largest size of one entry of a collection, including what doubling growth wastes.
pub(super) const ENTRY_BYTES: usize = 160;

/// A few states under one lock.
#[derive(Debug, Default)]
pub(in crate::memory) struct VariableStateShard {
    pub(super) states: Vec<VariableState>,
}

/// The variable state of one key under one limit.
#[derive(Debug)]
pub(in crate::memory) struct VariableState {
    pub(in crate::memory) hash: StateHash,
    /// The limit of the state; `None` if the state is in a table and only reservations are here.
    pub(in crate::memory) limit: Option<Limit>,
    pub(in crate::memory) state: State,
    pub(in crate::memory) ledger: ReservationLedger,
    /// The bytes that it was last counted as.
    pub(super) bytes: usize,
    pub(super) claim: BatchClaim,
}

/// How the running batch uses a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BatchClaim {
    None,
    /// The batch uses the state, which existed before.
    Known,
    /// The batch inserted the state.
    New,
}

impl VariableStateShard {
    /// The key's state, if it has one.
    pub(in crate::memory) fn get(&mut self, hash: StateHash) -> Option<&mut VariableState> {
        let index = self.position(hash)?;
        self.states.get_mut(index)
    }

    /// The states that have not expired.
    pub(in crate::memory) fn live(
        &self,
        now: Timestamp,
        options: &ReservationOptions,
    ) -> impl Iterator<Item = &VariableState> {
        let entries = self.states.iter();
        entries.filter(move |entry| !entry.is_expired(now, options))
    }

    pub(super) fn position(&self, hash: StateHash) -> Option<usize> {
        self.states.iter().position(|entry| entry.hash == hash)
    }

    /// The state whose loss refunds the least, with its priority.
    pub(super) fn eviction_candidate(&self, now: Timestamp) -> Option<(u64, usize)> {
        let entries = self.states.iter().enumerate();
        entries
            .filter_map(|(i, entry)| Some((entry.eviction_priority(now)?, i)))
            .min()
    }

    /// The number of states that may be evicted.
    pub(super) fn evictable_count(&self, now: Timestamp) -> usize {
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
    pub(super) fn is_blank(&self) -> bool {
        matches!(self.state, State::Empty) && self.ledger.is_empty()
    }

    pub(super) fn is_expired(&self, now: Timestamp, options: &ReservationOptions) -> bool {
        let is_forgotten = self.ledger.time_until_empty(now, options).is_zero();
        let has_reset = |limit: &Limit| limit.status(&self.state, now).reset_after.is_zero();
        is_forgotten && self.limit.as_ref().is_none_or(has_reset)
    }

    pub(super) fn size_in_bytes(&self) -> usize {
        let entries = self.state.entries().saturating_add(self.ledger.len());
        entries
            .saturating_mul(ENTRY_BYTES)
            .saturating_add(size_of::<Self>())
    }
}

/// The limit, if its state is variable and so stored here.
pub(super) fn limit_if_variable(limit: &Limit) -> Option<Limit> {
    let is_variable = limit.state_size() == StateSize::Collection;
    is_variable.then_some(*limit)
}
