//! Finds a quota that the server does not report, from its refusals, and paces requests just below it.
//!
//! The rate doubles every second until the first refusal. After that it behaves as CUBIC does: a refusal marks a ceiling; the
//! rate returns to just below it, holds there, and only then grows again. ADR 0071 says why. Must not know: header fields,
//! waiters.

use tollgate_core::{Nanos, Timestamp};

use super::seconds;
use crate::random::Random;

/// The rate holds at this part of the ceiling.
const PLATEAU: f64 = 0.98;
/// How the rate is cut by the first refusal after a quiet time, and by refusals that follow at once.
const CUTS: [f64; 4] = [0.95, 0.7, 0.6, 0.5];
/// The first refusal of all cuts deeper: a burst that the server admitted hides how far the rate is above the quota.
const FIRST_CUT: f64 = 0.45;
/// After a refusal the server's bucket is empty. A pause of so many requests lets it gain a little.
const PAUSE_REQUESTS: f64 = 4.0;
/// The time constant with which the rate returns to the plateau.
const RETURN_SECONDS: f64 = 6.0;
/// How fast the rate grows beyond a ceiling that was held for long enough.
const GROWTH_PER_SECOND: f64 = 0.000_5;
/// How long a plateau is held before the rate grows.
const HOLD: Nanos = Nanos::from_secs(300);
/// A rate this far above its ceiling shows that the ceiling is gone: growth doubles the rate again.
const CEILING_IS_GONE: f64 = 1.06;
/// A rate that was held for this long is worth looking for when the quota is reduced.
const CONFIRMED: Nanos = Nanos::from_secs(30);
/// A quota that was reduced for this long does not come back soon. A bound on time and not on probes: with frequent probes a bound on
/// their number ended the search within a minute.
const MAX_SEARCH: Nanos = Nanos::from_secs(600);
/// A refusal this soon after a probe succeeded shows that it succeeded by chance.
const PROBE_DOUBT: Nanos = Nanos::from_secs(5);
/// The seconds of the former rate that a probe has to add without a refusal.
const PROBE_SECONDS: f64 = 0.5;
const MIN_RATE: f64 = 0.01;
const MAX_RATE: f64 = 1_000_000.0;

/// How eagerly a client looks for quota that has come back, and how long it holds a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HiddenQuotaSettings {
    /// Requests per second before anything is known.
    pub(crate) initial_rate: f64,
    /// The first interval between probes after the quota was reduced.
    pub(crate) probe_interval: Nanos,
    /// By how much the interval grows with each probe that fails.
    pub(crate) probe_growth: f64,
}

/// Which requests a refusal is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A paced request.
    Paced,
    /// A request beyond the pace, to find out whether the quota has come back.
    Probe,
}

/// A series of requests beyond the pace, one after another.
#[derive(Clone, Copy, Debug)]
struct ProbeSeries {
    left: u32,
    is_outstanding: bool,
}

/// A quota that was reduced, and the search for its return.
#[derive(Clone, Copy, Debug)]
struct ReducedQuota {
    /// The rate before the reduction.
    former_rate: f64,
    since: Timestamp,
    probe_at: Timestamp,
    interval: Nanos,
    series: Option<ProbeSeries>,
}

/// A return to the former rate that may prove wrong.
#[derive(Clone, Copy, Debug)]
struct Return {
    at: Timestamp,
    rate: f64,
    ceiling: Option<f64>,
    reduced: ReducedQuota,
}

/// The estimate of a quota that is not reported, and the pace of requests under it.
#[derive(Clone, Debug)]
pub(crate) struct HiddenQuota {
    settings: HiddenQuotaSettings,
    /// Requests per second.
    rate: f64,
    /// When the next request may be sent.
    next_at: Timestamp,
    grown_at: Timestamp,
    /// The rate at which the server last refused. `None` before the first refusal.
    ceiling: Option<f64>,
    /// When the rate was last cut. Refusals of earlier requests say nothing new.
    cut_at: Timestamp,
    cuts_in_a_row: usize,
    /// The last rate that was held for long.
    confirmed_rate: Option<f64>,
    reduced: Option<ReducedQuota>,
    returned: Option<Return>,
}

