//! Background maintenance of leases: requests new ones before the old ones are used up, and returns unused ones.
//!
//! Must not know: when it runs, how leases are accounted for.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

use tollgate_core::{Nanos, Timestamp};
use tollgate_store::{IdentifiedLimit, LeaseBroker, StoreError, StoreKey};

use super::LocalLeases;
use super::lease_requests::RequestGuard;
use super::leased_key::{LeasedKey, PlannedRequest};
use crate::join_all::join_all;
use crate::sharded_table::KeyDigest;

/// The most keys that wait for another lease. Keys beyond are served when a request finds nothing.
const MAX_QUEUED: usize = 4_096;
/// The most requests of one round, and how many of them run concurrently.
const MAX_REQUESTS_PER_ROUND: usize = 512;
const MAX_CONCURRENT: usize = 32;
/// A sweep of the whole table takes this long. Each round sweeps a part of it, however often rounds run.
const SWEEP_PERIOD: Nanos = Nanos::from_millis(400);
/// How often the shutdown looks for leases that were granted meanwhile.
const MAX_FINAL_ROUNDS: usize = 3;

/// The result of a maintenance round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MaintenanceRound {
    /// Requests to the broker.
    pub requests: usize,
    /// Requests without a reply.
    pub failed: usize,
}

/// A lease request in the background.
struct BackgroundRequest<'a> {
    guard: RequestGuard<'a>,
    limit: IdentifiedLimit,
    key: Arc<[u8]>,
    slot_key: Option<Arc<[u8]>>,
}

impl LocalLeases {
    /// Waits until some key needs another lease soon.
    pub async fn wait_for_demand(&self) {
        self.demand.notified().await;
    }

    /// Runs one round: leases for keys that need them soon, and due reports and returns. Call it after
    /// [`wait_for_demand`](Self::wait_for_demand), and every 50 ms.
    pub async fn maintain(
        &self,
        broker: &dyn LeaseBroker,
        now: impl Fn() -> Timestamp + Send + Sync,
    ) -> MaintenanceRound {
        let mut requests = self.plan_refills(now());
        for index in self.due_shards(now()) {
            self.sweep(index, now(), false, &mut requests);
        }
        run_requests(requests, broker).await
    }

    /// Returns all leases and requests no more; from then on the broker decides every request. For the end of a
    /// process, after its last request if possible.
    pub async fn return_all(
        &self,
        broker: &dyn LeaseBroker,
        now: impl Fn() -> Timestamp + Send + Sync,
    ) -> MaintenanceRound {
        self.is_closing.store(true, Ordering::Relaxed);
        let mut all = MaintenanceRound::default();
        for _ in 0..MAX_FINAL_ROUNDS {
            for index in 0..self.table.shard_count() {
                let mut requests = Vec::new();
                self.sweep(index, now(), true, &mut requests);
                let round = run_requests(requests, broker).await;
                all.requests = all.requests.saturating_add(round.requests);
                all.failed = all.failed.saturating_add(round.failed);
            }
        }
        all
    }

    /// The shards that are due for a sweep, according to the time since the last round.
    fn due_shards(&self, now: Timestamp) -> impl Iterator<Item = usize> + use<> {
        let shards = self.table.shard_count().max(1);
        let each = SWEEP_PERIOD.as_nanos() / u64::try_from(shards).unwrap_or(u64::MAX).max(1);
        let last = self.last_sweep.load(Ordering::Relaxed);
        let due = now.as_nanos().saturating_sub(last) / each.max(1);
        let due = usize::try_from(due).unwrap_or(shards).min(shards);
        if due > 0 {
            self.last_sweep.store(now.as_nanos(), Ordering::Relaxed);
        }
        let from = self.sweep_position.fetch_add(due, Ordering::Relaxed);
        (0..due).map(move |index| from.wrapping_add(index) % shards)
    }

    /// Queues a key that needs another lease. Returns whether there was room.
    pub(super) fn enqueue(&self, digest: KeyDigest) -> bool {
        let mut queue = self.lock_queue();
        if queue.len() >= MAX_QUEUED {
            return false;
        }
        queue.push(digest);
        self.demand.notify_one();
        true
    }

