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
mod lease_options;
mod lease_requests;
mod leased_key;
#[cfg(test)]
mod tests;
mod totals;

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::num::NonZeroU32;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;
use tollgate_core::limit::Limit;
use tollgate_core::quota_lease::QuotaLeaseId;
use tollgate_core::{Receipt, Timestamp};
use tollgate_store::{Op, QuotaCheck, StoreReply};

pub use self::background::MaintenanceRound;
pub use self::lease_options::LeaseOptions;
use self::leased_key::{LeasedKey, LocalReply, leasable_bucket};
pub use self::totals::LeaseTotals;
use super::sharded_table::{KeyDigest, ShardedTable};

/// Slices of this node, by key and limit.
#[derive(Debug)]
pub struct LocalLeases {
    table: ShardedTable<LeasedKey, LeaseTotals>,
    options: LeaseOptions,
    /// Says who we are in the ids of slices: another one each time that a process starts.
    node_id: u64,
    /// Numbers slices, and marks what is spent.
    sequence: AtomicU64,
    /// How many nodes share the quotas.
    nodes: AtomicU32,
    /// Keys that need another slice soon.
    queue: Mutex<Vec<KeyDigest>>,
    demand: Notify,
    is_closing: AtomicBool,
    /// The part of the table that is looked through next.
    sweep_position: AtomicUsize,
    /// When that was.
    last_sweep: AtomicU64,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpendOutcome {
    /// It is admitted, from a slice.
    Admitted(StoreReply),
    /// It is refused.
    Denied(StoreReply),
    /// Nothing is here: ask [`Leases::borrow`].
    Borrow,
    /// Slices have nothing to do with it: ask the store.
    AskStore,
}

impl LocalLeases {
    /// A node that has borrowed nothing yet.
    #[must_use]
    pub fn new(terms: LeaseOptions) -> Self {
        Self {
            table: ShardedTable::with_capacity(terms.max_keys),
            options: terms,
            node_id: RandomState::new().build_hasher().finish(),
            sequence: AtomicU64::new(1),
            nodes: AtomicU32::new(1),
            queue: Mutex::default(),
            demand: Notify::new(),
            is_closing: AtomicBool::new(false),
            sweep_position: AtomicUsize::new(0),
            last_sweep: AtomicU64::new(0),
        }
    }

    /// Whether slices can be taken from this limit: token buckets, and leaky buckets that are no queues. Others are decided on
    /// exactly.
    #[must_use]
    pub fn is_leasable(limit: &Limit) -> bool {
        leasable_bucket(limit).is_some()
    }

    /// Says how many nodes share the quotas, as was last seen. Nobody takes more than a fair part at once.
    pub fn set_nodes(&self, nodes: u32) {
        self.nodes.store(nodes, Ordering::Relaxed);
    }

    /// What has happened so far.
    #[must_use]
    pub fn totals(&self) -> LeaseTotals {
        let parts = (0..self.table.shard_count()).filter_map(|index| self.table.shard_at(index));
        parts.fold(LeaseTotals::default(), |sum, shard| {
            sum.plus(&shard.totals, shard.entries.len())
        })
    }

    /// Answers from what is here, at once. `now` must have been read for this very call.
    #[must_use]
    pub fn spend(&self, check: &QuotaCheck<'_>, now: Timestamp) -> SpendOutcome {
        let (Some((cost, is_peek)), true) = (
            cost_and_peek(check.op),
            Self::is_leasable(&check.limit.limit),
        ) else {
            return SpendOutcome::AskStore;
        };
        let who = self.table.digest(&check.key, check.limit.id);
        let Some(mut shard) = self.table.shard(who) else {
            return SpendOutcome::Borrow;
        };
        let shard = &mut *shard;
        let Some(entry) = shard.entries.get_mut(&who) else {
            return SpendOutcome::Borrow;
        };
        entry.set_limit(check.limit);
        let said = match is_peek {
            true => entry.peek(now, cost),
            false => entry.spend(now, cost, || self.next_number()),
        };
        if entry.needs_lease(now) && !self.is_closing() {
            entry.is_queued = self.enqueue(who);
        }
        match said {
            LocalReply::Admitted(answer) => {
                shard.totals.admitted = shard.totals.admitted.saturating_add(1);
                SpendOutcome::Admitted(answer)
            }
            LocalReply::Denied(answer) => {
                shard.totals.denied = shard.totals.denied.saturating_add(1);
                SpendOutcome::Denied(answer)
            }
            LocalReply::Unknown => SpendOutcome::Borrow,
        }
    }

    /// Takes back what a request was charged here, because somebody else refused it. Answers how much may be spent again:
    /// nothing, if the lender was told meanwhile.
    pub fn refund(&self, check: &QuotaCheck<'_>, receipt: &Receipt, now: Timestamp) -> u64 {
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
        let who = self.table.digest(&check.key, check.limit.id);
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
                let units = entry.refund(now, receipt.mark, less);
                let is_kept = u64::from(units < less);
                shard.totals.not_refunded = shard.totals.not_refunded.saturating_add(is_kept);
                units
            }
            None => {
                entry.add_debt(now, actual.saturating_sub(receipt.cost));
                0
            }
        }
    }

    /// Forgets what the lender refused.
    pub fn clear_refusals(&self) {
        for index in 0..self.table.shard_count() {
            if let Some(mut shard) = self.table.shard_at(index) {
                let entries = shard.entries.values_mut();
                entries.for_each(|entry| entry.clear_refusal());
            }
        }
    }

    fn nodes(&self) -> NonZeroU32 {
        NonZeroU32::new(self.nodes.load(Ordering::Relaxed)).unwrap_or(NonZeroU32::MIN)
    }

    fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    fn next_number(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed)
    }

    fn new_lease_id(&self) -> QuotaLeaseId {
        QuotaLeaseId(u128::from(self.node_id) << 64 | u128::from(self.next_number()))
    }
}

/// What is asked of a slice, if it is something that a slice can be asked: how much, and whether only to look.
const fn cost_and_peek(op: Op) -> Option<(u64, bool)> {
    match op {
        Op::Spend(cost) => Some((cost, false)),
        Op::Peek(cost) => Some((cost, true)),
        _ => None,
    }
}
