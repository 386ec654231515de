//! A table in memory and the ids of the limits in it. Several limiters may share one table.
//!
//! Must not know: names of limits, which operations callers use.

use std::num::NonZeroU16;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use tollgate_core::limit::Limit;
use tollgate_store::{Clock, IdentifiedLimit, LimitId, MemoryStore};

use crate::invalid::InvalidLimiter;
use crate::limit_name::LimitName;
use crate::snapshot::{RestoredTable, SavedLimit};

/// The default number of keys of a table.
pub const DEFAULT_KEYS: usize = 100_000;

#[derive(Debug)]
pub(crate) struct LimitTable<C> {
    pub(crate) memory: MemoryStore<C>,
    /// The last allocated limit id. Ids are never reused.
    last_limit_id: AtomicU16,
    next_lease_id: AtomicU64,
    /// The ids that limits had in the table that this one was restored from.
    saved: Vec<SavedLimit>,
}

impl<C: Clock> LimitTable<C> {
    pub(crate) fn with_capacity(keys: usize, clock: C) -> Result<Self, InvalidLimiter> {
        Ok(Self {
            memory: MemoryStore::with_clock(keys, clock)?,
            last_limit_id: AtomicU16::new(0),
            next_lease_id: AtomicU64::new(0),
            saved: Vec::new(),
        })
    }

    pub(crate) fn restored(table: RestoredTable<C>) -> Self {
        Self {
            memory: table.memory,
            last_limit_id: AtomicU16::new(table.last_limit_id),
            next_lease_id: AtomicU64::new(0),
            saved: table.limits,
        }
    }

    pub(crate) fn last_limit_id(&self) -> u16 {
        self.last_limit_id.load(Ordering::Relaxed)
    }

    /// The id that this limit had in the table that this one was restored from, or a new one.
    pub(crate) fn initial_limit_id(
        &self,
        name: &LimitName,
        limit: &Limit,
    ) -> Result<LimitId, InvalidLimiter> {
        let mut saved = self.saved.iter();
        let found = saved.find_map(|saved| saved.id_for(name, limit));
        found.map_or_else(|| self.allocate_limit_id(), Ok)
    }

    /// Allocates an id that no limit of this table has had.
    pub(crate) fn allocate_limit_id(&self) -> Result<LimitId, InvalidLimiter> {
        let order = Ordering::Relaxed;
        self.last_limit_id
            .try_update(order, order, |last| last.checked_add(1))
            .ok()
            .and_then(|last| NonZeroU16::new(last.wrapping_add(1)))
            .map(LimitId)
            .ok_or(InvalidLimiter::OutOfNumbers)
    }

    /// Allocates a lease id that is unique in this table. It never leaves the process, so it need not be random.
    pub(crate) fn allocate_lease_id(&self) -> u128 {
        u128::from(self.next_lease_id.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn register_limits<'a>(&self, rules: impl IntoIterator<Item = &'a IdentifiedLimit>) {
        for limit in rules {
            self.memory.add_limit(limit);
        }
    }
}