    fn lock_queue(&self) -> MutexGuard<'_, Vec<KeyDigest>> {
        // A list of numbers is always consistent.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn plan_refills(&self, now: Timestamp) -> Vec<BackgroundRequest<'_>> {
        let queued: Vec<KeyDigest> = {
            let mut queue = self.lock_queue();
            let rest = queue.len().saturating_sub(MAX_REQUESTS_PER_ROUND);
            queue.drain(rest..).collect()
        };
        let mut requests = Vec::new();
        for digest in queued {
            let Some(mut shard) = self.table.shard(digest) else {
                continue;
            };
            let Some(entry) = shard.entries.get_mut(&digest) else {
                continue;
            };
            entry.is_queued = false;
            let is_used = entry.is_in_use(&self.options, now);
            if entry.needs_lease(now) && is_used && !self.is_closing() {
                let spec = (None, self.new_lease_id());
                let (options, nodes) = (&self.options, self.nodes());
                let planned = entry.plan_borrow(options, nodes, now, spec, || self.next_number());
                requests.push(self.background_request(digest, entry, planned));
                shard.totals.requests = shard.totals.requests.saturating_add(1);
            }
        }
        requests
    }

    /// Sweeps one shard of the table.
    fn sweep<'a>(
        &'a self,
        index: usize,
        now: Timestamp,
        is_end: bool,
        requests: &mut Vec<BackgroundRequest<'a>>,
    ) {
        let Some(mut shard) = self.table.shard_at(index) else {
            return;
        };
        let shard = &mut *shard;
        let mut sent = 0_u64;
        for (digest, entry) in &mut shard.entries {
            if entry.in_flight.is_some() {
                continue;
            }
            if is_end {
                entry.end_all();
            } else {
                entry.end_unused(&self.options, now);
            }
            let is_due = match is_end {
                true => entry.has_leases(),
                false => {
                    requests.len() < MAX_REQUESTS_PER_ROUND
                        && entry.has_unreported(&self.options, now)
                }
            };
            if is_due {
                let planned = entry.plan_report(now, || self.next_number());
                requests.push(self.background_request(*digest, entry, planned));
                sent = sent.saturating_add(1);
            }
        }
        let options = &self.options;
        shard
            .entries
            .retain(|_, entry| !entry.is_forgettable(options, now));
        shard.totals.requests = shard.totals.requests.saturating_add(sent);
    }

    fn background_request<'a>(
        &'a self,
        digest: KeyDigest,
        entry: &mut LeasedKey,
        planned: PlannedRequest,
    ) -> BackgroundRequest<'a> {
        let in_flight = entry.begin_request();
        BackgroundRequest {
            guard: RequestGuard::new(self, digest, planned, in_flight),
            limit: entry.limit,
            key: Arc::clone(&entry.key),
            slot_key: entry.slot_key.clone(),
        }
    }
}

impl BackgroundRequest<'_> {
    async fn run(self, broker: &dyn LeaseBroker) -> Result<(), StoreError> {
        let key = StoreKey::new(&self.key);
        let slot_key = self.slot_key.as_deref().map(StoreKey::new).transpose();
        // They were valid when they were first checked.
        let (Ok(key), Ok(slot_key)) = (key, slot_key) else {
            return Ok(());
        };
        let request = self.guard.request();
        let grant = broker
            .grant_lease(slot_key, key, &self.limit, request)
            .await;
        self.guard.complete(grant, |_| ())
    }
}

/// Runs requests, some of them concurrently.
async fn run_requests(
    requests: Vec<BackgroundRequest<'_>>,
    broker: &dyn LeaseBroker,
) -> MaintenanceRound {
    let mut round = MaintenanceRound::default();
    let mut requests = requests.into_iter();
    loop {
        let batch = requests.by_ref().take(MAX_CONCURRENT);
        let batch: Vec<_> = batch.map(|request| Box::pin(request.run(broker))).collect();
        if batch.is_empty() {
            return round;
        }
        round.requests = round.requests.saturating_add(batch.len());
        let failed = join_all(batch)
            .await
            .into_iter()
            .filter(Result::is_err)
            .count();
        round.failed = round.failed.saturating_add(failed);
    }
}
