//! One partition of a server: its limits, its queue, and whether it is blocked.
//!
//! Must not know: other partitions, futures.

use std::collections::VecDeque;

use tollgate_core::{Nanos, Timestamp};
use tollgate_http::{LimitUnit, RateLimitInfo, RefusalReason};
use tollgate_store::shared_quota::SharedLimit;

use super::hidden_quota::{HiddenQuota, HiddenQuotaSettings, Purpose};
use super::partition_table::BucketId;
use super::reported_limit::ReportedLimit;
use super::{Grant, NEVER, PartitionStatus, WaiterId, from_count, nanos, seconds};
use crate::random::Random;
use crate::request::{Priority, RequestCost};
use crate::retry::{ServerRefusal, backoff};

/// The most limits of one partition.
const MAX_LIMITS: usize = 8;

/// One partition of a server.
#[derive(Debug)]
pub(super) struct Bucket {
    name: Box<str>,
    hidden: HiddenQuota,
    limits: Vec<ReportedLimit>,
    queues: [VecDeque<WaiterId>; Priority::COUNT],
    /// Entries of the queues whose waiters are gone.
    removed: usize,
    pub(super) blocked_until: Timestamp,
    pub(super) in_flight: u32,
    /// Failures and refusals since the last success.
    pub(super) failures: u32,
    /// The first refusal since the last success whose response reported no limit that explains it.
    unexplained_at: Option<Timestamp>,
    /// Whether the server was unavailable, so that one request has to succeed before others follow.
    is_half_open: bool,
    pub(super) last_used: Timestamp,
}

impl Bucket {
    pub(super) fn new(name: &str, settings: HiddenQuotaSettings, now: Timestamp) -> Self {
        Self {
            name: name.into(),
            hidden: HiddenQuota::new(settings, now),
            limits: Vec::new(),
            queues: Default::default(),
            removed: 0,
            blocked_until: Timestamp::EPOCH,
            in_flight: 0,
            failures: 0,
            unexplained_at: None,
            is_half_open: false,
            last_used: now,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether nothing depends on it, so that it can be evicted.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.front().is_none()
    }

    /// When a request of this cost may be sent.
    pub(super) fn ready_at(&self, cost: &RequestCost, now: Timestamp) -> Timestamp {
        if self.is_half_open && self.in_flight > 0 {
            return NEVER;
        }
        let hidden = if self.is_paced_by_reports(cost, now) {
            Timestamp::EPOCH
        } else {
            self.hidden.ready_at()
        };
        let reported = self.reported_ready_at(cost, now);
        reported.max(self.blocked_until).max(hidden)
    }

    /// The same, or `now` if nobody knows when.
    pub(super) fn turn(&self, cost: &RequestCost, now: Timestamp) -> Timestamp {
        Some(self.ready_at(cost, now))
            .filter(|at| *at < NEVER)
            .unwrap_or(now)
    }

    /// Whether reports alone pace requests of this cost: there are some, and no refusal has contradicted them.
    fn is_paced_by_reports(&self, cost: &RequestCost, now: Timestamp) -> bool {
        let mut limits = self.limits.iter();
        self.hidden.is_start() && limits.any(|limit| limit.is_pacing(cost.of(limit.unit), now))
    }

    fn reported_ready_at(&self, cost: &RequestCost, now: Timestamp) -> Timestamp {
        let limits = self.limits.iter();
        let times = limits.map(|limit| limit.ready_at(cost.of(limit.unit), now));
        times.max().unwrap_or(Timestamp::EPOCH)
    }

    /// The wait of a request that is queued now, as far as is known.
    pub(super) fn expected_wait(&self, cost: &RequestCost, now: Timestamp) -> Nanos {
        let ready_at = self.ready_at(cost, now);
        let first = if ready_at == NEVER { now } else { ready_at };
        let ahead: usize = self.queues.iter().map(VecDeque::len).sum();
        let ahead = from_count(u64::try_from(ahead).unwrap_or(u64::MAX));
        let rate = if self.is_paced_by_reports(cost, now) {
            let limits = self.limits.iter().filter(|limit| limit.is_fresh(now));
            let rates = limits.filter_map(|limit| {
                let cost = Some(cost.of(limit.unit)).filter(|cost| *cost > 0.0)?;
                Some(limit.sustained()? / cost)
            });
            rates.fold(f64::INFINITY, f64::min)
        } else {
            self.hidden.rate()
        };
        first.since(now).saturating_add(nanos(ahead / rate))
    }

    /// Records that a request is sent.
    pub(super) fn send(
        &mut self,
        id: BucketId,
        cost: RequestCost,
        now: Timestamp,
        waited: bool,
        random: &mut Random,
    ) -> Grant {
        // The rate of a hidden quota grows only if it is what the request waited for.
        let is_limited = (waited || self.front().is_some())
            && !self.is_paced_by_reports(&cost, now)
            && self.hidden.ready_at() >= self.reported_ready_at(&cost, now);
        let purpose = self.hidden.on_send(now, is_limited, random);
        for limit in &mut self.limits {
            limit.on_send(cost.of(limit.unit), now);
        }
        self.in_flight = self.in_flight.saturating_add(1);
        Grant {
            bucket: id,
            cost,
            sent_at: now,
            purpose,
        }
    }

    /// Takes back a request that was not sent.
    pub(super) fn release(&mut self, grant: &Grant, now: Timestamp) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.hidden.on_cancel(grant.purpose, now);
        for limit in &mut self.limits {
            limit.on_settle(-grant.cost.of(limit.unit));
        }
    }

