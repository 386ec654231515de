//! The leases of one key of one limit, their unreported charges, and the broker's last status.
//!
//! The caller passes the time and holds the lock. Must not know: locks, tables, brokers, other keys.

mod replies;

use std::num::NonZeroU32;
use std::sync::Arc;

use arrayvec::ArrayVec;
use tokio::sync::Notify;
use tollgate_core::limit::Limit;
use tollgate_core::quota_lease::{LeaseGrant, LeaseReport, LeaseSpec, LocalLease, QuotaLeaseId};
use tollgate_core::{Nanos, Outcome, QuotaStatus, Timestamp, TokenBucket};
use tollgate_store::{IdentifiedLimit, StoreError, StoreReply};

use super::lease_options::{LeaseOptions, LeaseSize, fair_share};

/// The most ended leases that are kept until they are reported. One that is dropped earlier expires at the broker: that
/// wastes a little of the quota and never exceeds it.
const MAX_ENDED: usize = 4;

/// The reports of one request: ended leases, and those in use.
pub(super) type Reports = ArrayVec<LeaseReport, { MAX_ENDED + 2 }>;

/// The bucket that leases are taken from, if the limit can be leased.
pub(super) fn leasable_bucket(limit: &Limit) -> Option<&TokenBucket> {
    limit.denying_bucket()
}

/// The leases of one key.
#[derive(Debug)]
pub(super) struct LeasedKey {
    pub(super) limit: IdentifiedLimit,
    pub(super) bucket: TokenBucket,
    pub(super) key: Arc<[u8]>,
    pub(super) slot_key: Option<Arc<[u8]>>,
    current: Option<LocalLease>,
    next: Option<LocalLease>,
    ended: ArrayVec<LocalLease, MAX_ENDED>,
    refusal: Option<BrokerRefusal>,
    broker_status: Option<(QuotaStatus, Timestamp)>,
    size: LeaseSize,
    /// Marks charges that can be refunded. It changes whenever earlier charges no longer can be.
    mark: u64,
    /// Units that the next lease has to pay.
    debt: u64,
    /// Units that waiting requests need.
    waiting_units: u64,
    pub(super) in_flight: Option<Arc<InFlightRequest>>,
    pub(super) is_queued: bool,
    last_used: Timestamp,
    last_report: Timestamp,
}

/// A request to the broker in flight.
#[derive(Debug, Default)]
pub(super) struct InFlightRequest {
    pub(super) completed: Notify,
    /// Empty while the request is in flight.
    pub(super) outcome: std::sync::OnceLock<Result<(), StoreError>>,
}

/// A refusal by the broker.
#[derive(Clone, Copy, Debug)]
struct BrokerRefusal {
    cost: u64,
    /// When units should be available, according to the broker.
    refused_until: Timestamp,
    /// When the broker is asked again.
    retry_at: Timestamp,
}

impl BrokerRefusal {
    /// Whether this cost is refused too.
    fn covers(&self, now: Timestamp, cost: u64) -> bool {
        cost >= self.cost && now < self.retry_at
    }
}

/// A request to be sent to the broker.
#[derive(Clone, Debug)]
pub(super) struct PlannedRequest {
    pub(super) reports: Reports,
    pub(super) want: Option<LeaseSpec>,
    pub(super) sent: Timestamp,
}

/// What a key can reply without the broker.
#[derive(Clone, Copy, Debug)]
pub(super) enum LocalReply {
    Admitted(StoreReply),
    Denied(StoreReply),
    /// The broker has to be asked.
    Unknown,
}

impl LeasedKey {
    pub(super) fn new(
        limit: IdentifiedLimit,
        bucket: TokenBucket,
        key: &[u8],
        slot_key: Option<&[u8]>,
        size: LeaseSize,
        mark: u64,
        now: Timestamp,
    ) -> Self {
        Self {
            limit,
            bucket,
            key: Arc::from(key),
            slot_key: slot_key.map(Arc::from),
            current: None,
            next: None,
            ended: ArrayVec::new(),
            refusal: None,
            broker_status: None,
            size,
            mark,
            debt: 0,
            waiting_units: 0,
            in_flight: None,
            is_queued: false,
            last_used: now,
            last_report: now,
        }
    }

    /// Sets the current quota. Leases stay as they are.
    pub(super) fn set_limit(&mut self, limit: &IdentifiedLimit) {
        if let (true, Some(bucket)) = (self.limit != *limit, leasable_bucket(&limit.limit)) {
            self.limit = *limit;
            self.bucket = *bucket;
            self.refusal = None;
        }
    }

