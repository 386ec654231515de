//! A table in memory and the numbers of the limits that use it. Limiters beside each other share one.
//!
//! Must not know: names of limits, what callers ask for.

use std::num::NonZeroU16;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use tollgate_store::{Clock, IdentifiedLimit, LimitId, MemoryStore};

use crate::invalid::InvalidLimiter;

/// How many keys a table is made for unless somebody says otherwise.
pub const DEFAULT_KEYS: usize = 100_000;

#[derive(Debug)]
pub(crate) struct LimitTable<C> {
    pub(crate) memory: MemoryStore<C>,
    /// The last number that a limit was given. Numbers are never given twice.
    last_limit_id: AtomicU16,
    next_lease_id: AtomicU64,
}

impl<C: Clock> LimitTable<C> {
    pub(crate) fn with_capacity(keys: usize, clock: C) -> Result<Self, InvalidLimiter> {
        Ok(Self {
            memory: MemoryStore::with_clock(keys, clock)?,
            last_limit_id: AtomicU16::new(0),
            next_lease_id: AtomicU64::new(0),
        })
    }

    /// A number that no limit of this table has had.
    pub(crate) fn allocate_limit_id(&self) -> Result<LimitId, InvalidLimiter> {
        let order = Ordering::Relaxed;
        self.last_limit_id
            .try_update(order, order, |last| last.checked_add(1))
            .ok()
            .and_then(|last| NonZeroU16::new(last.wrapping_add(1)))
            .map(LimitId)
            .ok_or(InvalidLimiter::OutOfNumbers)
    }

    /// A name for a lease that no other lease of this table has. It never leaves the process, so nobody can guess it.
    pub(crate) fn allocate_lease_id(&self) -> u128 {
        u128::from(self.next_lease_id.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn register_limits<'a>(&self, rules: impl IntoIterator<Item = &'a IdentifiedLimit>) {
        for ruled in rules {
            self.memory.add_limit(ruled);
        }
    }
}
