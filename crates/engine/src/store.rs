//! What the engine needs from a store besides decisions: its time, and notice of the limits in force.
//!
//! Must not know: rules, verdicts.

use std::sync::Arc;

use tollgate_core::Timestamp;
use tollgate_store::{Clock, IdentifiedLimit, LimitId, MemoryStore, Store, StoreKey};

/// A store that answers at once and is told about limits. It may ignore what it does not need.
pub trait StateStore: Store {
    /// The time of its decisions.
    fn now(&self) -> Timestamp;

    /// A quota is in force from now on, beside all others with the same id.
    fn add_limit(&self, limit: &IdentifiedLimit) {
        let _ = limit;
    }

    /// A quota replaces another with the same id and algorithm. Debts stay.
    fn replace_limit(&self, old: &IdentifiedLimit, new: &IdentifiedLimit) {
        let _ = old;
        self.add_limit(new);
    }

    /// A limit was removed; its states are no longer used.
    fn remove_limit(&self, id: LimitId) {
        let _ = id;
    }

    /// Erases the state of one key. Returns whether there was one.
    fn erase(&self, key: &StoreKey<'_>, limit: &IdentifiedLimit) -> bool;
}

/// A store that several engines share. They must also share their [limit ids](crate::LimitIdAllocator).
impl<S: StateStore> StateStore for Arc<S> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }

    fn add_limit(&self, limit: &IdentifiedLimit) {
        (**self).add_limit(limit);
    }

    fn replace_limit(&self, old: &IdentifiedLimit, new: &IdentifiedLimit) {
        (**self).replace_limit(old, new);
    }

    fn remove_limit(&self, id: LimitId) {
        (**self).remove_limit(id);
    }

    fn erase(&self, key: &StoreKey<'_>, limit: &IdentifiedLimit) -> bool {
        (**self).erase(key, limit)
    }
}

impl<C: Clock> StateStore for MemoryStore<C> {
    fn now(&self) -> Timestamp {
        Self::now(self)
    }

    fn add_limit(&self, limit: &IdentifiedLimit) {
        Self::add_limit(self, limit);
    }

    fn replace_limit(&self, old: &IdentifiedLimit, new: &IdentifiedLimit) {
        Self::replace_limit(self, old, new);
    }

    fn remove_limit(&self, id: LimitId) {
        Self::remove_limit(self, id);
    }

    fn erase(&self, key: &StoreKey<'_>, limit: &IdentifiedLimit) -> bool {
        Self::erase(self, key, limit)
    }
}
