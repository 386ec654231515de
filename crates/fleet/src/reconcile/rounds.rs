//! Reconciliation rounds: report charges and read the fleet's totals, many keys in one call.
//!
//! Must not know: how accounts decide, when a round is due.

use std::sync::atomic::Ordering;

use tollgate_core::limit::Limit;
use tollgate_core::{Nanos, Timestamp};
use tollgate_store::{
    IdentifiedLimit, Op, QuotaCheck, RemoteStore, StoreError, StoreKey, StoreReply,
};

use super::Reconciler;
use super::account::store_limit;
use crate::join_all::join_all;
use crate::sharded_table::KeyDigest;

/// The most reports in one call.
const MAX_REPORTS: usize = 32;
/// A round sooner than this after the previous one does nothing.
const MIN_ROUND_GAP: Nanos = Nanos::from_millis(5);
/// The most concurrent calls.
const MAX_CONCURRENT: usize = 16;
/// A store with more partitions than this is a cluster. Keys of one partition are then rarely in one slot, and a batch
/// over several slots runs sequentially.
const CLUSTER_PARTITIONS: usize = 16;

/// The result of a round.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ReconcileRound {
    /// Reported keys.
    pub keys: usize,
    /// Calls to the store.
    pub calls: usize,
    /// Calls without a reply.
    pub failed: usize,
    /// The error of the last failed call.
    pub error: Option<StoreError>,
}

/// The report of one account.
struct DueReport {
    digest: KeyDigest,
    limit: IdentifiedLimit,
    key: Box<[u8]>,
    slot_key: Option<Box<[u8]>>,
    units: u64,
    /// The partition of the key.
    partition: usize,
}

impl DueReport {
    fn partition_of(&self, remote: &dyn RemoteStore) -> usize {
        let slot_key = self
            .slot_key
            .as_deref()
            .and_then(|slot_key| StoreKey::new(slot_key).ok());
        let key = StoreKey::new(&self.key);
        key.map_or(0, |key| remote.partition_of(&key, slot_key.as_ref()))
    }
}

impl Reconciler {
    /// Runs one round: reports every key that is due, up to 32 of one partition in a call. Call it at least
    /// ten times in the shortest interval of any limit; a round without due keys is cheap. `now` reads the same clock
    /// as [`spend`](Self::spend).
    pub async fn reconcile(
        &self,
        remote: &dyn RemoteStore,
        now: impl Fn() -> Timestamp + Send + Sync,
    ) -> ReconcileRound {
        let since = now().since(Timestamp::from_nanos(
            self.last_round.load(Ordering::Relaxed),
        ));
        if since < MIN_ROUND_GAP {
            return ReconcileRound::default();
        }
        self.last_round.store(now().as_nanos(), Ordering::Relaxed);
        self.round(remote, now, false).await
    }

    /// Reports all unreported charges, at the end of a process.
    pub async fn report_all(
        &self,
        remote: &dyn RemoteStore,
        now: impl Fn() -> Timestamp + Send + Sync,
    ) -> ReconcileRound {
        self.round(remote, now, true).await
    }

    async fn round(
        &self,
        remote: &dyn RemoteStore,
        now: impl Fn() -> Timestamp + Send + Sync,
        is_last: bool,
    ) -> ReconcileRound {
        let mut due: Vec<DueReport> = Vec::new();
        for shard_index in 0..self.table.shard_count() {
            due.extend(self.take_due(shard_index, now(), is_last));
        }
        let partitions = remote.partition_count();
        for report in due.iter_mut().filter(|_| partitions > 1) {
            report.partition = report.partition_of(remote);
        }
        due.sort_by_key(|report| report.partition);
        let at_once = if partitions > CLUSTER_PARTITIONS {
            1
        } else {
            MAX_REPORTS
        };
        let by_partition = due.chunk_by(|report, other| report.partition == other.partition);
        let mut calls = by_partition.flat_map(|reports| reports.chunks(at_once));
        let mut round = ReconcileRound {
            keys: due.len(),
            ..ReconcileRound::default()
        };
        loop {
            let batch = calls.by_ref().take(MAX_CONCURRENT);
            let batch: Vec<_> = batch
                .map(|reports| Box::pin(self.report(remote, reports, &now)))
                .collect();
            if batch.is_empty() {
                return round;
            }
            round.calls = round.calls.saturating_add(batch.len());
            for error in join_all(batch).await.into_iter().filter_map(Result::err) {
                round.failed = round.failed.saturating_add(1);
                round.error = Some(error);
            }
        }
    }

    /// Takes the due reports of one shard, and drops unused accounts.
    fn take_due(&self, shard_index: usize, now: Timestamp, is_last: bool) -> Vec<DueReport> {
        let mut due = Vec::new();
        let Some(mut shard) = self.table.shard_at(shard_index) else {
            return due;
        };
        shard
            .entries
            .retain(|_, account| !account.is_forgettable(now));
        for (digest, account) in &mut shard.entries {
            let is_due = match is_last {
                true => account.has_unreported(),
                false => account.is_due(now),
            };
            if !is_due {
                continue;
            }
            let limit = store_limit(&account.limit.limit, account.interval, self.nodes());
            due.push(DueReport {
                digest: *digest,
                limit: IdentifiedLimit {
                    limit: limit.unwrap_or(account.limit.limit),
                    ..account.limit
                },
                key: account.key.clone(),
                slot_key: account.slot_key.clone(),
                units: account.take_unreported(now),
                partition: 0,
            });
        }
        due
    }

    async fn report(
        &self,
        remote: &dyn RemoteStore,
        reports: &[DueReport],
        now: impl Fn() -> Timestamp,
    ) -> Result<(), StoreError> {
        let guard = ReportGuard {
            reconciler: self,
            reports,
        };
        let mut checks = Vec::with_capacity(reports.len());
        let mut slot_keys = Vec::with_capacity(reports.len());
        for due in reports {
            // It was a valid key when it was stored.
            let Ok(key) = StoreKey::new(&due.key) else {
                continue;
            };
            slot_keys.push(
                due.slot_key
                    .as_deref()
                    .and_then(|slot_key| StoreKey::new(slot_key).ok()),
            );
            checks.push(QuotaCheck {
                key,
                limit: &due.limit,
                op: Op::ChargeAlways(due.units),
            });
        }
        let mut replies = vec![StoreReply::EMPTY; checks.len()];
        let _never_denied = remote.decide(&slot_keys, &checks, &mut replies).await?;
        guard.confirm();
        let now = now();
        for (due, reply) in reports.iter().zip(&replies) {
            self.record_reply(due.digest, now, reply, &due.limit.limit);
        }
        Ok(())
    }

    fn record_reply(&self, digest: KeyDigest, now: Timestamp, reply: &StoreReply, limit: &Limit) {
        if let Some(mut shard) = self.table.shard(digest)
            && let Some(account) = shard.entries.get_mut(&digest)
        {
            account.on_reply(now, &reply.status, limit);
        }
    }
}

/// Guards reports in flight. If it is dropped, because the call failed or was cancelled, they are reported again.
struct ReportGuard<'a> {
    reconciler: &'a Reconciler,
    reports: &'a [DueReport],
}

impl ReportGuard<'_> {
    fn confirm(mut self) {
        self.reports = &[];
    }
}

impl Drop for ReportGuard<'_> {
    fn drop(&mut self) {
        for due in self.reports {
            if let Some(mut shard) = self.reconciler.table.shard(due.digest)
                && let Some(account) = shard.entries.get_mut(&due.digest)
            {
                account.on_failure();
            }
        }
    }
}