impl HiddenQuota {
    pub(crate) fn new(settings: HiddenQuotaSettings, now: Timestamp) -> Self {
        Self {
            settings,
            rate: settings.initial_rate,
            next_at: now,
            grown_at: now,
            ceiling: None,
            cut_at: Timestamp::EPOCH,
            cuts_in_a_row: 0,
            confirmed_rate: None,
            reduced: None,
            returned: None,
        }
    }

    /// Requests per second.
    pub(crate) const fn rate(&self) -> f64 {
        self.rate
    }

    /// When the next request may be sent.
    pub(crate) fn ready_at(&self) -> Timestamp {
        match &self.reduced {
            None => self.next_at,
            Some(reduced) => match reduced.series {
                None => self.next_at.min(reduced.probe_at),
                Some(series) if series.is_outstanding => self.next_at,
                Some(_) => Timestamp::EPOCH,
            },
        }
    }

    /// Records that a request is sent at `now`. `is_limited` if requests wait, so that a higher rate would be used.
    pub(crate) fn on_send(&mut self, now: Timestamp, is_limited: bool) -> Purpose {
        self.grow(now, is_limited);
        if now < self.next_at
            && let Some(reduced) = &mut self.reduced
        {
            let needed = reduced.former_rate * PROBE_SECONDS;
            let left = super::to_count(needed.ceil()).saturating_add(2);
            let series = reduced.series.get_or_insert(ProbeSeries {
                left,
                is_outstanding: false,
            });
            series.is_outstanding = true;
            return Purpose::Probe;
        }
        // A timer that fires late may catch up a little, but an idle client saves nothing.
        let earliest = Timestamp::from_nanos(now.as_nanos().saturating_sub(20_000_000));
        let from = self.next_at.max(earliest);
        self.next_at = from.after(super::nanos(1.0 / self.rate));
        Purpose::Paced
    }

    /// Records that a request was not sent after all.
    pub(crate) fn on_cancel(&mut self, purpose: Purpose, now: Timestamp) {
        match (purpose, self.series()) {
            (Purpose::Probe, Some(series)) => series.is_outstanding = false,
            _ => {
                let back = super::nanos(1.0 / self.rate).as_nanos();
                let next_at = self.next_at.as_nanos().saturating_sub(back);
                self.next_at = Timestamp::from_nanos(next_at).max(now);
            }
        }
    }

    /// Records that a probe has no result.
    pub(crate) fn on_abandoned_probe(&mut self) {
        if let Some(series) = self.series() {
            series.is_outstanding = false;
        }
    }

    /// Records that a request was admitted.
    pub(crate) fn on_success(&mut self, purpose: Purpose, now: Timestamp) {
        let (Purpose::Probe, Some(series)) = (purpose, self.series()) else {
            return;
        };
        series.is_outstanding = false;
        series.left = series.left.saturating_sub(1);
        if series.left > 0 {
            return;
        }
        // The server admits more than it did: the former quota is back.
        if let Some(mut reduced) = self.reduced.take() {
            reduced.series = None;
            self.returned = Some(Return {
                at: now,
                rate: self.rate,
                ceiling: self.ceiling,
                reduced,
            });
            self.set_rate(reduced.former_rate * PLATEAU);
            self.ceiling = Some(reduced.former_rate);
            self.cut_at = now;
        }
    }

    /// Records that a request sent at `sent_at` was refused. Returns whether that changed the estimate.
    pub(crate) fn on_refusal(
        &mut self,
        purpose: Purpose,
        sent_at: Timestamp,
        now: Timestamp,
        random: &mut Random,
    ) -> bool {
        // A series uses up what the server's bucket has gained, so that paced requests may be refused as well.
        if purpose == Purpose::Probe || self.series().is_some() {
            if self.series().is_some() {
                self.end_probe(now, random);
            }
            return false;
        }
        if sent_at < self.cut_at {
            return false;
        }
        if let Some(returned) = self.returned.take()
            && now.since(returned.at) < PROBE_DOUBT
        {
            self.rate = returned.rate;
            self.ceiling = returned.ceiling;
            self.reduced = Some(returned.reduced);
            self.cut_at = now;
            self.grown_at = now;
            self.end_probe(now, random);
            return true;
        }
        if self.ceiling.is_none() {
            self.ceiling = Some(self.rate);
            self.set_rate(self.rate * FIRST_CUT);
        } else {
            self.cut(now, random);
        }
        self.cut_at = now;
        self.grown_at = now;
        self.pause(now);
        true
    }

