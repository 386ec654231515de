//! What a fleet's node has done with and without the store it shares. Must not know: why.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_store::{ErrorKind, StoreError};

use super::reconciled::Round;

/// What has happened so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FleetCounted {
    /// Calls that the store answered.
    pub answered: u64,
    /// Calls that did not reach it, or that it refused: nothing was charged.
    pub refused: u64,
    /// Calls that were not made because too many were under way.
    pub busy: u64,
    /// Calls whose answer did not come: they may have been carried out.
    pub ambiguous: u64,
    /// Batches that were decided without the store, in whole or in part.
    pub without: u64,
    /// Batches that were denied because a denial was still true.
    pub remembered: u64,
    /// Keys whose local spending was told to the store.
    pub replayed: u64,
    /// Keys whose local spending there was no room to remember.
    pub lost: u64,
    /// How often a part of the store was given up on.
    pub openings: u64,
}

#[derive(Debug, Default)]
pub(crate) struct FleetCounters {
    answered: AtomicU64,
    refused: AtomicU64,
    busy: AtomicU64,
    ambiguous: AtomicU64,
    without: AtomicU64,
    remembered: AtomicU64,
    replayed: AtomicU64,
}

impl FleetCounters {
    pub(crate) fn count_call(&self, error: Option<ErrorKind>) {
        add(match error {
            None => &self.answered,
            Some(ErrorKind::Busy) => &self.busy,
            Some(ErrorKind::TimedOut | ErrorKind::Lost | ErrorKind::Garbled) => &self.ambiguous,
            Some(_) => &self.refused,
        });
    }

    /// Counts the calls of a round of reconciling.
    pub(crate) fn count_rounds(&self, round: &Round) {
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

    pub(crate) fn count_without_store(&self) {
        add(&self.without);
    }

    pub(crate) fn count_cached_denial(&self) {
        add(&self.remembered);
    }

    pub(crate) fn count_replayed(&self) {
        add(&self.replayed);
    }

    pub(crate) fn read(&self) -> FleetCounted {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FleetCounted {
            answered: read(&self.answered),
            refused: read(&self.refused),
            busy: read(&self.busy),
            ambiguous: read(&self.ambiguous),
            without: read(&self.without),
            remembered: read(&self.remembered),
            replayed: read(&self.replayed),
            ..FleetCounted::default()
        }
    }
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
