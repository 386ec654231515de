//! Paces requests under a limit that the server reports and that other clients may use as well.
//!
//! A client measures its share of the traffic: its own use, as a part of what disappeared from the remaining quota.
//!
//! - A quota that refills all the time is a bucket. The client sends at its refill times the share. It corrects each gap so that
//!   a reserve remains.
//! - A quota that resets at the end of a window is spread over what is left of the window, times the share.
//!
//! ADR 0104 says why. Must not know: header fields, waiters, other limits.

use tollgate_core::{Nanos, Timestamp};
use tollgate_http::{LimitInfo, LimitUnit};
use tollgate_store::shared_quota::SharedLimit;

use super::{nanos, seconds};
use crate::shared_quota::limit_id;

/// A report is used for this long if it has no window of its own.
const FRESH: Nanos = Nanos::from_secs(60);
/// The longest reset that is believed.
const MAX_RESET: Nanos = Nanos::from_secs(600);
/// The longest window that is treated as a bucket, because its end is never far.
const SHORT_WINDOW: Nanos = Nanos::from_secs(3);
/// A client treats it as a window if this part of the quota comes back at once. It needs at least this share of the traffic:
/// clients with less see too little of the quota.
const WINDOW_JUMP: f64 = 0.4;
const WINDOW_SHARE: f64 = 0.1;
/// The part of its rate that is used.
const SHORT_WINDOW_RATE: f64 = 0.95;
/// A report is rounded to whole seconds, and measured a little later than the server made it: this part of the window later at most.
const ROUNDING_SECONDS: f64 = 1.0;
const ROUNDING_PART: f64 = 0.02;

/// The share of a client that knows nothing yet about a window.
const FIRST_SHARE: f64 = 0.25;
/// After its first report a client waits until the bucket has gained this multiple of what was used before, at most this many
/// seconds. Of many clients that begin at the same time, the last ones see the most use and wait the longest. So they return one
/// after another.
const FIRST_GAP: f64 = 2.0;
const MAX_FIRST_GAP_SECONDS: f64 = 2.0;
/// The weight of that first guess beside a measurement.
const FIRST_WEIGHT: f64 = 0.2;

/// The reserve that remains in a bucket, so that the server does not refuse requests that arrive together. It is this multiple of
/// the root of the quota, because the number of requests that arrive together varies by its root. It is at most this part of a
/// small quota.
const RESERVE_ROOTS: f64 = 3.0;
const MAX_RESERVE: f64 = 0.5;
/// The part of the difference from the reserve that the next gap makes up for. All clients do so once in a round of their
/// requests. A part of one or more would make the level swing.
const LEVEL_GAIN: f64 = 0.8;
/// A client sends this much faster than its share, divided by the root of the share. So small shares grow and large ones shrink
/// until they are equal. The second number is the most. A client is favoured less while the reserve is used.
const FAVOR: f64 = 0.025;
const MAX_FAVOR: f64 = 0.4;
/// A gap is at least this part of the one at the pace of the refill: beyond that there is only a burst, which others want as well.
const MIN_GAP: f64 = 0.5;
/// The same for a client with more than this share, which is practically alone.
const LONE_MIN_GAP: f64 = 0.1;
const LONE_SHARE: f64 = 0.9;
/// Such a client sends this much faster than it would have to, to use up a window at its end. It becomes slower with what remains, so
/// nearly all of a window is used in its first quarter, and the rest serves requests that come later. Nobody waits for an hour because the
/// quota is for an hour.
const LONE_HURRY: f64 = 10.0;

/// The share is measured when all clients have used this many units, or after this many seconds.
const MIN_SPENT: f64 = 6.0;
/// At the end of a window it is measured if all clients have used this many units: a small quota never has more in one window.
const MIN_SPENT_IN_WINDOW: f64 = 3.0;
const MAX_MEASURED_SECONDS: f64 = 5.0;
/// The weight of older measurements beside a new one.
const MEMORY: f64 = 0.35;
/// The same if the bucket is full after this many seconds: the other clients have stopped, so their use counts less.
const FULL_MEMORY: f64 = 0.2;
const FULL_SECONDS: f64 = 0.2;
/// Above this part of the quota a bucket may have been full meanwhile, and gained nothing.
const NEARLY_FULL: f64 = 0.8;
const MIN_SHARE: f64 = 0.000_1;

