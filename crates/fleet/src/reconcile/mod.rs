//! `async` consistency: a node counts by itself, reports its charges to the store periodically, and reads the fleet's
//! total.
//!
//! [`Reconciler::spend`] decides at once, by two counts. One is what this node alone has spent, which never exceeds the
//! quota. The other is the fleet's total in the store's last reply, drained since. Between replies nodes do not know
//! each other's charges, so together they may exceed the quota by at most (n − 1) · (burst + rate × t). Here t is the
//! longest time for which a charge on one node is unknown to another. [`Reconciler::reconcile`] is due five times in
//! each interval. So t is at most the interval while the store answers, and otherwise as long as it did not answer.
//!
//! While the fleet exceeds its limit, a node drops requests at random. So all nodes together admit about the rate,
//! instead of stopping and starting together. Must not know: which store it is, when rounds run.

mod account;
mod random_drop;
mod rounds;
#[cfg(test)]
mod tests;

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tollgate_core::limit::{AlgorithmKind, Limit};
use tollgate_core::{Nanos, Receipt, Timestamp};
use tollgate_store::{Op, QuotaCheck, StoreKey};

use self::account::Account;
pub use self::rounds::ReconcileRound;
pub use super::leases::SpendOutcome;
use super::sharded_table::ShardedTable;

/// The accounts of this node, by key and limit.
#[derive(Debug)]
pub struct Reconciler {
    table: ShardedTable<Account, ReconcileTotals>,
    /// The seed of random drops.
    seed: u64,
    nodes: AtomicU32,
    /// Numbers accounts, so that each drops different requests.
    next_account: AtomicU64,
    /// When the last round was.
    last_round: AtomicU64,
}

/// Totals since the process started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ReconcileTotals {
    /// Admitted requests.
    pub admitted: u64,
    /// Denied requests, including dropped ones.
    pub denied: u64,
    /// Requests that were dropped at random.
    pub dropped: u64,
    /// Requests of keys that the table had no room for.
    pub table_full: u64,
    /// Keys in the table.
    pub keys: usize,
}

impl Reconciler {
    /// A table for about this many keys; checks of other keys go to the store. `seed` is the seed of random drops and
    /// must differ between nodes.
    #[must_use]
    pub fn for_keys(keys: usize, seed: u64) -> Self {
        Self {
            table: ShardedTable::with_capacity(keys),
            seed,
            nodes: AtomicU32::new(1),
            next_account: AtomicU64::new(0),
            last_round: AtomicU64::new(0),
        }
    }

    /// Whether a limit supports `async`: token buckets, leaky buckets that are not queues, fixed and sliding windows.
    #[must_use]
    pub fn can_reconcile(limit: &Limit) -> bool {
        use AlgorithmKind::{FixedWindow, SlidingCounter};
        limit.denying_bucket().is_some()
            || matches!(limit.algorithm_kind(), FixedWindow | SlidingCounter)
    }

    /// Sets the number of nodes. It bounds the debt that the store keeps.
    pub fn set_nodes(&self, nodes: u32) {
        self.nodes.store(nodes, Ordering::Relaxed);
    }

    /// The totals.
    #[must_use]
    pub fn totals(&self) -> ReconcileTotals {
        let shards = (0..self.table.shard_count()).filter_map(|index| self.table.shard_at(index));
        shards.fold(ReconcileTotals::default(), |sum, shard| ReconcileTotals {
            admitted: sum.admitted.saturating_add(shard.totals.admitted),
            denied: sum.denied.saturating_add(shard.totals.denied),
            dropped: sum.dropped.saturating_add(shard.totals.dropped),
            table_full: sum.table_full.saturating_add(shard.totals.table_full),
            keys: sum.keys.saturating_add(shard.entries.len()),
        })
    }

    /// Decides at once, under a limit that is reconciled every `interval`. `slot_key` selects the hash slot, if not the
    /// check's own key.
    #[must_use]
    pub fn spend(
        &self,
        check: &QuotaCheck<'_>,
        slot_key: Option<&StoreKey<'_>>,
        interval: Nanos,
        now: Timestamp,
    ) -> SpendOutcome {
        let (cost, is_peek) = match check.op {
            Op::Spend(cost) => (cost, false),
            Op::Peek(cost) => (cost, true),
            _ => return SpendOutcome::AskStore,
        };
        let digest = self.table.digest(&check.key, check.limit.id);
        let Some(mut shard) = self.table.shard(digest) else {
            return SpendOutcome::AskStore;
        };
        let is_full = self.table.is_full(&shard);
        let shard = &mut *shard;
        let account = match shard.entries.get_mut(&digest) {
            Some(account) => account,
            None if is_full => {
                shard.totals.table_full = shard.totals.table_full.saturating_add(1);
                return SpendOutcome::AskStore;
            }
            None => {
                let seed = self.seed ^ self.next_account.fetch_add(1, Ordering::Relaxed);
                let Some(account) = Account::new(check, slot_key, interval, seed, now) else {
                    return SpendOutcome::AskStore;
                };
                shard.entries.entry(digest).or_insert(Box::new(account))
            }
        };
        account.set_limit(check.limit, interval);
        let (reply, is_dropped) = match is_peek {
            true => (account.peek(now, cost), false),
            false => account.spend(now, cost),
        };
        let totals = &mut shard.totals;
        totals.dropped = totals.dropped.saturating_add(u64::from(is_dropped));
        if reply.outcome.is_admitted() {
            totals.admitted = totals.admitted.saturating_add(1);
            SpendOutcome::Admitted(reply)
        } else {
            totals.denied = totals.denied.saturating_add(1);
            SpendOutcome::Denied(reply)
        }
    }

    /// Refunds a charge, because another limit denied the request; not if it was reported meanwhile.
    pub fn refund(&self, check: &QuotaCheck<'_>, receipt: &Receipt, now: Timestamp) {
        self.settle(check, receipt, 0, now);
    }

    /// Corrects a charge to its actual cost; a lower cost only if it was not reported meanwhile.
    pub fn settle(&self, check: &QuotaCheck<'_>, receipt: &Receipt, actual: u64, now: Timestamp) {
        let digest = self.table.digest(&check.key, check.limit.id);
        if let Some(mut shard) = self.table.shard(digest)
            && let Some(account) = shard.entries.get_mut(&digest)
        {
            account.settle(now, receipt, actual);
        }
    }

    fn nodes(&self) -> NonZeroU32 {
        NonZeroU32::new(self.nodes.load(Ordering::Relaxed)).unwrap_or(NonZeroU32::MIN)
    }
}
