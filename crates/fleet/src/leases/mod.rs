//! Leased consistency on a node: leases of a quota that are spent without asking the store.
//!
//! [`LocalLeases::spend`] decides at once from a key's lease, or returns that one is needed. [`LocalLeases::borrow`]
//! requests one: each key has at most one request in flight, and all waiting checks share its grant. A refusal by the
//! broker is cached. The size of leases follows demand, up to a fair share of the limit. [`LocalLeases::maintain`]
//! requests leases ahead, returns unused ones and reports charges. [`LocalLeases::return_all`] ends everything.
//!
//! All nodes together never admit more than the quota, whatever is lost, late or frozen: see the accounting in
//! [`tollgate_core::quota_lease`]. A lease's lifetime counts from when it was requested, and every spend reads the
//! clock. Must not know: which broker it is, other limits, when maintenance runs.

mod background;
mod hot_keys;
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
use tollgate_store::{Op, QuotaCheck, StoreKey, StoreReply};

pub use self::background::MaintenanceRound;
use self::hot_keys::HotKeys;
pub use self::lease_options::LeaseOptions;
use self::lease_options::LeaseSize;
use self::leased_key::{LeasedKey, LocalReply, leasable_bucket};
pub use self::totals::LeaseTotals;
use super::sharded_table::{KeyDigest, ShardedTable};

/// The leases of this node, by key and limit.
#[derive(Debug)]
pub struct LocalLeases {
    table: ShardedTable<LeasedKey, LeaseTotals>,
    hot_keys: HotKeys,
    options: LeaseOptions,
    /// This node's part of lease ids; random for each process.
    node_id: u64,
    /// Numbers leases and marks.
    sequence: AtomicU64,
    /// The number of nodes.
    nodes: AtomicU32,
    /// Keys that need another lease soon.
    queue: Mutex<Vec<KeyDigest>>,
    demand: Notify,
    is_closing: AtomicBool,
    /// The next shard to sweep.
    sweep_position: AtomicUsize,
    /// When the last sweep was.
    last_sweep: AtomicU64,
}

/// The result of a spend on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpendOutcome {
    /// Admitted.
    Admitted(StoreReply),
    /// Denied.
    Denied(StoreReply),
    /// A lease is needed: call [`LocalLeases::borrow`].
    Borrow,
    /// Leases do not apply: ask the store.
    AskStore,
}