    /// Takes back a request without a result.
    pub(super) fn abandon(&mut self, grant: &Grant) {
        self.finish(grant, false);
        if grant.purpose == Purpose::Probe {
            self.hidden.on_abandoned_probe();
        }
    }

    /// Records that a request is no longer in flight.
    pub(super) fn finish(&mut self, grant: &Grant, is_refused: bool) {
        self.in_flight = self.in_flight.saturating_sub(1);
        for limit in &mut self.limits {
            limit.on_finish(grant.cost.of(limit.unit), is_refused);
        }
    }

    /// Replaces the cost of a request by what it used.
    pub(super) fn settle(&mut self, charged: &RequestCost, actual: &RequestCost) {
        for limit in &mut self.limits {
            limit.on_settle(actual.of(limit.unit) - charged.of(limit.unit));
        }
    }

    /// Records the limits that a response reports.
    pub(super) fn report(&mut self, info: &RateLimitInfo, now: Timestamp) {
        for report in &info.limits {
            if let Some(limit) = self.limits.iter_mut().find(|limit| limit.is_same(report)) {
                limit.update(report, now);
            } else if let Some(limit) = ReportedLimit::new(report, now) {
                self.limits.retain(|limit| limit.is_fresh(now));
                if self.limits.len() < MAX_LIMITS {
                    self.limits.push(limit);
                }
            }
        }
        // The server no longer reports these. Requests alone must not keep them.
        self.limits.retain(|limit| !limit.is_outdated(now));
    }

    /// The limits that processes can share.
    pub(super) fn shared_limits(&self, cost: &RequestCost, now: Timestamp) -> Vec<SharedLimit> {
        let limits = self.limits.iter().filter(|limit| limit.is_fresh(now));
        let limits = limits.filter(|limit| limit.unit != LimitUnit::ConcurrentRequests);
        limits
            .map(|limit| limit.to_shared(cost.units(limit.unit)))
            .collect()
    }

    pub(super) fn on_success(&mut self, grant: &Grant, now: Timestamp) {
        self.failures = 0;
        self.unexplained_at = None;
        self.is_half_open = false;
        self.hidden.on_success(grant.purpose, grant.sent_at, now);
    }

    /// Records a refusal. Returns how long nothing may be sent.
    pub(super) fn on_refusal(
        &mut self,
        grant: &Grant,
        refusal: &ServerRefusal,
        now: Timestamp,
        random: &mut Random,
    ) -> Nanos {
        if refusal.reason == RefusalReason::Overloaded {
            self.failures = self.failures.saturating_add(1);
            self.is_half_open = true;
            let demanded = refusal.retry_after.unwrap_or(Nanos::ZERO);
            let spread = nanos(random.fraction() / self.hidden.rate());
            return backoff(self.failures, random).max(demanded.saturating_add(spread));
        }
        let may_explain = self.may_be_explained(grant, now);
        let mut reports = self
            .limits
            .iter_mut()
            .filter(|limit| may_explain && limit.may_refuse(grant.cost.of(limit.unit), now))
            .peekable();
        let is_reported = reports.peek().is_some();
        // Clients that are refused together come back one after another.
        let gap = if is_reported {
            let gaps = reports.map(|limit| {
                limit.on_refusal(now);
                seconds(limit.gap())
            });
            gaps.fold(0.0, f64::max)
        } else {
            1.0 / self.hidden.rate()
        };
        let spread = nanos(random.fraction() * gap);
        let demanded = refusal.retry_after.map(|wait| wait.saturating_add(spread));
        if is_reported {
            self.failures = self.failures.saturating_add(1);
            // The reset may have passed, by a wrong clock for example. Then nothing says when to come back.
            let is_said = refusal.retry_after.is_some_and(|wait| !wait.is_zero());
            return demanded
                .filter(|_| is_said)
                .unwrap_or_else(|| backoff(self.failures, random));
        }
        // A probe is expected to be refused: it says nothing about the pace.
        let is_new = self
            .hidden
            .on_refusal(grant.purpose, grant.sent_at, now, random);
        if is_new {
            self.failures = self.failures.saturating_add(1);
        }
        demanded.unwrap_or_else(|| {
            if is_new {
                backoff(self.failures, random)
            } else {
                Nanos::ZERO
            }
        })
    }

