//! The return to the former rate after a series of probes found it: what the client uses beyond its own share until the other clients have found it too,
//! and when a refusal shows that it was not found.
//!
//! Must not know: how a series of probes ends.

use tollgate_core::{Nanos, Timestamp};

use super::probes::{REQUESTS_PER_SERIES, ReducedQuota};
use super::{FEW_ABOVE, HiddenQuota, MARGIN, Phase, SLOW_BELOW, nanos, seconds};
use crate::random::Random;

/// A refusal this soon after the return shows that the series spent what the server had saved.
const DOUBT: Nanos = Nanos::from_secs(1);
/// The same for a client that grows beyond its former rate.
const GROWTH_DOUBT: Nanos = Nanos::from_secs(3);
/// The first client that finds the quota uses this multiple of its former rate, because the other one has not found it yet. A client that grows
/// begins with at most the second.
const FIRST_MULTIPLE: f64 = 1.55;
const FIRST_SLOW_MULTIPLE: f64 = 3.0;
/// One of many clients grows until it is refused: by at most this factor with each request, and by doubling in this many seconds.
const GROWTH_PER_REQUEST: f64 = 1.6;
const DOUBLING_SECONDS: f64 = 0.25;
/// Growth takes the server's last tokens from others, which may then think that the quota was reduced, find it, and grow. So a client grows at
/// most once in this time, and not at first.
const GROWTH_INTERVAL: Nanos = Nanos::from_secs(200);
/// It grows to this multiple, and for so long.
const MOST_MULTIPLE: f64 = 30.0;
const MOST_GROWTH: Nanos = Nanos::from_secs(20);
/// A refusal before this says nothing about its growth: requests of the series are still in flight.
const LEAST_GROWTH: Nanos = Nanos::from_millis(300);
/// A refusal leaves this part of the excess. An excess above the second is reduced again by the next refusal; if a smaller one is
/// refused, there was nothing to find.
const EXCESS_LEFT: f64 = 0.3;
const LARGE_MULTIPLE: f64 = 6.0;
/// The excess ends within this part of the time in which each of the others looks once. One of many clients leaves it sooner, because most of it is the others'.
const YIELD_PART: f64 = 0.5;
const SLOW_YIELD_PART: f64 = 0.25;
/// One of many clients returns to this part of its former rate. All of them together had almost the whole quota, and they do not return at the same time. So the last
/// ones were refused at a rate that had been right.
const SLOW_RETURN_PART: f64 = 0.96;

/// A return to the former rate that may prove wrong.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuotaReturn {
    /// When the quota was found, or a refusal last reduced the excess.
    doubted_at: Timestamp,
    found_at: Timestamp,
    /// The rate before the return.
    rate: f64,
    reduced: ReducedQuota,
    /// The multiple of the former rate that is used now.
    multiple: f64,
    is_growing: bool,
    /// The multiple at which the client began to leave the excess to the others, and when.
    top: f64,
    yield_at: Timestamp,
    grown_at: Timestamp,
}

impl HiddenQuota {
    /// Returns to the former rate. `has_excess` if the other clients have probably not found the quota yet.
    pub(super) fn return_to_former_rate(
        &mut self,
        mut reduced: ReducedQuota,
        has_excess: bool,
        now: Timestamp,
    ) {
        reduced.series = None;
        let rate = self.target;
        let part = if reduced.former_rate < SLOW_BELOW {
            SLOW_RETURN_PART
        } else {
            1.0
        };
        self.hold_at(reduced.former_rate * part, now);
        let is_growing = has_excess
            && reduced.is_prober
            && self.target < FEW_ABOVE
            && now.since(self.excess_at) > GROWTH_INTERVAL;
        if is_growing {
            self.excess_at = now;
        }
        let multiple = if has_excess && (is_growing || self.target >= FEW_ABOVE) {
            let slow = SLOW_BELOW * FIRST_MULTIPLE / self.target;
            slow.clamp(FIRST_MULTIPLE, FIRST_SLOW_MULTIPLE)
        } else {
            1.0
        };
        self.returned = Some(QuotaReturn {
            doubted_at: now,
            found_at: now,
            rate,
            reduced,
            multiple,
            is_growing,
            top: multiple,
            yield_at: now,
            grown_at: now,
        });
        self.set_rate(self.target * multiple);
        self.cut_at = now;
    }

    /// Takes back a return if a refusal follows at once, or a part of the excess. Returns whether the refusal is explained by that.
    pub(super) fn doubt_return(
        &mut self,
        sent_at: Timestamp,
        now: Timestamp,
        random: &mut Random,
    ) -> bool {
        let Some(mut returned) = self.returned.take() else {
            return false;
        };
        let may_grow = returned.reduced.is_prober && self.target < FEW_ABOVE;
        let has_grown = returned.is_growing && now.since(returned.found_at) >= LEAST_GROWTH;
        if may_grow && (has_grown || returned.multiple > LARGE_MULTIPLE) {
            returned.is_growing = false;
            returned.multiple = 1.0 + (returned.multiple - 1.0) * EXCESS_LEFT;
            returned.top = returned.multiple;
            returned.doubted_at = now;
            returned.yield_at = now;
            self.set_rate(self.target * returned.multiple);
            self.returned = Some(returned);
            self.restart_count(sent_at, now);
            self.next_at = self.next_at.max(now).after(nanos(1.0 / self.rate));
            return true;
        }
        let doubt = if may_grow { GROWTH_DOUBT } else { DOUBT };
        if now.since(returned.doubted_at) >= doubt {
            return false;
        }
        let measured = self.admissions.rate(sent_at, 20.0);
        let rate = measured.map_or(returned.rate, |rate| {
            (rate * (1.0 - MARGIN)).clamp(returned.rate * 0.9, returned.rate * 1.5)
        });
        self.hold_at(rate, now);
        self.reduced = Some(returned.reduced);
        self.restart_count(sent_at, now);
        self.plan_next_series(self.settings.probe_growth * 1.1, now, random);
        true
    }

    /// Grows beyond the former rate, or leaves the excess to the others, which find the quota as well.
    pub(super) fn change_excess(&mut self, now: Timestamp) {
        let Some(mut returned) = self.returned else {
            return;
        };
        if returned.is_growing {
            let elapsed = seconds(now.since(returned.grown_at));
            let growth = (elapsed / DOUBLING_SECONDS).exp2().min(GROWTH_PER_REQUEST);
            returned.multiple *= growth;
            returned.top = returned.multiple;
            returned.yield_at = now;
            returned.is_growing =
                now.since(returned.found_at) <= MOST_GROWTH && returned.multiple <= MOST_MULTIPLE;
        } else {
            // The others look as often as this client does.
            let interval = seconds(self.settings.probe_interval);
            let interval = interval.max(REQUESTS_PER_SERIES / self.target);
            let yield_part = if self.target < SLOW_BELOW {
                SLOW_YIELD_PART
            } else {
                YIELD_PART
            };
            let part = seconds(now.since(returned.yield_at)) / (interval * yield_part);
            if part >= 1.0 {
                self.returned = None;
                self.set_rate(self.target);
                return;
            }
            returned.multiple = 1.0 + (returned.top - 1.0) * (1.0 - part);
        }
        returned.grown_at = now;
        self.set_rate(self.target * returned.multiple);
        self.returned = Some(returned);
    }

    /// Whether the client uses more than its former rate.
    pub(super) fn has_excess(&self) -> bool {
        self.phase == Phase::Hold && self.rate > self.target * 1.001
    }
}