/// A limit that the server reports.
#[derive(Clone, Debug)]
pub(crate) struct ReportedLimit {
    pub(crate) name: Option<Box<str>>,
    pub(crate) unit: LimitUnit,
    quota: Option<f64>,
    window: Option<Nanos>,
    /// What remained in the last report.
    reported: f64,
    /// The same, less what this client has sent meanwhile.
    remaining: f64,
    /// What this client has sent and has no response to.
    in_flight: f64,
    reset_at: Timestamp,
    reported_at: Timestamp,
    /// Whether the quota refills all the time, and not at the end of a window.
    is_bucket: bool,
    /// When the last request was sent, and its cost.
    sent_at: Timestamp,
    cost: f64,
    next_at: Timestamp,
    measured_at: Timestamp,
    measured_remaining: f64,
    /// What this client has used since the last measurement.
    used: f64,
    /// The same when the last report arrived.
    used_before_report: f64,
    /// What this client and all clients have used, by all measurements. Old ones weigh less.
    own: f64,
    total: f64,
}

impl ReportedLimit {
    /// A limit of a first report. Reports without a remaining quota have nothing to pace by.
    pub(crate) fn new(info: &LimitInfo, now: Timestamp) -> Option<Self> {
        let reported = super::from_count(info.remaining?);
        let mut limit = Self {
            name: info.name.clone(),
            unit: info.unit,
            quota: info.quota.map(super::from_count),
            window: info.window,
            reported,
            remaining: reported,
            in_flight: 0.0,
            reset_at: now.after(reset_after(info)),
            reported_at: now,
            is_bucket: true,
            sent_at: now,
            cost: 1.0,
            next_at: now,
            measured_at: now,
            measured_remaining: reported,
            used: 0.0,
            used_before_report: 0.0,
            own: FIRST_WEIGHT,
            total: FIRST_WEIGHT / FIRST_SHARE,
        };
        limit.is_bucket = limit.resembles_bucket(info);
        if let Some((refill, quota)) = limit.bucket() {
            let gap = FIRST_GAP * (quota - reported).max(1.0);
            limit.total = FIRST_WEIGHT * gap.min(MAX_FIRST_GAP_SECONDS * refill).max(FIRST_GAP);
            limit.next_at = now.after(limit.gap());
        }
        Some(limit)
    }

    /// Whether a report is about this limit.
    pub(crate) fn is_same(&self, info: &LimitInfo) -> bool {
        self.name == info.name && self.unit == info.unit
    }

    /// Whether the last report still says something. A long gap is not cut short because the report that made it is old.
    pub(crate) fn is_fresh(&self, now: Timestamp) -> bool {
        now < self.next_at || !self.is_outdated(now)
    }

    /// Whether the last report is too old.
    pub(crate) fn is_outdated(&self, now: Timestamp) -> bool {
        let lifetime = self.window.unwrap_or(FRESH).max(FRESH).min(MAX_RESET);
        now >= self.reported_at.after(lifetime)
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
        if !self.is_pacing(cost, now) {
            return Timestamp::EPOCH;
        }
        // A cost above the quota will never fit; the server has to say so itself.
        let missing = cost.min(self.quota.unwrap_or(cost)) - self.remaining;
        if missing <= 0.0 || now >= self.reset_at {
            return self.next_at;
        }
        match self.bucket() {
            Some((refill, _)) => {
                let refilled_at = self.reported_at.after(nanos(missing / refill));
                self.next_at.max(refilled_at)
            }
            None => self.reset_at,
        }
    }

    /// Whether the limit paces requests of this cost.
    pub(crate) fn is_pacing(&self, cost: f64, now: Timestamp) -> bool {
        self.is_fresh(now) && cost > 0.0 && self.unit != LimitUnit::ConcurrentRequests
    }

    /// Whether a request of this cost may have been refused by this limit: the response says so, or says nothing about it.
    pub(crate) fn may_refuse(&self, cost: f64, now: Timestamp) -> bool {
        self.is_fresh(now) && (self.reported_at < now || self.reported < cost.max(1.0))
    }

