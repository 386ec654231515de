//! Looks for a quota that was reduced and may have come back: when a series of probes begins, and what its end means.
//!
//! Must not know: how a reduced quota is recognised, what a series consists of, what follows when the quota is found.

use tollgate_core::{Nanos, Timestamp};

use super::probe_series::ProbeSeries;
use super::{FEW_ABOVE, HiddenQuota, MARGIN, nanos, seconds};
use crate::random::Random;

/// A client with fewer requests per second than this is a prober with a probability that is its rate divided by it. So all
/// clients together look about equally often, however many they are.
const PROBER_RATE: f64 = 8.0;
/// A prober of many clients waits longer by this factor, because there are several.
const PROBER_INTERVAL: f64 = 1.7;
/// The other clients look once in so many requests, and at least this many intervals apart.
pub(super) const REQUESTS_PER_SERIES: f64 = 30.0;
const INTERVALS_PER_SERIES: f64 = 3.0;
/// If so many series of a prober in a row add a second of the former rate before they are refused, its own share is back.
const FRUITFUL_SERIES: u32 = 4;
/// The spacing is even for so long, and then grows.
const EVEN_SEARCH: Nanos = Nanos::from_secs(60);
/// A quota that was reduced for this long does not come back soon.
const MAX_SEARCH: Nanos = Nanos::from_secs(900);
/// After the series of another client, the next of this one follows after this part of the interval: so they alternate.
const FOREIGN_SERIES_PART: f64 = 0.75;
/// One of many clients pauses for this many requests after a series: it leaves out a part of what the series has taken from the others.
const SLOW_SERIES_PAUSE_REQUESTS: f64 = 4.0;
/// A rate below this part of the former one is reduced.
const REDUCED_PART: f64 = 0.85;

/// A quota that was reduced, and the search for its return.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReducedQuota {
    /// The rate before the reduction.
    pub(super) former_rate: f64,
    pub(super) since: Timestamp,
    pub(super) probe_at: Timestamp,
    interval: Nanos,
    pub(super) series: Option<ProbeSeries>,
    /// Whether this client looks often, for itself and for others.
    pub(super) is_prober: bool,
    /// Whether no series has confirmed it yet.
    pub(super) is_suspicion: bool,
    fruitful_series: u32,
    /// What series of this client take before the server refuses one.
    pub(super) taken: Option<f64>,
}

impl ReducedQuota {
    /// Whether this client looks for all of many clients.
    pub(super) fn is_prober_of_many(&self) -> bool {
        self.is_prober && self.former_rate < FEW_ABOVE
    }

    /// The search without its present series, unless this rate ends it.
    pub(super) fn without_series(mut self, rate: f64) -> Option<Self> {
        self.series = None;
        (rate < self.former_rate * REDUCED_PART).then_some(self)
    }
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
        if !series.on_success() {
            return;
        }
        // The server admits more than the reduced quota: the former one is back, or was never reduced.
        if let Some(reduced) = self.reduced.take() {
            self.return_to_former_rate(reduced, !reduced.is_suspicion, now);
        }
    }

    /// Records that a series was refused. It tells how much was left beside the pace.
    pub(super) fn on_probe_refusal(
        &mut self,
        sent_at: Timestamp,
        now: Timestamp,
        random: &mut Random,
    ) {
        self.measure_reduced(sent_at);
        self.restart_count(sent_at, now);
        if let Some(mut reduced) = self.reduced
            && let Some(series) = reduced.series
            && reduced.is_prober_of_many()
        {
            reduced.taken = Some(series.taken(reduced.taken));
            let second = super::super::to_count(reduced.former_rate.ceil()).saturating_add(2);
            reduced.fruitful_series = if series.admitted() >= second {
                reduced.fruitful_series.saturating_add(1)
            } else {
                0
            };
            self.reduced = Some(reduced);
            if reduced.fruitful_series >= FRUITFUL_SERIES {
                reduced.fruitful_series = 0;
                self.reduced = None;
                self.return_to_former_rate(reduced, false, now);
                self.pause(now);
                return;
            }
        }
        self.plan_next_series(self.settings.probe_growth, now, random);
    }

    /// Adopts the rate that was left for this client since the last refusal, if it is measured.
    pub(super) fn measure_reduced(&mut self, sent_at: Timestamp) {
        if let Some(rate) = self.admissions.rate(sent_at, 30.0) {
            let rate = rate * (1.0 - MARGIN);
            self.target = rate.clamp(self.target * 0.8, self.target * 1.25);
            self.set_rate(self.target);
        }
    }

    /// Begins to look for the confirmed rate, if the target fell clearly below it.
    pub(super) fn search_former_rate(&mut self, now: Timestamp, random: &mut Random) {
        if let (Some(former_rate), None) = (self.confirmed_rate, &self.reduced)
            && self.target < former_rate * REDUCED_PART
        {
            let interval = self.settings.probe_interval;
            let mut reduced = ReducedQuota {
                former_rate,
                since: now,
                probe_at: now,
                interval,
                series: None,
                is_prober: random.fraction() < former_rate / PROBER_RATE,
                is_suspicion: false,
                fruitful_series: 0,
                taken: None,
            };
            reduced.probe_at = self.next_series_at(&reduced, now, random);
            self.reduced = Some(reduced);
        }
    }

    /// Moves the next series away from one of another client, which a refusal has just shown.
    pub(super) fn yield_to_foreign_series(&mut self, now: Timestamp) {
        if let Some(reduced) = &mut self.reduced {
            let interval = seconds(reduced.interval) * FOREIGN_SERIES_PART;
            reduced.probe_at = now.after(nanos(interval));
        }
    }

    pub(super) fn plan_next_series(&mut self, growth: f64, now: Timestamp, random: &mut Random) {
        if let Some(mut reduced) = self.reduced.take()
            && now.since(reduced.since) < MAX_SEARCH
        {
            reduced.series = None;
            reduced.is_suspicion = false;
            // A return that proved wrong always makes the client more careful.
            let is_wrong_return = growth > self.settings.probe_growth;
            if is_wrong_return || now.since(reduced.since) > EVEN_SEARCH {
                reduced.interval = nanos(seconds(reduced.interval) * growth);
            }
            reduced.probe_at = self.next_series_at(&reduced, now, random);
            self.reduced = Some(reduced);
        }
        if self.is_slow() {
            self.pause_for(SLOW_SERIES_PAUSE_REQUESTS, now);
        } else {
            self.pause(now);
        }
    }

    fn next_series_at(
        &self,
        reduced: &ReducedQuota,
        now: Timestamp,
        random: &mut Random,
    ) -> Timestamp {
        let interval = seconds(reduced.interval);
        let interval = match (reduced.is_prober, reduced.former_rate < FEW_ABOVE) {
            (true, false) => interval,
            (true, true) => interval * PROBER_INTERVAL,
            (false, _) => (interval * INTERVALS_PER_SERIES).max(REQUESTS_PER_SERIES / self.rate),
        };
        // Clients lose the same quota at the same time. They should not look for it at the same time.
        let spread = if self.is_slow() { 0.6 } else { 0.3 };
        let part = 1.0 + spread * (random.fraction() - 0.5);
        now.after(nanos(interval * part))
    }
}