    fn cut(&mut self, now: Timestamp, random: &mut Random) {
        // At a slow rate the next refusal takes longer to arrive, and still is the same event.
        let same_event = Nanos::from_secs(2).max(super::nanos(3.0 / self.rate));
        let held = now.since(self.cut_at);
        self.cuts_in_a_row = if held < same_event {
            self.cuts_in_a_row.saturating_add(1)
        } else {
            0
        };
        let last = CUTS.len() - 1;
        let cut = CUTS
            .get(self.cuts_in_a_row.min(last))
            .copied()
            .unwrap_or(0.5);
        if self.cuts_in_a_row == 0 {
            if held > CONFIRMED {
                self.confirmed_rate = Some(self.rate);
            }
            self.ceiling = Some(self.rate);
        } else {
            // The ceiling lies between this rate and the next.
            self.ceiling = Some(self.rate * (1.0 + cut) / 2.0);
            if let (Some(former_rate), None) = (self.confirmed_rate, &self.reduced) {
                let interval = self.settings.probe_interval;
                self.reduced = Some(ReducedQuota {
                    former_rate,
                    since: now,
                    probe_at: self.next_probe(interval, now, random),
                    interval,
                    series: None,
                });
            }
        }
        self.set_rate(self.rate * cut);
    }

    /// Ends a series of probes that was refused, and plans the next.
    fn end_probe(&mut self, now: Timestamp, random: &mut Random) {
        let Some(mut reduced) = self.reduced.take() else {
            return;
        };
        reduced.series = None;
        reduced.interval = super::nanos(seconds(reduced.interval) * self.settings.probe_growth);
        reduced.probe_at = self.next_probe(reduced.interval, now, random);
        if now.since(reduced.since) < MAX_SEARCH {
            self.reduced = Some(reduced);
        }
        self.pause(now);
    }

    fn next_probe(&self, interval: Nanos, now: Timestamp, random: &mut Random) -> Timestamp {
        // At most one request in ten is a probe.
        let interval = seconds(interval).max(10.0 / self.rate);
        let spread = 0.75 + 0.5 * random.fraction();
        now.after(super::nanos(interval * spread))
    }

    fn pause(&mut self, now: Timestamp) {
        let pause = super::nanos(PAUSE_REQUESTS / self.rate);
        self.next_at = self.next_at.max(now).after(pause);
    }

    fn series(&mut self) -> Option<&mut ProbeSeries> {
        self.reduced.as_mut()?.series.as_mut()
    }

    /// Grows the rate for the time since it last did. A rate that nobody uses up does not grow.
    fn grow(&mut self, now: Timestamp, is_limited: bool) {
        let elapsed = seconds(now.since(self.grown_at)).min(5.0);
        self.grown_at = self.grown_at.max(now);
        if !is_limited {
            return;
        }
        let Some(ceiling) = self.ceiling else {
            // Doubled every second, but slower where a request takes long: many clients may begin at the same time.
            return self.set_rate(self.rate * elapsed.exp2().min(1.15));
        };
        let plateau = ceiling * PLATEAU;
        if self.rate < plateau * 0.998 {
            let back = 1.0 - (-elapsed / RETURN_SECONDS).exp();
            self.set_rate(self.rate + (plateau - self.rate) * back);
        } else if self.rate > ceiling * CEILING_IS_GONE {
            self.set_rate(self.rate * (elapsed / 2.0).exp2());
        } else if now.since(self.cut_at) > HOLD {
            self.set_rate(self.rate * (1.0 + GROWTH_PER_SECOND * elapsed));
        }
    }

    fn set_rate(&mut self, rate: f64) {
        self.rate = rate.clamp(MIN_RATE, MAX_RATE);
    }
}
