//! Paces requests under a limit that the server reports: what remains, divided by the time until it resets, times this
//! client's share of the traffic.
//!
//! The share is measured: how much of what disappeared from the remaining quota this client has used. Must not know: header
//! fields, waiters, other limits.

use tollgate_core::{Nanos, Timestamp};
use tollgate_http::{LimitInfo, LimitUnit};
use tollgate_store::shared_quota::SharedLimit;

use super::{nanos, seconds};
use crate::shared_quota::limit_id;

/// A report is used for this long if it has no window of its own.
const FRESH: Nanos = Nanos::from_secs(60);
/// The longest reset that is believed.
const MAX_RESET: Nanos = Nanos::from_secs(600);
/// The share of a client that knows nothing yet. It doubles or halves quickly to what is measured.
const FIRST_SHARE: f64 = 0.25;
/// The longest window that is treated as a bucket.
const SHORT_WINDOW: Nanos = Nanos::from_secs(3);
/// The part of a new measurement in the share.
const SMOOTHING: f64 = 0.4;

/// A limit that the server reports.
#[derive(Clone, Debug)]
pub(crate) struct ReportedLimit {
    pub(crate) name: Option<Box<str>>,
    pub(crate) unit: LimitUnit,
    quota: Option<f64>,
    window: Option<Nanos>,
    /// What remains, less what this client has used since the report.
    remaining: f64,
    reset_at: Timestamp,
    reported_at: Timestamp,
    share: f64,
    measured_at: Timestamp,
    measured_remaining: f64,
    measured_reset_at: Timestamp,
    used: f64,
    /// Whether the quota refills all the time, and not at the end of a window.
    is_bucket: bool,
    next_at: Timestamp,
    /// By how much each unit of the last request moved `next_at`.
    seconds_per_unit: f64,
}

impl ReportedLimit {
    /// A limit of a first report. Reports without a remaining quota have nothing to pace by.
    pub(crate) fn new(info: &LimitInfo, now: Timestamp) -> Option<Self> {
        let remaining = super::from_count(info.remaining?);
        let reset_at = now.after(reset_after(info));
        Some(Self {
            name: info.name.clone(),
            unit: info.unit,
            quota: info.quota.map(super::from_count),
            window: info.window,
            remaining,
            reset_at,
            reported_at: now,
            share: FIRST_SHARE,
            measured_at: now,
            measured_remaining: remaining,
            measured_reset_at: reset_at,
            used: 0.0,
            // The end of a short window is never far: it makes no difference.
            is_bucket: info.window.is_some_and(|window| window <= SHORT_WINDOW),
            next_at: now,
            seconds_per_unit: 0.0,
        })
    }

    /// Whether a report is about this limit.
    pub(crate) fn is_same(&self, info: &LimitInfo) -> bool {
        self.name == info.name && self.unit == info.unit
    }

    /// Whether the last report still says something.
    pub(crate) fn is_fresh(&self, now: Timestamp) -> bool {
        let lifetime = self.window.unwrap_or(FRESH).max(FRESH).min(MAX_RESET);
        now < self.reported_at.after(lifetime)
    }

    /// The limit, to be shared with other processes.
    pub(crate) fn to_shared(&self, cost: u64) -> SharedLimit {
        SharedLimit {
            id: limit_id(self.name.as_deref(), self.unit),
            cost,
            quota: self.quota.map(super::to_whole),
            window: self.window.unwrap_or(Nanos::ZERO),
            report: None,
        }
    }

    /// When a request of this cost may be sent.
    pub(crate) fn ready_at(&self, cost: f64, now: Timestamp) -> Timestamp {
        if !self.is_fresh(now) || cost <= 0.0 || self.unit == LimitUnit::ConcurrentRequests {
            return Timestamp::EPOCH;
        }
        // A cost above the quota will never fit; the server has to say so itself.
        let needed = cost.min(self.quota.unwrap_or(cost));
        if self.remaining < needed && now < self.reset_at {
            return self.reset_at;
        }
        self.next_at
    }

    /// Records that a request of this cost is sent.
    pub(crate) fn on_send(&mut self, cost: f64, now: Timestamp) {
        if self.unit == LimitUnit::ConcurrentRequests {
            return;
        }
        let rate = self.rate(now);
        self.remaining = (self.remaining - cost).max(0.0);
        self.used += cost;
        self.seconds_per_unit = if rate > 0.0 { 1.0 / rate } else { 0.0 };
        let gap = nanos(cost * self.seconds_per_unit);
        self.next_at = self.next_at.max(now).after(gap.min(MAX_RESET));
    }

