//! What the engine needs of a store beyond deciding: the time, and to be told which limits there are.
//!
//! Must not know: rules, verdicts.

use std::sync::Arc;

use tollgate_core::Timestamp;
use tollgate_store::{Clock, IdentifiedLimit, LimitId, MemoryStore, Store, StoreKey, WhenFull};

/// A store that answers at once and can be told about limits. What a store does not need to know it may ignore.
pub trait StateStore: Store {
    /// What time it is for its decisions.
    fn now(&self) -> Timestamp;

    /// A quota is in force from now on, beside all others of the same number.
    fn learn(&self, ruled: &IdentifiedLimit) {
        let _ = ruled;
    }

    /// A quota takes the place of another of the same number and algorithm; what is owed stays owed.
    fn replace(&self, old: &IdentifiedLimit, new: &IdentifiedLimit) {
        let _ = old;
        self.learn(new);
    }

    /// Says what becomes of a limit's keys when there is no room for all of them.
    fn set_when_full(&self, id: LimitId, when_full: WhenFull) {
        let _ = (id, when_full);
    }

    /// A limit is gone, and its states will not be asked about again.
    fn forget(&self, id: LimitId) {
        let _ = id;
    }

    /// Forgets what one key has used of one limit. Answers whether there was anything.
    fn erase(&self, key: &StoreKey<'_>, ruled: &IdentifiedLimit) -> bool;
}

/// A store that several engines share, whose numbers must then come [from one place](crate::LimitIdAllocator).
impl<S: StateStore> StateStore for Arc<S> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }

    fn learn(&self, ruled: &IdentifiedLimit) {
        (**self).learn(ruled);
    }

    fn replace(&self, old: &IdentifiedLimit, new: &IdentifiedLimit) {
        (**self).replace(old, new);
    }

    fn set_when_full(&self, id: LimitId, when_full: WhenFull) {
        (**self).set_when_full(id, when_full);
    }

    fn forget(&self, id: LimitId) {
        (**self).forget(id);
    }

    fn erase(&self, key: &StoreKey<'_>, ruled: &IdentifiedLimit) -> bool {
        (**self).erase(key, ruled)
    }
}

impl<C: Clock> StateStore for MemoryStore<C> {
    fn now(&self) -> Timestamp {
        Self::now(self)
    }

    fn learn(&self, ruled: &IdentifiedLimit) {
        Self::add_limit(self, ruled);
    }

    fn replace(&self, old: &IdentifiedLimit, new: &IdentifiedLimit) {
        Self::replace_limit(self, old, new);
    }

    fn set_when_full(&self, id: LimitId, when_full: WhenFull) {
        Self::set_when_full(self, id, when_full);
    }

    fn forget(&self, id: LimitId) {
        Self::remove_limit(self, id);
    }

    fn erase(&self, key: &StoreKey<'_>, ruled: &IdentifiedLimit) -> bool {
        Self::erase(self, key, ruled)
    }
}
