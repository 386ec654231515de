//! `async` consistency: a node counts by itself, tells the store every so often what it has spent, and learns what the fleet has.
//!
//! [`Reconciled::spend`] decides at once, on two things: what this node alone has spent, which never exceeds the quota, and
//! what the fleet had spent when the store was last asked, drained since. Between two answers nodes do not hear of each other,
//! so together they may admit more: at most (n − 1) · (burst + rate × t), where t is the longest time for which something
//! that was spent on one node stayed unknown on another. [`Reconciled::reconcile`] is due five times in each interval, so t is
//! the interval while the store answers, and how long it did not otherwise.
//!
//! Where the fleet is beyond its limit, a node drops a part of its requests at random, so that all together admit about the
//! rate instead of all stopping and starting at once. Must not know: which store it is, when it is reconciled.

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

/// What this node has spent and knows of the others, by key and limit.
#[derive(Debug)]
pub struct Reconciler {
    table: ShardedTable<Account, ReconcileTotals>,
    /// Whose requests are dropped is drawn from this.
    seed: u64,
    nodes: AtomicU32,
    /// Numbers accounts, so that no two drop the same.
    next_account: AtomicU64,
    /// When the last round was.
    last_round: AtomicU64,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ReconcileTotals {
    /// Requests that were admitted.
    pub admitted: u64,
    /// Requests that were refused, dropped ones among them.
    pub denied: u64,
    /// Requests that were dropped at random.
    pub dropped: u64,
    /// Requests of keys for which there was no room.
    pub table_full: u64,
    /// Keys that something is known of.
    pub keys: usize,
}

impl Reconciler {
    /// Room for about so many keys; whatever does not fit is asked about exactly. `seed` is what drops are drawn from: another
    /// one on each node.
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

    /// Whether a limit can be counted like this: token buckets, leaky buckets that are no queues, fixed and sliding windows.
    #[must_use]
    pub fn can_reconcile(limit: &Limit) -> bool {
        use AlgorithmKind::{FixedWindow, SlidingCounter};
        limit.denying_bucket().is_some()
            || matches!(limit.algorithm_kind(), FixedWindow | SlidingCounter)
    }

    /// Says how many nodes share the quotas, as was last seen. Debt that they may have made together is not forgiven.
    pub fn set_nodes(&self, nodes: u32) {
        self.nodes.store(nodes, Ordering::Relaxed);
    }

    /// What has happened so far.
    #[must_use]
    pub fn totals(&self) -> ReconcileTotals {
        let parts = (0..self.table.shard_count()).filter_map(|index| self.table.shard_at(index));
        parts.fold(ReconcileTotals::default(), |sum, shard| ReconcileTotals {
            admitted: sum.admitted.saturating_add(shard.totals.admitted),
            denied: sum.denied.saturating_add(shard.totals.denied),
            dropped: sum.dropped.saturating_add(shard.totals.dropped),
            table_full: sum.table_full.saturating_add(shard.totals.table_full),
            keys: sum.keys.saturating_add(shard.entries.len()),
        })
    }

    /// Decides at once, under a limit that is reconciled every `interval`. `place` is where its state lies, if not by its key.
    #[must_use]
    pub fn spend(
        &self,
        check: &QuotaCheck<'_>,
        place: Option<&StoreKey<'_>>,
        interval: Nanos,
        now: Timestamp,
    ) -> SpendOutcome {
        let (cost, is_peek) = match check.op {
            Op::Spend(cost) => (cost, false),
            Op::Peek(cost) => (cost, true),
            _ => return SpendOutcome::AskStore,
        };
        let who = self.table.digest(&check.key, check.limit.id);
        let Some(mut shard) = self.table.shard(who) else {
            return SpendOutcome::AskStore;
        };
        let is_full = self.table.is_full(&shard);
        let shard = &mut *shard;
        let account = match shard.entries.get_mut(&who) {
            Some(account) => account,
            None if is_full => {
                shard.totals.table_full = shard.totals.table_full.saturating_add(1);
                return SpendOutcome::AskStore;
            }
            None => {
                let seed = self.seed ^ self.next_account.fetch_add(1, Ordering::Relaxed);
                let Some(account) = Account::new(check, place, interval, seed, now) else {
                    return SpendOutcome::AskStore;
                };
                shard.entries.entry(who).or_insert(Box::new(account))
            }
        };
        account.set_limit(check.limit, interval);
        let (answer, is_dropped) = match is_peek {
            true => (account.peek(now, cost), false),
            false => account.spend(now, cost),
        };
        let counted = &mut shard.totals;
        counted.dropped = counted.dropped.saturating_add(u64::from(is_dropped));
        if answer.outcome.is_admitted() {
            counted.admitted = counted.admitted.saturating_add(1);
            SpendOutcome::Admitted(answer)
        } else {
            counted.denied = counted.denied.saturating_add(1);
            SpendOutcome::Denied(answer)
        }
    }

    /// Takes back what a request was charged, because somebody else refused it; not if the store was told meanwhile.
    pub fn refund(&self, check: &QuotaCheck<'_>, receipt: &Receipt, now: Timestamp) {
        self.settle(check, receipt, 0, now);
    }

    /// Corrects what a request was charged to what it turned out to cost; less only if the store was not told meanwhile.
    pub fn settle(&self, check: &QuotaCheck<'_>, receipt: &Receipt, actual: u64, now: Timestamp) {
        let who = self.table.digest(&check.key, check.limit.id);
        if let Some(mut shard) = self.table.shard(who)
            && let Some(account) = shard.entries.get_mut(&who)
        {
            account.settle(now, receipt, actual);
        }
    }

    fn nodes(&self) -> NonZeroU32 {
        NonZeroU32::new(self.nodes.load(Ordering::Relaxed)).unwrap_or(NonZeroU32::MIN)
    }
}
