//! Gives Envoy's engine the store of the policy's engine.
//!
//! Must not know: what is decided.

use std::sync::Arc;

use tollgate_core::Timestamp;
use tollgate_core::compose::BatchOutcome;
use tollgate_engine::{Engine, StateStore};
use tollgate_store::{
    Clock, IdentifiedLimit, LimitId, MemoryStore, QuotaCheck, Store, StoreError, StoreKey,
    StoreReply,
};

/// The store of an engine.
#[derive(Debug)]
pub struct SharedStore<C>(Arc<Engine<MemoryStore<C>>>);

impl<C> SharedStore<C> {
    /// The store of this engine.
    #[must_use]
    pub const fn new(engine: Arc<Engine<MemoryStore<C>>>) -> Self {
        Self(engine)
    }
}

impl<C: Clock> Store for SharedStore<C> {
    fn decide(
        &self,
        checks: &[QuotaCheck<'_>],
        replies: &mut [StoreReply],
    ) -> Result<BatchOutcome, StoreError> {
        self.0.store().decide(checks, replies)
    }
}

impl<C: Clock> StateStore for SharedStore<C> {
    fn now(&self) -> Timestamp {
        self.0.store().now()
    }

    fn add_limit(&self, ruled: &IdentifiedLimit) {
        self.0.store().add_limit(ruled);
    }

    fn replace_limit(&self, old: &IdentifiedLimit, new: &IdentifiedLimit) {
        self.0.store().replace_limit(old, new);
    }

    fn remove_limit(&self, id: LimitId) {
        self.0.store().remove_limit(id);
    }

    fn erase(&self, key: &StoreKey<'_>, ruled: &IdentifiedLimit) -> bool {
        self.0.store().erase(key, ruled)
    }
}
