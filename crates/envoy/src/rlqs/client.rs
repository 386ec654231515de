//! One client: its buckets, what is to be said about them, and those that it was told to forget.
//!
//! Must not know: other clients, messages, shares.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tokio::sync::Notify;
use tollgate_core::{Nanos, Timestamp};

use super::demand::DemandMeter;
use super::limits::{AppliedLimits, SharedLimit};
use super::strategy::Strategy;

/// A report about one bucket, and what holds for it.
#[derive(Debug)]
pub(super) struct BucketReport {
    pub(super) id: Arc<[u8]>,
    pub(super) elapsed: Nanos,
    pub(super) requests: u64,
    pub(super) limits: AppliedLimits,
}

#[derive(Debug)]
pub(super) struct QuotaClient {
    pub(super) buckets: HashMap<Arc<[u8]>, QuotaBucket>,
    /// Buckets about which there is something to be said.
    due: BTreeSet<Arc<[u8]>>,
    /// Buckets that it was told to forget and may not have heard of yet.
    forgotten: HashMap<Arc<[u8]>, ForgottenBucket>,
    wake: Arc<Notify>,
}

#[derive(Debug)]
pub(super) struct QuotaBucket {
    pub(super) claim: u64,
    pub(super) limits: AppliedLimits,
    pub(super) demand: DemandMeter,
    /// When it was last used.
    pub(super) last_used: Timestamp,
    /// What it was last told.
    pub(super) last_assigned: Option<Strategy>,
    /// Whether it is owed an answer, even if nothing has changed.
    pub(super) needs_reply: bool,
    /// Whether it is to be forgotten.
    pub(super) is_idle: bool,
}

/// A bucket that a client was told to forget.
#[derive(Debug)]
pub(super) struct ForgottenBucket {
    pub(super) at: Timestamp,
    pub(super) claim: u64,
    pub(super) limits: Vec<SharedLimit>,
}

impl QuotaClient {
    pub(super) fn new(wake: Arc<Notify>) -> Self {
        Self {
            buckets: HashMap::new(),
            due: BTreeSet::new(),
            forgotten: HashMap::new(),
            wake,
        }
    }

    /// There is something to be said about a bucket.
    pub(super) fn mark_due(&mut self, id: Arc<[u8]>) {
        self.due.insert(id);
        self.wake.notify_one();
    }

    /// A bucket about which there is something to be said, which is said now.
    pub(super) fn next_due(&mut self) -> Option<Arc<[u8]>> {
        self.due.pop_first()
    }

    /// Whether a report was written before its client heard that it should forget the bucket. One that begins anew is told by
    /// the time since its last report, which is none.
    pub(super) fn is_stale(&self, heard: &BucketReport) -> bool {
        let begins = heard.elapsed.is_zero() && heard.requests > 0;
        !begins && self.forgotten.contains_key(&heard.id)
    }

    /// It was told to forget a bucket.
    pub(super) fn record_forgotten(&mut self, id: Arc<[u8]>, gone: ForgottenBucket) {
        self.forgotten.insert(id, gone);
    }

    /// Those that it has forgotten for certain, now that it has reported something.
    pub(super) fn take_confirmed_forgotten(
        &mut self,
        now: Timestamp,
        grace: Nanos,
    ) -> Vec<ForgottenBucket> {
        let is_certain = |_: &Arc<[u8]>, gone: &mut ForgottenBucket| now >= gone.at.after(grace);
        let forgotten = self.forgotten.extract_if(is_certain);
        forgotten.map(|(_, gone)| gone).collect()
    }

    /// What it was told to forget so long ago does not matter any more.
    pub(super) fn expire_forgotten(&mut self, now: Timestamp, held: Nanos) {
        self.forgotten.retain(|_, gone| now < gone.at.after(held));
    }

    /// Marks buckets that were not used for so long to be forgotten.
    pub(super) fn abandon(&mut self, now: Timestamp, patience: Nanos) {
        for (id, bucket) in &mut self.buckets {
            if !bucket.is_idle && now.since(bucket.last_used) >= patience {
                bucket.is_idle = true;
                self.due.insert(Arc::clone(id));
                self.wake.notify_one();
            }
        }
    }
}

impl QuotaBucket {
    pub(super) fn new(claim: u64, now: Timestamp) -> Self {
        Self {
            claim,
            limits: AppliedLimits::Fixed(Strategy::DenyAll),
            demand: DemandMeter::default(),
            last_used: now,
            last_assigned: None,
            needs_reply: true,
            is_idle: false,
        }
    }
}
