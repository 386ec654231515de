//! One shard: a few variable states under one lock, and what each has used of its quota.
//!
//! Must not know: other shards, the budget of bytes.

use tollgate_core::Timestamp;
use tollgate_core::limit::{Limit, State, StateSize};
use tollgate_core::reservation::{ReservationLedger, ReservationOptions};
use tollgate_core::token_bucket::Tat;

use crate::memory::eviction_priority::window_debt;
use crate::memory::hash::StateHash;

/// The largest size of one entry of a collection, including what doubling growth wastes.
pub(super) const ENTRY_BYTES: usize = 160;

/// A few states under one lock.
#[derive(Debug, Default)]
pub(in crate::memory) struct VariableStateShard {
    pub(super) states: Vec<VariableState>,
    /// Tag and debt of the states that the running batch has evicted.
    pub(super) evicted: Vec<(u64, Tat)>,
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

/// What a state has used of its quota.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StateUse {
    /// The used fraction, in units of 2^-32.
    pub(super) fraction: u64,
    /// Whether the key is denied.
    pub(super) is_denied: bool,
    /// Whether the state holds leases.
    pub(super) has_leases: bool,
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
}

impl VariableState {
    /// What the key has used of its quota.
    pub(super) fn usage(&self, now: Timestamp) -> StateUse {
        let Some(limit) = &self.limit else {
            return StateUse::default();
        };
        let status = limit.status(&self.state, now);
        let used = status.limit.saturating_sub(status.remaining);
        StateUse {
            // Limits with variable state are far below 2^32.
            fraction: used.saturating_mul(1 << 32) / status.limit.max(1),
            is_denied: status.remaining == 0,
            has_leases: limit.lease_duration().is_some(),
        }
    }

    /// The key's debt as a state of [`Limit::stricter_bucket`]. Leases have no such bucket: then until when the last is held.
    pub(in crate::memory) fn debt(&self, now: Timestamp) -> Tat {
        let Some(limit) = &self.limit else {
            return 0;
        };
        let status = limit.status(&self.state, now);
        let until = now.after(status.reset_after).as_nanos();
        let used = status.limit.saturating_sub(status.remaining);
        match limit.stricter_bucket() {
            Some(bucket) if used > 0 => {
                let spare = status.limit.saturating_sub(bucket.limit());
                window_debt(now, until, used, spare, bucket.interval().as_nanos())
            }
            _ => until,
        }
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
