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
mod dropping;
mod rounds;
#[cfg(test)]
mod tests;

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tollgate_core::limit::{AlgorithmKind, Limit};
use tollgate_core::{Nanos, Receipt, Timestamp};
use tollgate_store::{Op, QuotaCheck, StoreKey};

use self::account::Account;
pub use self::rounds::Round;
use super::keyed::Table;
pub use super::leases::Taken;

/// What this node has spent and knows of the others, by key and limit.
#[derive(Debug)]
pub struct Reconciled {
    table: Table<Account, ReconcileTotals>,
    /// Whose requests are dropped is drawn from this.
    seed: u64,
    nodes: AtomicU32,
    /// Numbers accounts, so that no two drop the same.
    numbers: AtomicU64,
    /// When the last round was.
    looked_at: AtomicU64,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ReconcileTotals {
    /// Requests that were admitted.
    pub spent: u64,
    /// Requests that were refused, dropped ones among them.
    pub denied: u64,
    /// Requests that were dropped at random.
    pub dropped: u64,
    /// Requests of keys for which there was no room.
    pub crowded: u64,
    /// Keys that something is known of.
    pub keys: usize,
}

impl Reconciled {
    /// Room for about so many keys; whatever does not fit is asked about exactly. `seed` is what drops are drawn from: another
    /// one on each node.
    #[must_use]
    pub fn for_keys(keys: usize, seed: u64) -> Self {
        Self {
            table: Table::with_room(keys),
            seed,
            nodes: AtomicU32::new(1),
            numbers: AtomicU64::new(0),
            looked_at: AtomicU64::new(0),
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
    pub fn counted(&self) -> ReconcileTotals {
        let parts = (0..self.table.parts()).filter_map(|index| self.table.at(index));
        parts.fold(ReconcileTotals::default(), |sum, shard| ReconcileTotals {
            spent: sum.spent.saturating_add(shard.counted.spent),
            denied: sum.denied.saturating_add(shard.counted.denied),
            dropped: sum.dropped.saturating_add(shard.counted.dropped),
            crowded: sum.crowded.saturating_add(shard.counted.crowded),
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
    ) -> Taken {
        let (cost, is_peek) = match check.op {
            Op::Spend(cost) => (cost, false),
            Op::Peek(cost) => (cost, true),
            _ => return Taken::Elsewhere,
        };
        let who = self.table.who(&check.key, check.ruled.id);
        let Some(mut shard) = self.table.shard(who) else {
            return Taken::Elsewhere;
        };
        let is_full = self.table.is_full(&shard);
        let shard = &mut *shard;
        let account = match shard.entries.get_mut(&who) {
            Some(account) => account,
            None if is_full => {
                shard.counted.crowded = shard.counted.crowded.saturating_add(1);
                return Taken::Elsewhere;
            }
            None => {
                let seed = self.seed ^ self.numbers.fetch_add(1, Ordering::Relaxed);
                let Some(account) = Account::new(check, place, interval, seed, now) else {
                    return Taken::Elsewhere;
                };
                shard.entries.entry(who).or_insert(Box::new(account))
            }
        };
        account.ruled_by(check.ruled, interval);
        let (answer, is_dropped) = match is_peek {
            true => (account.look(now, cost), false),
            false => account.spend(now, cost),
        };
        let counted = &mut shard.counted;
        counted.dropped = counted.dropped.saturating_add(u64::from(is_dropped));
        if answer.outcome.is_admitted() {
            counted.spent = counted.spent.saturating_add(1);
            Taken::Spent(answer)
        } else {
            counted.denied = counted.denied.saturating_add(1);
            Taken::Denied(answer)
        }
    }

    /// Takes back what a request was charged, because somebody else refused it; not if the store was told meanwhile.
    pub fn give_back(&self, check: &QuotaCheck<'_>, receipt: &Receipt, now: Timestamp) {
        self.settle(check, receipt, 0, now);
    }

    /// Corrects what a request was charged to what it turned out to cost; less only if the store was not told meanwhile.
    pub fn settle(&self, check: &QuotaCheck<'_>, receipt: &Receipt, actual: u64, now: Timestamp) {
        let who = self.table.who(&check.key, check.ruled.id);
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