    /// Whether a report of this moment leaves too little for a request of this cost.
    pub(crate) fn is_used_up(&self, cost: f64, now: Timestamp) -> bool {
        self.reported_at == now && self.reported < cost.max(1.0)
    }

    /// Records that a request of this cost is sent.
    pub(crate) fn on_send(&mut self, cost: f64, now: Timestamp) {
        if self.unit == LimitUnit::ConcurrentRequests || cost <= 0.0 {
            return;
        }
        self.remaining = (self.remaining - cost).max(0.0);
        self.in_flight += cost;
        self.sent_at = now;
        self.cost = cost;
        self.next_at = now.after(self.gap());
    }

    /// Records that a request of this cost has a response, or is given up. A refused one used nothing.
    pub(crate) fn on_finish(&mut self, cost: f64, is_refused: bool) {
        self.in_flight = (self.in_flight - cost).max(0.0);
        if !is_refused {
            self.used += cost;
        }
    }

    /// Corrects the cost of a request that is in flight: `difference` is what it used more than was recorded.
    pub(crate) fn on_settle(&mut self, difference: f64) {
        self.remaining = (self.remaining - difference).max(0.0);
        self.in_flight = (self.in_flight + difference).max(0.0);
        self.cost = (self.cost + difference).max(0.0);
        self.next_at = self.sent_at.after(self.gap());
    }

    /// Records a refusal. If the response did not report the limit, others have used it up since the last report.
    pub(crate) fn on_refusal(&mut self, now: Timestamp) {
        if self.reported_at < now {
            self.remaining = 0.0;
            self.next_at = self.sent_at.after(self.gap());
        }
    }

    /// Records a new report.
    pub(crate) fn update(&mut self, info: &LimitInfo, now: Timestamp) {
        let Some(reported) = info.remaining.map(super::from_count) else {
            return;
        };
        let quota = info.quota.map(super::from_count).or(self.quota);
        let window = info.window.or(self.window);
        // A bucket stays one, unless a report contradicts it.
        self.is_bucket |= quota != self.quota || window != self.window;
        self.quota = quota;
        self.window = window;
        self.is_bucket &= self.resembles_bucket(info);
        self.reset_at = now.after(reset_after(info));
        self.reported_at = now;
        let reported_before = std::mem::replace(&mut self.reported, reported);
        self.measure(reported_before, now);
        self.used_before_report = self.used;
        self.remaining = (reported - self.in_flight).max(0.0);
        self.next_at = self.sent_at.after(self.gap());
    }

    /// Whether the reset of a report is the time in which a bucket would gain what is missing.
    fn resembles_bucket(&self, info: &LimitInfo) -> bool {
        let (Some(rate), Some(quota), Some(window)) = (self.sustained(), self.quota, self.window)
        else {
            return false;
        };
        if window <= SHORT_WINDOW {
            return true;
        }
        let missing = quota - info.remaining.map_or(0.0, super::from_count);
        let difference = seconds(reset_after(info)) - missing / rate;
        difference.abs() <= ROUNDING_SECONDS + ROUNDING_PART * seconds(window)
    }

    /// This client's share of the traffic.
    fn share(&self) -> f64 {
        (self.own / self.total).clamp(MIN_SHARE, 1.0)
    }

    /// The gap after the last request.
    pub(crate) fn gap(&self) -> Nanos {
        let share = self.share();
        let gap = match self.bucket() {
            Some((refill, quota)) => self.bucket_gap(share, refill, quota),
            None => self.cost / self.window_rate(share),
        };
        nanos(gap).min(MAX_RESET)
    }

    /// The share, a little larger if it is small.
    fn favored(share: f64, part: f64) -> f64 {
        let favor = (FAVOR / share.sqrt()).min(MAX_FAVOR) * part;
        (share * (1.0 + favor)).min(1.0)
    }

    fn bucket_gap(&self, share: f64, refill: f64, quota: f64) -> f64 {
        let reserve = (RESERVE_ROOTS * quota.sqrt()).min(MAX_RESERVE * quota);
        let favored = Self::favored(share, (self.remaining / reserve).min(1.0));
        let paced = self.cost / (refill * favored);
        let correction = LEVEL_GAIN * (reserve - self.remaining) / refill;
        let least = if share > LONE_SHARE {
            LONE_MIN_GAP
        } else {
            MIN_GAP
        };
        (paced + correction).max(paced * least)
    }

