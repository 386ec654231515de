//! What each limit takes of the tables, what it had to give up, and what becomes of its keys when there is no room.
//!
//! Counts change when a key moves in or out, never when a key that has its slot is decided. Every limit may use all of a
//! table that others leave. When both groups of a newcomer are full of live state, slots of the limit that is furthest
//! above its share go first, so keys of one limit cannot crowd out the keys of another.
//!
//! Must not know: keys, states, how a victim is chosen.

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use tollgate_core::Timestamp;
use tollgate_core::limit::WhenFull;

use super::limit_map::LimitMap;
use crate::contract::LimitId;

/// What one limit takes of the store, and what the store had to do for want of room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LimitUsage {
    /// Slots that hold a state of the limit, expired ones that nobody has taken over included.
    pub slots: u64,
    /// Bytes that its collections take.
    pub collection_bytes: u64,
    /// Live states that were given up for others.
    pub evictions: u64,
    /// Decisions for keys that had no state of their own.
    pub overflow_decisions: u64,
    /// How many of those refused a request that the key's own state might have admitted.
    pub overflow_refusals: u64,
}

impl LimitUsage {
    /// Adds the counts of another state of the same limit.
    pub fn add(&mut self, other: &Self) {
        self.slots = self.slots.saturating_add(other.slots);
        self.collection_bytes = self.collection_bytes.saturating_add(other.collection_bytes);
        self.evictions = self.evictions.saturating_add(other.evictions);
        self.overflow_decisions = self
            .overflow_decisions
            .saturating_add(other.overflow_decisions);
        self.overflow_refusals = self
            .overflow_refusals
            .saturating_add(other.overflow_refusals);
    }
}

/// The counts of every limit.
#[derive(Debug)]
pub(super) struct LimitUsages {
    limits: LimitMap<UsageCounters>,
    /// How many limits have states of one word, of two words, and in collections.
    users: [AtomicUsize; 3],
}

#[derive(Debug, Default)]
struct UsageCounters {
    slots: AtomicU64,
    collection_bytes: AtomicU64,
    evictions: AtomicU64,
    overflow_decisions: AtomicU64,
    overflow_refusals: AtomicU64,
    /// Until when some key of the limit owes something in its sketch.
    debt_until: AtomicU64,
    /// Whether what is evicted is dropped.
    forgets: AtomicU8,
}

/// Where a state lives.
#[derive(Clone, Copy, Debug)]
pub(super) enum Table {
    Words,
    Pairs,
    Collections,
}

impl Table {
    /// The table of states of W words.
    pub(super) const fn of_words(words: usize) -> Self {
        if words == 1 { Self::Words } else { Self::Pairs }
    }
}

impl LimitUsages {
    pub(super) fn new() -> Self {
        Self {
            limits: LimitMap::new(),
            users: Default::default(),
        }
    }

    /// Makes an entry for a limit, so that its first key need not.
    pub(super) fn prepare(&self, id: LimitId) {
        let _entry = self.limits.get_or_default(id.0.get());
    }

    pub(super) fn set_when_full(&self, id: LimitId, when_full: WhenFull) {
        if let Some(limit) = self.limits.get_or_default(id.0.get()) {
            let forgets = u8::from(when_full == WhenFull::Forget);
            limit.forgets.store(forgets, Ordering::Relaxed);
        }
    }

    pub(super) fn when_full(&self, limit: u16) -> WhenFull {
        match self.limits.get(limit) {
            Some(limit) if limit.forgets.load(Ordering::Relaxed) != 0 => WhenFull::Forget,
            _ => WhenFull::Refuse,
        }
    }

