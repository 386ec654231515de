//! Counts what a node has done with and without the shared store. Must not know: why.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_store::{StoreError, StoreErrorKind};

use super::reconcile::ReconcileRound;

/// The totals of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FleetTotals {
    /// Calls that the store answered.
    pub answered: u64,
    /// Calls that did not reach the store, or that it rejected: nothing was charged.
    pub refused: u64,
    /// Calls that were not made because too many were in flight.
    pub busy: u64,
    /// Calls without a reply: the store may have carried them out.
    pub ambiguous: u64,
    /// Batches that were decided without the store, in whole or in part.
    pub fallback: u64,
    /// Batches that a cached denial decided.
    pub cached_denials: u64,
    /// Keys whose local charges were replayed to the store.
    pub replayed: u64,
    /// Keys whose local charges were dropped, because the replay table was full.
    pub replay_dropped: u64,
    /// How often a breaker has opened.
    pub openings: u64,
}

#[derive(Debug, Default)]
pub(crate) struct FleetCounters {
    answered: AtomicU64,
    refused: AtomicU64,
    busy: AtomicU64,
    ambiguous: AtomicU64,
    fallback: AtomicU64,
    cached_denials: AtomicU64,
    replayed: AtomicU64,
}

impl FleetCounters {
    pub(crate) fn count_call(&self, error: Option<StoreErrorKind>) {
        add(match error {
            None => &self.answered,
            Some(StoreErrorKind::Busy) => &self.busy,
            Some(
                StoreErrorKind::TimedOut
                | StoreErrorKind::ConnectionLost
                | StoreErrorKind::InvalidReply,
            ) => &self.ambiguous,
            Some(_) => &self.refused,
        });
    }

    /// Counts the calls of a reconciliation round.
    pub(crate) fn count_round(&self, round: &ReconcileRound) {
        let failed = round.failed as u64;
        let answered = (round.calls as u64).saturating_sub(failed);
        self.answered.fetch_add(answered, Ordering::Relaxed);
        let lost = round
            .error
            .as_ref()
            .is_some_and(StoreError::may_have_charged);
        let failures = if lost { &self.ambiguous } else { &self.refused };
        failures.fetch_add(failed, Ordering::Relaxed);
    }

    pub(crate) fn count_fallback(&self) {
        add(&self.fallback);
    }

    pub(crate) fn count_cached_denial(&self) {
        add(&self.cached_denials);
    }

    pub(crate) fn count_replayed(&self) {
        add(&self.replayed);
    }

    pub(crate) fn read(&self) -> FleetTotals {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FleetTotals {
            answered: read(&self.answered),
            refused: read(&self.refused),
            busy: read(&self.busy),
            ambiguous: read(&self.ambiguous),
            fallback: read(&self.fallback),
            cached_denials: read(&self.cached_denials),
            replayed: read(&self.replayed),
            ..FleetTotals::default()
        }
    }
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
