//! What a refusal changes.
//!
//! Must not know: why a request was sent, beyond its purpose.

use tollgate_core::Timestamp;

use super::held_refusal::CONFIRMED;
use super::{
    HOLD, HiddenQuota, MARGIN, Phase, Purpose, START_DOUBLINGS_PER_SECOND,
    START_GROWTH_PER_REQUEST, nanos, seconds,
};
use crate::random::Random;

/// After a refusal the server's bucket is empty. A pause of this many requests lets it gain a little. Slow clients pause less:
/// clients that were not refused take what a paused one leaves, and they are the ones that should slow down.
const PAUSE_REQUESTS: f64 = 3.0;
const SLOW_PAUSE_REQUESTS: f64 = 1.0;
/// The first refusal of all cuts to this part, or deeper if the rate was doubling: a burst that the server admitted hides how far it is above the quota.
const FIRST_CUT: f64 = 0.5;
/// So many seconds of growth are undone.
const UNDONE_SECONDS: f64 = 2.8;
/// By how much the rate may grow after the first cut before it is held.
const SEARCH_ROOM: f64 = 1.1;
const SLOW_SEARCH_ROOM: f64 = 1.05;
/// A measured rate of a slow client holds this part below what was measured.
const SLOW_MARGIN: f64 = 0.03;
/// A refusal of a rate that was held cuts it to this part for a moment. It is less than half, because the clients that were not refused keep their rates.
const DIP: f64 = 0.47;
/// For this many requests after a cut, further refusals change nothing; for more after a measurement. Slow clients wait for fewer,
/// because each takes them longer.
const SETTLE_REQUESTS: f64 = 8.0;
const SLOW_SETTLE_REQUESTS: f64 = 10.0;
const SLOW_DIP_SETTLE_REQUESTS: f64 = 6.0;
const MEASURED_SETTLE_REQUESTS: f64 = 25.0;
const SLOW_MEASURED_SETTLE_REQUESTS: f64 = 15.0;

impl HiddenQuota {
    /// Records that a request sent at `sent_at` was refused. Returns whether that says something new.
    pub(crate) fn on_refusal(
        &mut self,
        purpose: Purpose,
        sent_at: Timestamp,
        now: Timestamp,
        random: &mut Random,
    ) -> bool {
        self.admissions.on_refusal(now);
        // A series uses up what the server's bucket has gained, so that paced requests may be refused as well.
        if purpose == Purpose::Probe || self.series().is_some() {
            if self.series().is_some() {
                self.on_probe_refusal(sent_at, now, random);
            }
            return false;
        }
        let is_in_flight = sent_at < self.cut_at;
        if is_in_flight && !self.is_repeated_in_flight() {
            if self.admissions.is_after_refusal(sent_at) {
                self.admissions.restart(sent_at);
            }
            return false;
        }
        let mut is_new = true;
        if is_in_flight {
            self.assume_reduction(self.held_refusal_at, now, random);
        } else if self.doubt_return(sent_at, now, random) {
            return true;
        } else if self.admissions.is_closed(now) {
            self.restart_count(sent_at, now);
            return true;
        } else if self.has_excess() {
            self.set_rate(self.target);
        } else if self.phase == Phase::Hold && !self.is_slow() {
            is_new = self.on_held_refusal(sent_at, now, random);
        } else if self.phase == Phase::Test && !self.is_slow() {
            self.end_test(now);
        } else if now < self.settled_at && matches!(self.phase, Phase::Return { .. } | Phase::Hold)
        {
            self.target = self.target.min(self.rate * SEARCH_ROOM);
            // Otherwise the client would hold the reduced rate without a search, and forget the rate before it.
            self.search_former_rate(now, random);
        } else {
            self.cut(sent_at, now, random);
        }
        self.restart_count(sent_at, now);
        self.pause(now);
        is_new
    }

