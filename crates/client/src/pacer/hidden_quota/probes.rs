//! Looks for a quota that was reduced and may have come back: a series of requests beyond the pace, until the server refuses one or admits more than the
//! reduced quota could have paid for.
//!
//! Must not know: how a reduced quota is recognised.

use tollgate_core::{Nanos, Timestamp};

use super::{HiddenQuota, MARGIN, Phase, SLOW_BELOW, nanos, seconds};
use crate::random::Random;

/// The seconds of the former rate that a series has to add without a refusal.
const SERIES_SECONDS: f64 = 0.7;
/// A refusal this soon after a series succeeded shows that it spent what the server had saved.
const DOUBT: Nanos = Nanos::from_secs(1);
/// A client that finds the quota first uses what the others have not found yet, up to this multiple of its own former rate. A
/// slow client uses more, because more clients have not found it.
const SUBSTITUTION: f64 = 1.4;
const SLOW_SUBSTITUTION: f64 = 3.0;
/// At most one request in so many begins a series.
const REQUESTS_PER_SERIES: f64 = 25.0;
/// A quota that was reduced for this long does not come back soon.
const MAX_SEARCH: Nanos = Nanos::from_secs(900);

/// A series of requests beyond the pace, one after another.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeSeries {
    left: u32,
    pub(super) is_outstanding: bool,
}

impl ProbeSeries {
    pub(super) fn new(former_rate: f64) -> Self {
        let needed = super::super::to_count((former_rate * SERIES_SECONDS).ceil());
        Self {
            left: needed.saturating_add(2),
            is_outstanding: false,
        }
    }
}

/// A quota that was reduced, and the search for its return.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReducedQuota {
    /// The rate before the reduction.
    pub(super) former_rate: f64,
    pub(super) since: Timestamp,
    pub(super) probe_at: Timestamp,
    pub(super) interval: Nanos,
    pub(super) series: Option<ProbeSeries>,
}

/// A return to the former rate that may prove wrong.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuotaReturn {
    at: Timestamp,
    /// The rate before it.
    rate: f64,
    reduced: ReducedQuota,
}

impl HiddenQuota {
    pub(super) fn series(&mut self) -> Option<&mut ProbeSeries> {
        self.reduced.as_mut()?.series.as_mut()
    }

    /// Records that a request of a series was admitted.
    pub(super) fn on_probe_success(&mut self, now: Timestamp) {
        let Some(series) = self.series() else {
            return;
        };
        series.is_outstanding = false;
        series.left = series.left.saturating_sub(1);
        if series.left > 0 {
            return;
        }
        // The server admits more than the reduced quota: the former one is back.
        if let Some(mut reduced) = self.reduced.take() {
            reduced.series = None;
            self.returned = Some(QuotaReturn {
                at: now,
                rate: self.target,
                reduced,
            });
            self.hold_at(reduced.former_rate, now);
            self.set_rate(self.target * self.substitution());
            self.cut_at = now;
        }
    }

    /// Records that a series was refused. It tells how much was left beside the pace.
    pub(super) fn on_probe_refusal(
        &mut self,
        sent_at: Timestamp,
        now: Timestamp,
        random: &mut Random,
    ) {
        if let Some(rate) = self.admissions.rate(sent_at, 30.0) {
            let rate = rate * (1.0 - MARGIN);
            self.target = rate.clamp(self.target * 0.8, self.target * 1.25);
            self.set_rate(self.target);
        }
        self.restart_count(sent_at, now);
        self.plan_next_series(self.settings.probe_growth, now, random);
    }

    /// Takes back a return to the former rate, if a refusal follows at once.
    pub(super) fn undo_return(
        &mut self,
        sent_at: Timestamp,
        now: Timestamp,
        random: &mut Random,
    ) -> bool {
        let Some(returned) = self.returned.take() else {
            return false;
        };
        if now.since(returned.at) >= DOUBT {
            return false;
        }
        let rate = self
            .admissions
            .rate(sent_at, 20.0)
            .map_or(returned.rate, |rate| {
                (rate * (1.0 - MARGIN)).clamp(returned.rate * 0.9, returned.rate * 1.5)
            });
        self.hold_at(rate, now);
        self.reduced = Some(returned.reduced);
        self.restart_count(sent_at, now);
        self.plan_next_series(self.settings.probe_growth * 1.1, now, random);
        true
    }

    /// Begins to look for the confirmed rate, if the target fell clearly below it.
    pub(super) fn search_former_rate(&mut self, now: Timestamp, random: &mut Random) {
        if let (Some(former_rate), None) = (self.confirmed_rate, &self.reduced)
            && self.target < former_rate * 0.85
        {
            let interval = self.settings.probe_interval;
            self.reduced = Some(ReducedQuota {
                former_rate,
                since: now,
                probe_at: self.next_series_at(interval, now, random),
                interval,
                series: None,
            });
        }
    }

    /// Leaves to the others what they find as well.
    pub(super) fn end_substitution(&mut self, now: Timestamp) {
        let Some(returned) = self.returned else {
            return;
        };
        // The others look as often as this client does.
        let interval = seconds(self.settings.probe_interval).max(REQUESTS_PER_SERIES / self.target);
        let part = seconds(now.since(returned.at)) / interval;
        if part >= 1.0 {
            self.returned = None;
            self.set_rate(self.target);
        } else if self.is_substituting() {
            self.set_rate(self.target * (1.0 + (self.substitution() - 1.0) * (1.0 - part)));
        }
    }

    /// The multiple of the former rate that a client uses which finds the quota first.
    fn substitution(&self) -> f64 {
        let most = SLOW_BELOW * SUBSTITUTION / self.target;
        most.clamp(SUBSTITUTION, SLOW_SUBSTITUTION)
    }

    pub(super) fn is_substituting(&self) -> bool {
        self.phase == Phase::Hold && self.rate > self.target * 1.001
    }

    fn plan_next_series(&mut self, growth: f64, now: Timestamp, random: &mut Random) {
        if let Some(mut reduced) = self.reduced.take()
            && now.since(reduced.since) < MAX_SEARCH
        {
            reduced.series = None;
            reduced.interval = nanos(seconds(reduced.interval) * growth);
            reduced.probe_at = self.next_series_at(reduced.interval, now, random);
            self.reduced = Some(reduced);
        }
        self.pause(now);
    }

    fn next_series_at(&self, interval: Nanos, now: Timestamp, random: &mut Random) -> Timestamp {
        let interval = seconds(interval).max(REQUESTS_PER_SERIES / self.rate);
        // Clients lose the same quota at the same time. They should not look for it at the same time.
        now.after(nanos(interval * (0.7 + 0.6 * random.fraction())))
    }
}