    /// A key moved into a table, or a collection grew by so many bytes.
    pub(super) fn add(&self, limit: u16, table: Table, amount: usize) {
        let amount = u64::try_from(amount).unwrap_or(u64::MAX);
        if amount > 0
            && let Some(limit) = self.limits.get_or_default(limit)
            && limit.counter(table).fetch_add(amount, Ordering::Relaxed) == 0
        {
            self.users(table).fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A key moved out of a table, or a collection shrank by so many bytes.
    pub(super) fn remove(&self, limit: u16, table: Table, amount: usize) {
        let amount = u64::try_from(amount).unwrap_or(u64::MAX);
        if amount == 0 {
            return;
        }
        let less = |taken: u64| taken.checked_sub(amount);
        let relaxed = Ordering::Relaxed;
        if let Some(limit) = self.limits.get(limit)
            && limit.counter(table).fetch_update(relaxed, relaxed, less) == Ok(amount)
        {
            let one_less = |users: usize| users.checked_sub(1);
            self.users(table)
                .fetch_update(relaxed, relaxed, one_less)
                .ok();
        }
    }

    /// What a limit uses: slots, or bytes of collections.
    pub(super) fn used(&self, limit: u16, table: Table) -> u64 {
        let limit = self.limits.get(limit);
        limit.map_or(0, |limit| limit.counter(table).load(Ordering::Relaxed))
    }

    /// What each limit may take of `all` before its states go first: the same part for every limit that has any there, the
    /// newcomer's included.
    pub(super) fn share(&self, table: Table, newcomer: u16, all: usize, least: usize) -> u64 {
        let is_new = usize::from(self.used(newcomer, table) == 0);
        let users = self.users(table).load(Ordering::Relaxed);
        let users = users.saturating_add(is_new).max(1);
        u64::try_from((all / users).max(least)).unwrap_or(u64::MAX)
    }

    const fn users(&self, table: Table) -> &AtomicUsize {
        let [words, pairs, collections] = &self.users;
        match table {
            Table::Words => words,
            Table::Pairs => pairs,
            Table::Collections => collections,
        }
    }

    pub(super) fn count_eviction(&self, limit: u16) {
        if let Some(limit) = self.limits.get_or_default(limit) {
            limit.evictions.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn count_overflow(&self, limit: u16, is_refused: bool) {
        if let Some(limit) = self.limits.get_or_default(limit) {
            limit.overflow_decisions.fetch_add(1, Ordering::Relaxed);
            limit
                .overflow_refusals
                .fetch_add(u64::from(is_refused), Ordering::Relaxed);
        }
    }

    /// Some key of the limit owes until then.
    pub(super) fn note_debt(&self, limit: u16, until: u64) {
        if let Some(limit) = self.limits.get_or_default(limit) {
            limit.debt_until.fetch_max(until, Ordering::Relaxed);
        }
    }

    /// Whether some key of the limit may owe something in its sketch.
    pub(super) fn may_have_debts(&self, limit: u16, now: Timestamp) -> bool {
        let debts = |limit: &UsageCounters| limit.debt_until.load(Ordering::Relaxed);
        self.limits.get(limit).map_or(0, debts) > now.as_nanos()
    }

    pub(super) fn read(&self, id: LimitId) -> LimitUsage {
        let limit = self.limits.get(id.0.get());
        limit.map_or_else(LimitUsage::default, UsageCounters::read)
    }

    /// All limits together.
    pub(super) fn total(&self) -> LimitUsage {
        let mut total = LimitUsage::default();
        for (_, limit) in self.limits.iter() {
            total.add(&limit.read());
        }
        total
    }
}

impl UsageCounters {
    fn read(&self) -> LimitUsage {
        LimitUsage {
            slots: self.slots.load(Ordering::Relaxed),
            collection_bytes: self.collection_bytes.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
            overflow_decisions: self.overflow_decisions.load(Ordering::Relaxed),
            overflow_refusals: self.overflow_refusals.load(Ordering::Relaxed),
        }
    }

    const fn counter(&self, table: Table) -> &AtomicU64 {
        match table {
            Table::Words | Table::Pairs => &self.slots,
            Table::Collections => &self.collection_bytes,
        }
    }
}