    fn cut(&mut self, sent_at: Timestamp, now: Timestamp, random: &mut Random) {
        let was_held = self.phase == Phase::Hold;
        match self.phase {
            Phase::Start => self.end_start(),
            Phase::Hold => {
                if now.since(self.held_since) > CONFIRMED && self.reduced.is_none() {
                    self.confirmed_rate = Some(self.target);
                }
                if let Some(rate) = self.admissions.rate(sent_at, 20.0) {
                    let rate = rate.min(self.target) * (1.0 - MARGIN);
                    self.target = rate.max(self.target * 0.8);
                }
                self.dip();
            }
            Phase::Test => {
                self.confirm_tested_rate();
                self.dip();
            }
            Phase::Return { .. } => self.measure(sent_at, now, random),
        }
        self.search_former_rate(now, random);
        let settle = match (self.phase == Phase::Hold, self.is_slow()) {
            (true, false) => MEASURED_SETTLE_REQUESTS,
            (true, true) => SLOW_MEASURED_SETTLE_REQUESTS,
            (false, false) => SETTLE_REQUESTS,
            (false, true) if was_held => SLOW_DIP_SETTLE_REQUESTS,
            (false, true) => SLOW_SETTLE_REQUESTS,
        };
        self.settled_at = now.after(nanos(settle / self.rate));
    }

    fn end_start(&mut self) {
        self.peak = self.rate;
        self.is_measured = false;
        self.confirmed_rate = None;
        self.reduced = None;
        // So long did the server's burst hide that the rate was above the quota.
        let growth = (START_GROWTH_PER_REQUEST * self.rate).min(START_DOUBLINGS_PER_SECOND);
        self.set_rate(self.rate * FIRST_CUT.min(1.0 / (1.0 + growth * UNDONE_SECONDS)));
        let room = if self.is_slow() {
            SLOW_SEARCH_ROOM
        } else {
            SEARCH_ROOM
        };
        self.target = self.peak.min(self.rate * room);
        self.phase = Phase::Return { is_known: false };
        self.returning = 0.0;
    }

    /// Halves the rate for a moment. If the quota is as before, nothing else follows; if it has shrunk, the next refusal measures it.
    fn dip(&mut self) {
        self.set_rate(self.target * DIP);
        self.phase = Phase::Return { is_known: true };
    }

    /// The second refusal of a return: what was admitted between the two is what is left for this client.
    fn measure(&mut self, sent_at: Timestamp, now: Timestamp, random: &mut Random) {
        let count = self.admissions.count();
        if let Some(rate) = self.admissions.rate(sent_at, 6.0) {
            self.is_measured = true;
            self.hold = nanos(seconds(HOLD) * (0.75 + 0.5 * random.fraction()));
            let margin = if self.is_slow() { SLOW_MARGIN } else { MARGIN };
            let margin = margin + 0.5 / (count + 3.0);
            self.hold_at(rate.min(self.rate) * (1.0 - margin), now);
        } else {
            // Too few to measure: the rule of succession estimates the part that is admitted.
            self.target = self.rate * (count + 1.0) / (count + 2.0);
            self.set_rate(self.target * 0.8);
            self.phase = Phase::Return { is_known: true };
        }
    }

    pub(super) const fn restart_count(&mut self, sent_at: Timestamp, now: Timestamp) {
        self.admissions.restart(sent_at);
        self.returning = 0.0;
        self.cut_at = now;
        self.grown_at = now;
    }

    pub(super) fn pause(&mut self, now: Timestamp) {
        let requests = if self.is_slow() {
            SLOW_PAUSE_REQUESTS
        } else {
            PAUSE_REQUESTS
        };
        self.pause_for(requests, now);
    }

    /// Leaves out this many requests.
    pub(super) fn pause_for(&mut self, requests: f64, now: Timestamp) {
        let pause = nanos(requests / self.rate);
        self.next_at = self.next_at.max(now).after(pause);
    }
}
