//! One client of RLQS: its buckets, the messages that are due, and buckets that it was told to abandon.
//!
//! Must not know: other clients, messages, shares.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tokio::sync::Notify;
use tollgate_core::{Nanos, Timestamp};

use super::demand::DemandMeter;
use super::limits::{AppliedLimits, SharedLimit};
use super::strategy::Strategy;

/// A report about one bucket, and the limits that apply to it.
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
    /// Buckets with an assignment to send.
    due: BTreeSet<Arc<[u8]>>,
    /// Buckets that it was told to abandon, until it has certainly received that.
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
    /// The last assignment that was sent.
    pub(super) last_assigned: Option<Strategy>,
    /// Whether a response is due even if the assignment has not changed.
    pub(super) needs_reply: bool,
    /// Whether the client must be told to abandon it.
    pub(super) is_idle: bool,
}

/// A bucket that a client was told to abandon.
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

    /// Marks a bucket as due and wakes the client's stream.
    pub(super) fn mark_due(&mut self, id: Arc<[u8]>) {
        self.due.insert(id);
        self.wake.notify_one();
    }

    /// Takes the next due bucket.
    pub(super) fn next_due(&mut self) -> Option<Arc<[u8]>> {
        self.due.pop_first()
    }

    /// Whether the client wrote a report before it received that it must abandon the bucket. A new bucket's first report has
    /// an elapsed time of zero.
    pub(super) fn is_stale(&self, report: &BucketReport) -> bool {
        let begins = report.elapsed.is_zero() && report.requests > 0;
        !begins && self.forgotten.contains_key(&report.id)
    }

    /// Records that the client was told to abandon a bucket.
    pub(super) fn record_forgotten(&mut self, id: Arc<[u8]>, bucket: ForgottenBucket) {
        self.forgotten.insert(id, bucket);
    }

    /// Takes the buckets that the client has certainly abandoned, now that a report has arrived.
    pub(super) fn take_confirmed_forgotten(
        &mut self,
        now: Timestamp,
        grace: Nanos,
    ) -> Vec<ForgottenBucket> {
        let is_certain =
            |_: &Arc<[u8]>, bucket: &mut ForgottenBucket| now >= bucket.at.after(grace);
        let forgotten = self.forgotten.extract_if(is_certain);
        forgotten.map(|(_, bucket)| bucket).collect()
    }

    /// Removes abandoned buckets whose assignments have expired.
    pub(super) fn expire_forgotten(&mut self, now: Timestamp, held: Nanos) {
        self.forgotten
            .retain(|_, bucket| now < bucket.at.after(held));
    }

    /// Marks buckets that are unused for `idle` as due to be abandoned.
    pub(super) fn abandon(&mut self, now: Timestamp, idle: Nanos) {
        for (id, bucket) in &mut self.buckets {
            if !bucket.is_idle && now.since(bucket.last_used) >= idle {
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
