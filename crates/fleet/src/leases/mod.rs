//! Leased consistency, the node's side: slices of quotas that are spent here without asking anybody.
//!
//! [`Leases::spend`] answers at once from the slice that a key has, or says that one has to be borrowed;
//! [`Leases::borrow`] borrows, once for all who need it: at any time one errand per key is under way, and whoever else comes
//! meanwhile sees what it brings. What the lender refused is remembered until it has something again. How much is borrowed
//! follows demand, up to a fair part of the limit. [`Leases::tend`] borrows ahead, gives back what nobody uses, and tells
//! what was spent; [`Leases::give_all_back`] is the end.
//!
//! Never more than the quota is admitted, whatever is lost, late or frozen: core's accounting
//! ([`tollgate_core::lending`]) says why, and this only carries it out. A slice's life counts from when it was asked for, and
//! the clock is read for each spend. Must not know: which lender it is, what other limits say, when it is tended.

mod background;
mod counted;
mod entry;
mod errands;
mod terms;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::num::NonZeroU32;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;
use tollgate_core::limit::Limit;
use tollgate_core::quota_lease::QuotaLeaseId;
use tollgate_core::{Receipt, Timestamp};
use tollgate_store::{Op, QuotaCheck, StoreReply};

pub use self::background::Tended;
pub use self::counted::LeaseTotals;
use self::entry::{Entry, Said, lendable};
pub use self::terms::LeaseOptions;
use super::keyed::{Table, Who};

/// Slices of this node, by key and limit.
#[derive(Debug)]
pub struct LocalLeases {
    table: Table<Entry, LeaseTotals>,
    terms: LeaseOptions,
    /// Says who we are in the ids of slices: another one each time that a process starts.
    node: u64,
    /// Numbers slices, and marks what is spent.
    numbers: AtomicU64,
    /// How many nodes share the quotas.
    nodes: AtomicU32,
    /// Keys that need another slice soon.
    queue: Mutex<Vec<Who>>,
    wanted: Notify,
    is_closing: AtomicBool,
    /// The part of the table that is looked through next.
    swept: AtomicUsize,
    /// When that was.
    swept_at: AtomicU64,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is admitted, from a slice.
    Spent(StoreReply),
    /// It is refused.
    Denied(StoreReply),
    /// Nothing is here: ask [`Leases::borrow`].
    Borrow,
    /// Slices have nothing to do with it: ask the store.
    Elsewhere,
}

impl LocalLeases {
    /// A node that has borrowed nothing yet.
    #[must_use]
    pub fn new(terms: LeaseOptions) -> Self {
        Self {
            table: Table::with_room(terms.keys),
            terms,
            node: RandomState::new().build_hasher().finish(),
            numbers: AtomicU64::new(1),
            nodes: AtomicU32::new(1),
            queue: Mutex::default(),
            wanted: Notify::new(),
            is_closing: AtomicBool::new(false),
            swept: AtomicUsize::new(0),
            swept_at: AtomicU64::new(0),
        }
    }

    /// Whether slices can be taken from this limit: token buckets, and leaky buckets that are no queues. Others are decided on
    /// exactly.
    #[must_use]
    pub fn can_lend(limit: &Limit) -> bool {
        lendable(limit).is_some()
    }

    /// Says how many nodes share the quotas, as was last seen. Nobody takes more than a fair part at once.
    pub fn set_nodes(&self, nodes: u32) {
        self.nodes.store(nodes, Ordering::Relaxed);
    }

    /// What has happened so far.
    #[must_use]
    pub fn counted(&self) -> LeaseTotals {
        let parts = (0..self.table.parts()).filter_map(|index| self.table.at(index));
        parts.fold(LeaseTotals::default(), |sum, shard| {
            sum.and(&shard.counted, shard.entries.len())
        })
    }

    /// Answers from what is here, at once. `now` must have been read for this very call.
    #[must_use]
    pub fn spend(&self, check: &QuotaCheck<'_>, now: Timestamp) -> Taken {
        let (Some((cost, is_peek)), true) = (asked(check.op), Self::can_lend(&check.ruled.limit))
        else {
            return Taken::Elsewhere;
        };
        let who = self.table.who(&check.key, check.ruled.id);
        let Some(mut shard) = self.table.shard(who) else {
            return Taken::Borrow;
        };
        let shard = &mut *shard;
        let Some(entry) = shard.entries.get_mut(&who) else {
            return Taken::Borrow;
        };
        entry.ruled_by(check.ruled);
        let said = match is_peek {
            true => entry.look(now, cost),
            false => entry.spend(now, cost, || self.number()),
        };
        if entry.wants_more(now) && !self.is_closing() {
            entry.is_queued = self.queue(who);
        }
        match said {
            Said::Spent(answer) => {
                shard.counted.spent = shard.counted.spent.saturating_add(1);
                Taken::Spent(answer)
            }
            Said::Denied(answer) => {
                shard.counted.denied = shard.counted.denied.saturating_add(1);
                Taken::Denied(answer)
            }
            Said::Unknown => Taken::Borrow,
        }
    }

    /// Takes back what a request was charged here, because somebody else refused it. Answers how much may be spent again:
    /// nothing, if the lender was told meanwhile.
    pub fn give_back(&self, check: &QuotaCheck<'_>, receipt: &Receipt, now: Timestamp) -> u64 {
        self.settle(check, receipt, 0, now)
    }

    /// Corrects what a request was charged here to what it turned out to cost. More is taken from the slice, or from the next
    /// one; less comes back as far as the lender has not been told. Answers how much may be spent again.
    pub fn settle(
        &self,
        check: &QuotaCheck<'_>,
        receipt: &Receipt,
        actual: u64,
        now: Timestamp,
    ) -> u64 {
        let who = self.table.who(&check.key, check.ruled.id);
        let Some(mut shard) = self.table.shard(who) else {
            return 0;
        };
        let shard = &mut *shard;
        let Some(entry) = shard.entries.get_mut(&who) else {
            return 0;
        };
        match receipt.cost.checked_sub(actual) {
            Some(0) => 0,
            Some(less) => {
                let units = entry.unspend(now, receipt.mark, less);
                let is_kept = u64::from(units < less);
                shard.counted.kept = shard.counted.kept.saturating_add(is_kept);
                units
            }
            None => {
                entry.owe(now, actual.saturating_sub(receipt.cost));
                0
            }
        }
    }

    /// Forgets what the lender refused.
    pub fn forget_denials(&self) {
        for index in 0..self.table.parts() {
            if let Some(mut shard) = self.table.at(index) {
                let entries = shard.entries.values_mut();
                entries.for_each(|entry| entry.forget_refusal());
            }
        }
    }

    fn nodes(&self) -> NonZeroU32 {
        NonZeroU32::new(self.nodes.load(Ordering::Relaxed)).unwrap_or(NonZeroU32::MIN)
    }

    fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn loan(&self) -> QuotaLeaseId {
        QuotaLeaseId(u128::from(self.node) << 64 | u128::from(self.number()))
    }
}

/// What is asked of a slice, if it is something that a slice can be asked: how much, and whether only to look.
const fn asked(op: Op) -> Option<(u64, bool)> {
    match op {
        Op::Spend(cost) => Some((cost, false)),
        Op::Peek(cost) => Some((cost, true)),
        _ => None,
    }
}
