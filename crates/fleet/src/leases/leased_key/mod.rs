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
        ruled: IdentifiedLimit,
        bucket: TokenBucket,
        key: &[u8],
        place: Option<&[u8]>,
        mark: u64,
        now: Timestamp,
    ) -> Self {
        Self {
            limit: ruled,
            bucket,
            key: Arc::from(key),
            slot_key: place.map(Arc::from),
            current: None,
            next: None,
            ended: ArrayVec::new(),
            refusal: None,
            broker_status: None,
            size: LeaseSize::default(),
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
    pub(super) fn set_limit(&mut self, ruled: &IdentifiedLimit) {
        if let (true, Some(bucket)) = (self.limit != *ruled, leasable_bucket(&ruled.limit)) {
            self.limit = *ruled;
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
        let spends = |slice: &mut LocalLease| slice.spend(now, cost);
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
            Some(refused) if refused.covers(now, cost) => self.deny(now, &refused, cost),
            _ => LocalReply::Unknown,
        }
    }

    /// A request is in flight from now on.
    pub(super) fn begin_request(&mut self) -> Arc<InFlightRequest> {
        let flight = Arc::<InFlightRequest>::default();
        self.in_flight = Some(Arc::clone(&flight));
        flight
    }

    /// Whether to request another lease before the current one is used up.
    pub(super) fn needs_lease(&self, now: Timestamp) -> bool {
        let reserve = self.size.reserve();
        let is_refused = self.refusal.is_some_and(|refused| now < refused.retry_at);
        reserve > 0
            && self.next.is_none()
            && self.in_flight.is_none()
            && !self.is_queued
            && !is_refused
            && self.remaining(now) <= reserve
    }

    /// Refunds a charge that another limit denied, if possible. Returns the refunded units.
    pub(super) fn refund(&mut self, now: Timestamp, mark: u64, cost: u64) -> u64 {
        let Some(slice) = self.current.as_mut() else {
            return 0;
        };
        if mark != self.mark || !slice.is_active(now) {
            return 0;
        }
        let told = slice.reported();
        slice.refund(cost, told)
    }

    /// Charges units that were spent in excess: to the current lease, or to the next one.
    pub(super) fn add_debt(&mut self, now: Timestamp, more: u64) {
        self.debt = self.debt.saturating_add(more).min(self.bucket.limit());
        self.pay_debt(now);
    }

    fn pay_debt(&mut self, now: Timestamp) {
        if let Some(slice) = self.current.as_mut().filter(|_| self.debt > 0) {
            let part = self.debt.min(slice.remaining());
            if slice.spend(now, part) {
                self.debt = self.debt.saturating_sub(part);
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
        terms: &LeaseOptions,
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
            duration: terms.duration,
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
        let over = self.ended.iter_mut().map(|slice| slice.report(now, true));
        let mut reports: Reports = over.collect();
        for slice in self.current.iter_mut().chain(&mut self.next) {
            if slice.spent() > 0 {
                reports.push(slice.report(now, false));
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
        terms: &LeaseOptions,
        planned: &PlannedRequest,
        granted: &LeaseGrant,
        marks: impl Fn() -> u64,
    ) {
        let is_told = |slice: &LocalLease| {
            let mut told = planned.reports.iter().filter(|report| report.is_last);
            told.any(|report| report.id == slice.id())
        };
        self.ended.retain(|slice| !is_told(slice));
        self.broker_status = Some((granted.status, planned.sent));
        let Some(want) = planned.want else { return };
        let (is_refused, wait) = (granted.units == 0, granted.retry_after);
        // If the broker granted nothing, or less than it was asked for, wait before asking again.
        let pause = wait.max(terms.min_pause).min(terms.max_pause);
        self.refusal = (is_refused || !wait.is_zero()).then(|| BrokerRefusal {
            cost: if is_refused { want.min_units } else { 1 },
            refused_until: planned.sent.after(wait),
            retry_at: planned.sent.after(pause),
        });
        if is_refused {
            return;
        }
        self.size.record_grant(planned.sent, granted.units);
        let margin = terms.margin;
        let slice = LocalLease::new(
            want.id,
            granted.units,
            planned.sent,
            granted.duration,
            margin,
        );
        if self.current.is_some_and(|slice| slice.remaining() > 0) {
            if let Some(other) = self.next.replace(slice) {
                self.end(other);
            }
        } else {
            self.mark = marks();
            if let Some(used_up) = self.current.replace(slice) {
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
    pub(super) fn end_unused(&mut self, terms: &LeaseOptions, now: Timestamp) {
        let is_idle = !self.is_in_use(terms, now);
        for slot in [&mut self.current, &mut self.next] {
            if let Some(slice) = slot.take_if(|slice| is_idle || !slice.is_active(now)) {
                push_ended(&mut self.ended, slice);
            }
        }
        // Leases that the broker has written off need no report.
        let is_awaited = |slice: &LocalLease| {
            now < slice
                .expires_at()
                .after(terms.margin.saturating_add(terms.duration))
        };
        self.ended.retain(|slice| is_awaited(slice));
    }

    /// Whether unreported charges are due.
    pub(super) fn has_unreported(&self, terms: &LeaseOptions, now: Timestamp) -> bool {
        let is_due = now.since(self.last_report) >= terms.idle;
        let untold = |slice: &LocalLease| slice.spent() > slice.reported();
        let is_news = !self.ended.is_empty() || self.current.iter().chain(&self.next).any(untold);
        is_due && is_news
    }

    /// Whether the key was used recently.
    pub(super) fn is_in_use(&self, terms: &LeaseOptions, now: Timestamp) -> bool {
        now.since(self.last_used) < terms.idle
    }

    /// Whether the entry can be dropped without loss.
    pub(super) fn is_forgettable(&self, terms: &LeaseOptions, now: Timestamp) -> bool {
        let is_refused = self.refusal.is_some_and(|refused| now < refused.retry_at);
        self.current.is_none()
            && self.next.is_none()
            && self.ended.is_empty()
            && self.in_flight.is_none()
            && self.debt == 0
            && !self.is_queued
            && !is_refused
            && !self.is_in_use(terms, now)
    }

    /// Ends all leases.
    pub(super) fn end_all(&mut self) {
        for slice in [self.current.take(), self.next.take()]
            .into_iter()
            .flatten()
        {
            self.end(slice);
        }
    }

    pub(super) const fn clear_refusal(&mut self) {
        self.refusal = None;
    }

    pub(super) fn has_leases(&self) -> bool {
        self.current.is_some() || self.next.is_some() || !self.ended.is_empty()
    }

    fn end(&mut self, slice: LocalLease) {
        push_ended(&mut self.ended, slice);
    }
}

/// Keeps an ended lease until it is reported; drops the oldest if there are too many.
fn push_ended(over: &mut ArrayVec<LocalLease, MAX_ENDED>, slice: LocalLease) {
    if over.is_full() {
        over.remove(0);
    }
    over.push(slice);
}