    /// Corrects the cost of a request: `difference` is what it used more than was recorded.
    pub(crate) fn on_settle(&mut self, difference: f64) {
        self.remaining = (self.remaining - difference).max(0.0);
        self.used = (self.used + difference).max(0.0);
        let shift = nanos(difference.abs() * self.seconds_per_unit);
        self.next_at = if difference > 0.0 {
            self.next_at.after(shift.min(MAX_RESET))
        } else {
            Timestamp::from_nanos(self.next_at.as_nanos().saturating_sub(shift.as_nanos()))
        };
    }

    /// Records a refusal that the report did not foresee.
    pub(crate) fn on_refusal(&mut self) {
        self.share = (self.share * 0.8).max(MIN_SHARE);
    }

    /// Records a new report.
    pub(crate) fn update(&mut self, info: &LimitInfo, now: Timestamp) {
        let Some(remaining) = info.remaining.map(super::from_count) else {
            return;
        };
        self.quota = info.quota.map(super::from_count).or(self.quota);
        self.window = info.window.or(self.window);
        self.reset_at = now.after(reset_after(info));
        self.reported_at = now;
        self.remaining = remaining;
        self.measure(remaining, now);
    }

    /// Units per second for this client.
    fn rate(&self, now: Timestamp) -> f64 {
        let left = seconds(self.reset_at.since(now)).max(1.0);
        let total = self.remaining.max(1.0) / left;
        let Some(sustained) = self.sustained() else {
            return self.share * total;
        };
        // A bucket gains this much even if nothing remains.
        let total = if self.is_bucket {
            total.max(sustained)
        } else {
            total
        };
        // Beyond twice the quota's own rate there is only a burst, which others want as well.
        let total = if self.share > 0.9 {
            total
        } else {
            total.min(sustained * 2.0)
        };
        self.share * total
    }

    /// Units per second that the quota admits in the long run, for all clients.
    fn sustained(&self) -> Option<f64> {
        let window = self.window.filter(|window| !window.is_zero())?;
        Some(self.quota? / seconds(window))
    }

    /// Measures this client's share of the traffic since the last measurement.
    fn measure(&mut self, remaining: f64, now: Timestamp) {
        let elapsed = now.since(self.measured_at);
        if elapsed < Nanos::from_secs(1) || (self.used < 1.0 && elapsed < Nanos::from_secs(5)) {
            return;
        }
        let moved = self
            .reset_at
            .since(self.measured_reset_at)
            .max(self.measured_reset_at.since(self.reset_at));
        // A window's end stays where it is until the next window; the reset of a bucket moves as it refills.
        let is_window = moved <= Nanos::from_millis(1_500) && elapsed > Nanos::from_secs(3);
        let is_next = self.window.is_some_and(|window| moved >= window);
        if self.window.is_some_and(|window| window > SHORT_WINDOW) && !is_next {
            self.is_bucket = !is_window && elapsed > Nanos::from_secs(3);
        }
        let refill = match (self.sustained(), self.quota) {
            // A full bucket gains nothing: what others could have used at most is what is missing now.
            (Some(sustained), Some(quota)) if !is_window => (sustained * seconds(elapsed))
                .min((quota - self.measured_remaining).max(0.0) + self.used),
            _ => 0.0,
        };
        let spent = self.measured_remaining - remaining + refill;
        let is_full = self.quota.is_some_and(|quota| remaining + 1.0 >= quota);
        if self.used > 0.0 && (spent > 0.0 || is_full) {
            let share = if is_full { 1.0 } else { self.used / spent };
            let share = share.clamp(MIN_SHARE, 1.0);
            self.share += (share - self.share) * SMOOTHING;
        }
        self.measured_at = now;
        self.measured_remaining = remaining;
        self.measured_reset_at = self.reset_at;
        self.used = 0.0;
    }
}

const MIN_SHARE: f64 = 0.000_1;

fn reset_after(info: &LimitInfo) -> Nanos {
    let reset = info
        .reset_after
        .or(info.window)
        .unwrap_or(Nanos::from_secs(1));
    reset.min(MAX_RESET)
}