    /// Units per second until the end of the window, for this client.
    fn window_rate(&self, share: f64) -> f64 {
        let left = seconds(self.reset_at.since(self.sent_at.max(self.reported_at))).max(1.0);
        let total = if self.reported < self.cost {
            // Nothing is sent before the reset, and after it there is the whole quota again.
            self.quota.unwrap_or(self.cost).max(self.cost)
                / self.window.map_or(left, seconds).max(left)
        } else {
            // One more, so that the last unit is used before the reset, not at it.
            (self.remaining.max(1.0 - share) + share) / left
        };
        let is_lone = share > LONE_SHARE;
        let Some(sustained) = self.sustained() else {
            return Self::favored(share, 1.0) * if is_lone { total * LONE_HURRY } else { total };
        };
        if self.window.is_some_and(|window| window <= SHORT_WINDOW) {
            // Its end is reported in whole seconds: nobody knows when it is.
            return share * total.max(SHORT_WINDOW_RATE * sustained);
        }
        // Beyond twice the quota's own rate there is only a burst, which others want as well.
        let rate = match is_lone {
            true => total * LONE_HURRY,
            false => total.min(sustained / MIN_GAP),
        };
        Self::favored(share, 1.0) * rate
    }

    /// The units per second that a bucket gains, and its quota.
    fn bucket(&self) -> Option<(f64, f64)> {
        self.sustained().zip(self.quota).filter(|_| self.is_bucket)
    }

    /// Units per second that the quota admits in the long run, for all clients.
    pub(crate) fn sustained(&self) -> Option<f64> {
        let window = self.window.filter(|window| !window.is_zero())?;
        Some(self.quota? / seconds(window)).filter(|rate| *rate > 0.0)
    }

    /// Measures what this client and all clients have used since the last measurement.
    fn measure(&mut self, reported_before: f64, now: Timestamp) {
        let elapsed = seconds(now.since(self.measured_at));
        let is_full = self.quota.is_some_and(|quota| self.reported + 1.0 >= quota);
        let spent = if is_full {
            self.used
        } else {
            self.measured_remaining - self.reported + self.gained(elapsed)
        };
        // A window has ended: nobody knows what was used between its last report and its end.
        let is_next_window = spent < 0.0;
        let jump = self.quota.map_or(0.0, |quota| WINDOW_JUMP * quota);
        self.is_bucket &= spent >= -jump || self.share() < WINDOW_SHARE;
        let is_long = spent >= MIN_SPENT
            || elapsed >= MAX_MEASURED_SECONDS
            || (is_full && elapsed >= FULL_SECONDS);
        if !is_next_window && (self.used <= 0.0 || !is_long) {
            return;
        }
        let spent_in_window = self.measured_remaining - reported_before;
        if !is_next_window {
            self.learn(self.used, spent, if is_full { FULL_MEMORY } else { MEMORY });
        } else if !self.is_bucket
            && self.used_before_report > 0.0
            && spent_in_window >= MIN_SPENT_IN_WINDOW
        {
            self.learn(self.used_before_report, spent_in_window, MEMORY);
        }
        self.measured_at = now;
        self.measured_remaining = self.reported;
        self.used = 0.0;
    }

    /// Records what this client and all clients have used. `memory` is the weight of older measurements.
    fn learn(&mut self, used: f64, spent: f64, memory: f64) {
        self.own = self.own * memory + used;
        self.total = self.total * memory + spent.max(used);
    }

    /// What a bucket has gained in this many seconds.
    fn gained(&self, elapsed: f64) -> f64 {
        let Some((refill, quota)) = self.bucket() else {
            return 0.0;
        };
        let gained = refill * elapsed;
        if self.reported.min(self.measured_remaining) > NEARLY_FULL * quota {
            // It may have been full: it gained what was missing and what this client has used, and others have used little.
            gained.min((quota - self.measured_remaining).max(0.0) + self.used)
        } else {
            gained
        }
    }
}

fn reset_after(info: &LimitInfo) -> Nanos {
    let reset = info
        .reset_after
        .or(info.window)
        .unwrap_or(Nanos::from_secs(1));
    reset.min(MAX_RESET)
}