impl LocalLeases {
    /// A node without leases.
    #[must_use]
    pub fn new(options: LeaseOptions) -> Self {
        Self {
            table: ShardedTable::with_capacity(options.max_keys),
            hot_keys: HotKeys::default(),
            options,
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

    /// Whether a limit can be leased: token buckets, and leaky buckets that are not queues. Other limits are exact.
    #[must_use]
    pub fn is_leasable(limit: &Limit) -> bool {
        leasable_bucket(limit).is_some()
    }

    /// Sets the number of nodes. A lease is at most a fair share of the limit.
    pub fn set_nodes(&self, nodes: u32) {
        self.nodes.store(nodes, Ordering::Relaxed);
    }

    /// The totals.
    #[must_use]
    pub fn totals(&self) -> LeaseTotals {
        let shards = (0..self.table.shard_count()).filter_map(|index| self.table.shard_at(index));
        shards.fold(LeaseTotals::default(), |sum, shard| {
            sum.plus(&shard.totals, shard.entries.len())
        })
    }

    /// Decides from the leases at hand. `now` must be read for this call.
    #[must_use]
    pub fn spend(&self, check: &QuotaCheck<'_>, now: Timestamp) -> SpendOutcome {
        let (Some((cost, is_peek)), true) = (
            cost_and_peek(check.op),
            Self::is_leasable(&check.limit.limit),
        ) else {
            return SpendOutcome::AskStore;
        };
        let digest = self.table.digest(&check.key, check.limit.id);
        let Some(mut shard) = self.table.shard(digest) else {
            return SpendOutcome::Borrow;
        };
        let shard = &mut *shard;
        let Some(entry) = shard.entries.get_mut(&digest) else {
            return SpendOutcome::Borrow;
        };
        entry.set_limit(check.limit);
        let reply = match is_peek {
            true => entry.peek(now, cost),
            false => entry.spend(now, cost, || self.next_number()),
        };
        if entry.needs_lease(now) && !self.is_closing() {
            entry.is_queued = self.enqueue(digest);
        }
        match reply {
            LocalReply::Admitted(store_reply) => {
                shard.totals.admitted = shard.totals.admitted.saturating_add(1);
                SpendOutcome::Admitted(store_reply)
            }
            LocalReply::Denied(store_reply) => {
                shard.totals.denied = shard.totals.denied.saturating_add(1);
                SpendOutcome::Denied(store_reply)
            }
            LocalReply::Unknown => SpendOutcome::Borrow,
        }
    }

    /// Whether a lease pays for a key without one, after [`spend`](Self::spend) returned [`SpendOutcome::Borrow`]: the key
    /// is in the table, or it is used often. Otherwise [`spend_at_broker`](Self::spend_at_broker) costs less.
    #[must_use]
    pub fn is_lease_worthwhile(&self, check: &QuotaCheck<'_>, now: Timestamp) -> bool {
        let digest = self.table.digest(&check.key, check.limit.id);
        let shard = self.table.shard(digest);
        shard.is_some_and(|shard| shard.entries.contains_key(&digest))
            || self.hot_keys.observe(digest, now) >= self.options.lease_from
    }

    /// Refunds a charge, because another limit denied the request. Returns the refunded units: none, if the charge was
    /// reported meanwhile.
    pub fn refund(&self, check: &QuotaCheck<'_>, receipt: &Receipt, now: Timestamp) -> u64 {
        self.settle(None, check, receipt, 0, now)
    }

    /// Corrects a charge to its actual cost. A higher cost is taken from the current lease, or from the next one. A
    /// lower cost is refunded as far as it was not reported. Returns the refunded units.
    pub fn settle(
        &self,
        slot_key: Option<&StoreKey<'_>>,
        check: &QuotaCheck<'_>,
        receipt: &Receipt,
        actual: u64,
        now: Timestamp,
    ) -> u64 {
        let digest = self.table.digest(&check.key, check.limit.id);
        let Some(mut shard) = self.table.shard(digest) else {
            return 0;
        };
        let shard = &mut *shard;
        let more = actual.saturating_sub(receipt.cost);
        if more > 0 && !shard.entries.contains_key(&digest) && !self.table.is_full(shard) {
            // The broker decided the charge without a lease. What is missing is paid by the key's next lease.
            let new = self.new_entry(check, slot_key, now);
            shard.entries.extend(new.map(|new| (digest, new)));
        }
        let Some(entry) = shard.entries.get_mut(&digest) else {
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
                entry.add_debt(now, more);
                0
            }
        }
    }

    /// Drops the broker's refusals.
    pub fn clear_refusals(&self) {
        for index in 0..self.table.shard_count() {
            if let Some(mut shard) = self.table.shard_at(index) {
                let entries = shard.entries.values_mut();
                entries.for_each(|entry| entry.clear_refusal());
            }
        }
    }

    /// A new entry of a check's key; `None` if its limit cannot be leased or its key is not one piece.
    fn new_entry(
        &self,
        check: &QuotaCheck<'_>,
        slot_key: Option<&StoreKey<'_>>,
        now: Timestamp,
    ) -> Option<Box<LeasedKey>> {
        let bucket = leasable_bucket(&check.limit.limit)?;
        let key = check.key.single()?;
        let slot_key = slot_key.and_then(StoreKey::single);
        let mark = self.next_number();
        // A key that is leased had so many requests within a second, and will have some more.
        let size = LeaseSize::starting_with(self.options.lease_from / 2);
        let entry = LeasedKey::new(*check.limit, *bucket, key, slot_key, size, mark, now);
        Some(Box::new(entry))
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

/// The cost of an operation and whether it is a peek; `None` if leases do not support it.
const fn cost_and_peek(op: Op) -> Option<(u64, bool)> {
    match op {
        Op::Spend(cost) => Some((cost, false)),
        Op::Peek(cost) => Some((cost, true)),
        _ => None,
    }
}