    /// Spends from the leases, denies by a valid refusal, or replies `Unknown`. `marks` generates marks.
    pub(super) fn spend(
        &mut self,
        now: Timestamp,
        cost: u64,
        marks: impl Fn() -> u64,
    ) -> LocalReply {
        self.last_used = self.last_used.max(now);
        if cost > self.bucket.limit() {
            return LocalReply::Denied(self.reply(now, Outcome::Never, 0));
        }
        if cost == 0 {
            return LocalReply::Admitted(self.reply(now, Outcome::Allow, 0));
        }
        let spends = |lease: &mut LocalLease| lease.spend(now, cost);
        if self.current.as_mut().is_some_and(spends) {
            return LocalReply::Admitted(self.reply(now, Outcome::Allow, cost));
        }
        if self.next.as_mut().is_some_and(spends) {
            if let Some(used_up) = self.current.take() {
                self.end(used_up);
            }
            self.current = self.next.take();
            self.mark = marks();
            return LocalReply::Admitted(self.reply(now, Outcome::Allow, cost));
        }
        match self.refusal {
            Some(refusal) if refusal.covers(now, cost) => self.deny(now, &refusal, cost),
            _ => LocalReply::Unknown,
        }
    }

    /// A request is in flight from now on.
    pub(super) fn begin_request(&mut self) -> Arc<InFlightRequest> {
        let in_flight = Arc::<InFlightRequest>::default();
        self.in_flight = Some(Arc::clone(&in_flight));
        in_flight
    }

    /// Whether to request another lease before the current one is used up.
    pub(super) fn needs_lease(&self, now: Timestamp) -> bool {
        let reserve = self.size.reserve();
        let is_refused = self.refusal.is_some_and(|refusal| now < refusal.retry_at);
        reserve > 0
            && self.next.is_none()
            && self.in_flight.is_none()
            && !self.is_queued
            && !is_refused
            && self.remaining(now) <= reserve
    }

    /// Refunds a charge that another limit denied, if possible. Returns the refunded units.
    pub(super) fn refund(&mut self, now: Timestamp, mark: u64, cost: u64) -> u64 {
        let Some(lease) = self.current.as_mut() else {
            return 0;
        };
        if mark != self.mark || !lease.is_active(now) {
            return 0;
        }
        let reported = lease.reported();
        lease.refund(cost, reported)
    }

    /// Charges units that were spent in excess: to the current lease, or to the next one.
    pub(super) fn add_debt(&mut self, now: Timestamp, more: u64) {
        self.debt = self.debt.saturating_add(more).min(self.bucket.limit());
        self.pay_debt(now);
    }

    fn pay_debt(&mut self, now: Timestamp) {
        if let Some(lease) = self.current.as_mut().filter(|_| self.debt > 0) {
            let units = self.debt.min(lease.remaining());
            if lease.spend(now, units) {
                self.debt = self.debt.saturating_sub(units);
            }
        }
    }

    /// A request waits for the one in flight.
    pub(super) const fn add_waiting(&mut self, cost: u64) {
        self.waiting_units = self.waiting_units.saturating_add(cost);
    }

    /// Plans a request for a lease: for a request of `cost` units or, without one, ahead of demand.
    pub(super) fn plan_borrow(
        &mut self,
        options: &LeaseOptions,
        nodes: NonZeroU32,
        now: Timestamp,
        (cost, id): (Option<u64>, QuotaLeaseId),
        marks: impl Fn() -> u64,
    ) -> PlannedRequest {
        let need = cost.unwrap_or(1).saturating_add(self.waiting_units);
        self.waiting_units = 0;
        self.size.cap(fair_share(&self.bucket, nodes));
        if cost.is_some() {
            // Too little is left. It is returned, so that the broker can include it in the new lease.
            self.end_all();
        }
        let least = cost.unwrap_or(1).max(1);
        let fair = fair_share(&self.bucket, nodes).max(least);
        let want = LeaseSpec {
            id,
            min_units: least,
            max_units: self
                .size
                .units_to_request(&self.bucket, nodes, need.min(fair)),
            duration: options.duration,
        };
        PlannedRequest {
            want: Some(want),
            ..self.plan_report(now, marks)
        }
    }

    /// Plans a request that only reports.
    pub(super) fn plan_report(
        &mut self,
        now: Timestamp,
        marks: impl Fn() -> u64,
    ) -> PlannedRequest {
        // Reported charges can no longer be refunded.
        self.mark = marks();
        self.last_report = now;
        let ended = self.ended.iter_mut().map(|lease| lease.report(now, true));
        let mut reports: Reports = ended.collect();
        for lease in self.current.iter_mut().chain(&mut self.next) {
            if lease.spent() > 0 {
                reports.push(lease.report(now, false));
            }
        }
        PlannedRequest {
            reports,
            want: None,
            sent: now,
        }
    }

