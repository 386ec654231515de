//! A table in memory and the numbers of the limits that use it. Limiters beside each other share one.
//!
//! Must not know: names of limits, what callers ask for.

use std::num::NonZeroU16;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use tollgate_store::{Clock, LimitId, Memory, Ruled};

use crate::invalid::InvalidLimiter;

/// How many keys a table is made for unless somebody says otherwise.
pub const DEFAULT_KEYS: usize = 100_000;

#[derive(Debug)]
pub(crate) struct Table<C> {
    pub(crate) memory: Memory<C>,
    /// The last number that a limit was given. Numbers are never given twice.
    limits: AtomicU16,
    leases: AtomicU64,
}

impl<C: Clock> Table<C> {
    pub(crate) fn for_keys(keys: usize, clock: C) -> Result<Self, InvalidLimiter> {
        Ok(Self {
            memory: Memory::with_clock(keys, clock)?,
            limits: AtomicU16::new(0),
            leases: AtomicU64::new(0),
        })
    }

    /// A number that no limit of this table has had.
    pub(crate) fn number(&self) -> Result<LimitId, InvalidLimiter> {
        let order = Ordering::Relaxed;
        self.limits
            .try_update(order, order, |last| last.checked_add(1))
            .ok()
            .and_then(|last| NonZeroU16::new(last.wrapping_add(1)))
            .map(LimitId)
            .ok_or(InvalidLimiter::OutOfNumbers)
    }

    /// A name for a lease that no other lease of this table has. It never leaves the process, so nobody can guess it.
    pub(crate) fn lease(&self) -> u128 {
        u128::from(self.leases.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn learn<'a>(&self, rules: impl IntoIterator<Item = &'a Ruled>) {
        for ruled in rules {
            self.memory.learn(ruled);
        }
    }
}