    /// Whether a refusal may be by a reported limit: the response says so, or others may have used it up since the last report. The second
    /// explains one moment only. If a request that was sent afterwards is refused too, something else refuses.
    fn may_be_explained(&mut self, grant: &Grant, now: Timestamp) -> bool {
        let mut limits = self.limits.iter();
        if limits.any(|limit| limit.is_used_up(grant.cost.of(limit.unit), now)) {
            return true;
        }
        grant.sent_at <= *self.unexplained_at.get_or_insert(now)
    }

    /// Records a refusal by a limit that is not this bucket's: all routes of the host share it, or other users do. It says nothing about the pace here.
    /// Returns how long nothing may be sent.
    pub(super) fn on_foreign_refusal(
        &mut self,
        grant: &Grant,
        refusal: &ServerRefusal,
        random: &mut Random,
    ) -> Nanos {
        if grant.purpose == Purpose::Probe {
            self.hidden.on_abandoned_probe();
        }
        self.failures = self.failures.saturating_add(1);
        let spread = nanos(random.fraction() / self.hidden.rate());
        let demanded = refusal.retry_after.map(|wait| wait.saturating_add(spread));
        demanded.unwrap_or_else(|| backoff(self.failures, random))
    }

    /// Sends nothing before this time.
    pub(super) fn block(&mut self, until: Timestamp) {
        self.blocked_until = self.blocked_until.max(until);
    }

    /// Requires that one request succeeds before others follow.
    pub(super) const fn half_open(&mut self) {
        self.is_half_open = true;
    }

    pub(super) fn enqueue(&mut self, waiter: WaiterId, priority: Priority, is_retry: bool) {
        let Some(queue) = self.queues.get_mut(priority.index()) else {
            return;
        };
        // A retry has waited its turn before.
        if is_retry {
            queue.push_front(waiter);
        } else {
            queue.push_back(waiter);
        }
    }

    /// Whether a request of this priority would overtake a waiter.
    pub(super) fn has_waiter_before(&self, priority: Priority) -> bool {
        let queues = self.queues.iter().take(priority.index() + 1);
        queues.into_iter().any(|queue| !queue.is_empty())
    }

    /// The next waiter: the first of the highest priority.
    pub(super) fn front(&self) -> Option<WaiterId> {
        self.queues.iter().find_map(|queue| queue.front().copied())
    }

    pub(super) fn pop_front(&mut self) {
        if let Some(queue) = self.queues.iter_mut().find(|queue| !queue.is_empty()) {
            queue.pop_front();
        }
    }

    /// The waiters, in the order of their turns. Some may be gone.
    pub(super) fn waiters(&self) -> impl Iterator<Item = WaiterId> {
        self.queues.iter().flatten().copied()
    }

    /// Forgets waiters that are gone, once they are half of the queue.
    pub(super) fn on_waiter_removed(&mut self, exists: impl Fn(WaiterId) -> bool) {
        self.removed += 1;
        let queued: usize = self.queues.iter().map(VecDeque::len).sum();
        if self.removed * 2 > queued {
            self.removed = 0;
            for queue in &mut self.queues {
                queue.retain(|waiter| exists(*waiter));
            }
        }
    }

    pub(super) fn status(&self, now: Timestamp) -> PartitionStatus {
        PartitionStatus {
            name: self.name.to_string(),
            rate: self.hidden.rate(),
            blocked_until: (self.blocked_until > now).then_some(self.blocked_until),
            waiting: self.queues.iter().map(VecDeque::len).sum(),
            in_flight: self.in_flight,
        }
    }
}