    /// The broker has replied.
    pub(super) fn on_grant(
        &mut self,
        options: &LeaseOptions,
        planned: &PlannedRequest,
        grant: &LeaseGrant,
        marks: impl Fn() -> u64,
    ) {
        let is_reported = |lease: &LocalLease| {
            let mut reported = planned.reports.iter().filter(|report| report.is_last);
            reported.any(|report| report.id == lease.id())
        };
        self.ended.retain(|lease| !is_reported(lease));
        self.broker_status = Some((grant.status, planned.sent));
        let Some(want) = planned.want else { return };
        let (is_refused, wait) = (grant.units == 0, grant.retry_after);
        // If the broker granted nothing, or less than it was asked for, wait before asking again.
        let pause = wait.max(options.min_pause).min(options.max_pause);
        self.refusal = (is_refused || !wait.is_zero()).then(|| BrokerRefusal {
            cost: if is_refused { want.min_units } else { 1 },
            refused_until: planned.sent.after(wait),
            retry_at: planned.sent.after(pause),
        });
        if is_refused {
            return;
        }
        self.size.record_grant(planned.sent, grant.units);
        let margin = options.margin;
        let lease = LocalLease::new(want.id, grant.units, planned.sent, grant.duration, margin);
        if self.current.is_some_and(|lease| lease.remaining() > 0) {
            if let Some(other) = self.next.replace(lease) {
                self.end(other);
            }
        } else {
            self.mark = marks();
            if let Some(used_up) = self.current.replace(lease) {
                self.end(used_up);
            }
        }
        self.pay_debt(planned.sent);
    }

    /// The broker did not reply. A lease that it may have granted is returned unused.
    pub(super) fn on_failure(&mut self, planned: &PlannedRequest, may_have_lent: bool) {
        if let Some(want) = planned.want.filter(|_| may_have_lent) {
            let nothing = LocalLease::new(want.id, 0, planned.sent, Nanos::ZERO, Nanos::ZERO);
            self.end(nothing);
        }
    }

    /// Ends leases that are expired, or all of them if the key was not used for a while.
    pub(super) fn end_unused(&mut self, options: &LeaseOptions, now: Timestamp) {
        let is_idle = !self.is_in_use(options, now);
        for slot in [&mut self.current, &mut self.next] {
            if let Some(lease) = slot.take_if(|lease| is_idle || !lease.is_active(now)) {
                push_ended(&mut self.ended, lease);
            }
        }
        // Leases that the broker has written off need no report.
        let is_awaited = |lease: &LocalLease| {
            now < lease
                .expires_at()
                .after(options.margin.saturating_add(options.duration))
        };
        self.ended.retain(|lease| is_awaited(lease));
    }

    /// Whether unreported charges are due.
    pub(super) fn has_unreported(&self, options: &LeaseOptions, now: Timestamp) -> bool {
        let is_due = now.since(self.last_report) >= options.idle;
        let is_unreported = |lease: &LocalLease| lease.spent() > lease.reported();
        let has_charges =
            !self.ended.is_empty() || self.current.iter().chain(&self.next).any(is_unreported);
        is_due && has_charges
    }

    /// Whether the key was used recently.
    pub(super) fn is_in_use(&self, options: &LeaseOptions, now: Timestamp) -> bool {
        now.since(self.last_used) < options.idle
    }

    /// Whether the entry can be dropped without loss.
    pub(super) fn is_forgettable(&self, options: &LeaseOptions, now: Timestamp) -> bool {
        let is_refused = self.refusal.is_some_and(|refusal| now < refusal.retry_at);
        self.current.is_none()
            && self.next.is_none()
            && self.ended.is_empty()
            && self.in_flight.is_none()
            && self.debt == 0
            && !self.is_queued
            && !is_refused
            && !self.is_in_use(options, now)
    }

    /// Ends all leases.
    pub(super) fn end_all(&mut self) {
        for lease in [self.current.take(), self.next.take()]
            .into_iter()
            .flatten()
        {
            self.end(lease);
        }
    }

    pub(super) const fn clear_refusal(&mut self) {
        self.refusal = None;
    }

    pub(super) fn has_leases(&self) -> bool {
        self.current.is_some() || self.next.is_some() || !self.ended.is_empty()
    }

    fn end(&mut self, lease: LocalLease) {
        push_ended(&mut self.ended, lease);
    }
}

/// Keeps an ended lease until it is reported; drops the oldest if there are too many.
fn push_ended(ended: &mut ArrayVec<LocalLease, MAX_ENDED>, lease: LocalLease) {
    if ended.is_full() {
        ended.remove(0);
    }
    ended.push(lease);
}
