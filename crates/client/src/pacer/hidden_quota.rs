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
const CUTS: [f64; 4] = [0.96, 0.8, 0.65, 0.5];
/// The time constant with which the rate returns to the plateau.
const RETURN_SECONDS: f64 = 3.0;
/// How fast the rate grows beyond a ceiling that was held for long enough.
const GROWTH_PER_SECOND: f64 = 0.000_4;
/// A rate this far above its ceiling shows that the ceiling is gone: growth doubles the rate again.
const CEILING_IS_GONE: f64 = 1.06;
/// A ceiling this far below the best one is probed for its return.
const REDUCED: f64 = 0.8;
/// The best ceiling is forgotten after this time.
const MEMORY: Nanos = Nanos::from_secs(900);
const MIN_RATE: f64 = 0.01;
const MAX_RATE: f64 = 1_000_000.0;

/// How eagerly a client looks for quota that has come back, and how long it holds a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HiddenQuotaSettings {
    /// Requests per second before anything is known.
    pub(crate) initial_rate: f64,
    /// How long a plateau is held before the rate grows beyond the ceiling.
    pub(crate) hold: Nanos,
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
    best: f64,
    best_at: Timestamp,
    probe: Option<ProbeSeries>,
    probe_at: Timestamp,
    probe_interval: Nanos,
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
            best: 0.0,
            best_at: now,
            probe: None,
            probe_at: now,
            probe_interval: settings.probe_interval,
        }
    }

    /// Requests per second.
    pub(crate) const fn rate(&self) -> f64 {
        self.rate
    }

    /// When the next request may be sent.
    pub(crate) fn ready_at(&self) -> Timestamp {
        if self.is_reduced() && self.probe.is_none_or(|probe| !probe.is_outstanding) {
            let probe_at = if self.probe.is_some() {
                Timestamp::EPOCH
            } else {
                self.probe_at
            };
            return self.next_at.min(probe_at);
        }
        self.next_at
    }

    /// Records that a request is sent at `now`, for which there was a wait if `is_limited`.
    pub(crate) fn on_send(&mut self, now: Timestamp, is_limited: bool) -> Purpose {
        self.grow(now, is_limited);
        if now < self.next_at {
            if let Some(probe) = &mut self.probe {
                probe.is_outstanding = true;
            } else {
                // Enough to use up what the server's bucket has gained since the last probe at this rate.
                let gained = self.rate * seconds(self.probe_interval) * (1.0 - PLATEAU);
                let left = super::to_count(gained.ceil()).saturating_add(2);
                self.probe = Some(ProbeSeries {
                    left,
                    is_outstanding: true,
                });
            }
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
        match (purpose, &mut self.probe) {
            (Purpose::Probe, Some(probe)) => probe.is_outstanding = false,
            _ => {
                let back = super::nanos(1.0 / self.rate).as_nanos();
                let next_at = self.next_at.as_nanos().saturating_sub(back);
                self.next_at = Timestamp::from_nanos(next_at).max(now);
            }
        }
    }

    /// Records that a request was admitted.
    pub(crate) fn on_success(&mut self, purpose: Purpose, now: Timestamp) {
        let (Purpose::Probe, Some(probe)) = (purpose, &mut self.probe) else {
            return;
        };
        probe.is_outstanding = false;
        probe.left = probe.left.saturating_sub(1);
        if probe.left > 0 {
            return;
        }
        // The server admits more than it did: return to the best rate in steps, each confirmed by a probe.
        self.probe = None;
        self.probe_interval = self.settings.probe_interval;
        self.probe_at = now.after(Nanos::from_millis(100));
        self.rate = (self.rate * 1.6).min(self.best * PLATEAU);
        self.ceiling = Some((self.rate / PLATEAU).max(self.ceiling.unwrap_or(0.0)));
        self.cut_at = now;
    }

    /// Records that a request sent at `sent_at` was refused. Returns whether that changed the estimate.
    pub(crate) fn on_refusal(
        &mut self,
        purpose: Purpose,
        sent_at: Timestamp,
        now: Timestamp,
        random: &mut Random,
    ) -> bool {
        if purpose == Purpose::Probe || self.probe.is_some() {
            self.end_probe(now, random);
            return false;
        }
        if sent_at < self.cut_at {
            return false;
        }
        match self.ceiling {
            None => {
                self.ceiling = Some(self.rate);
                self.set_rate(self.rate * 0.5);
            }
            Some(_) => self.cut(now),
        }
        self.cut_at = now;
        self.grown_at = now;
        self.probe_interval = self.settings.probe_interval;
        self.schedule_probe(now, random);
        true
    }

    fn cut(&mut self, now: Timestamp) {
        // At a slow rate the next refusal takes longer to arrive, and still is the same event.
        let same_event = Nanos::from_secs(2).max(super::nanos(3.0 / self.rate));
        let is_same_event = now.since(self.cut_at) < same_event;
        self.cuts_in_a_row = if is_same_event {
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
            self.ceiling = Some(self.rate);
            if self.rate >= self.best || now.since(self.best_at) > MEMORY {
                self.best = self.rate;
                self.best_at = now;
            }
        } else {
            // The ceiling lies between this rate and the next.
            self.ceiling = Some(self.rate * (1.0 + cut) / 2.0);
        }
        self.set_rate(self.rate * cut);
    }

    fn end_probe(&mut self, now: Timestamp, random: &mut Random) {
        if self.probe.take().is_some() {
            let longer = seconds(self.probe_interval) * self.settings.probe_growth;
            self.probe_interval = super::nanos(longer);
            self.schedule_probe(now, random);
        }
    }

    fn schedule_probe(&mut self, now: Timestamp, random: &mut Random) {
        // At most one request in ten is a probe.
        let interval = seconds(self.probe_interval).max(10.0 / self.rate);
        let spread = 0.75 + 0.5 * random.fraction();
        self.probe_at = now.after(super::nanos(interval * spread));
    }

    fn is_reduced(&self) -> bool {
        self.ceiling
            .is_some_and(|ceiling| ceiling < self.best * REDUCED)
    }

    /// Grows the rate for the time since it last did. A rate that nobody uses up does not grow.
    fn grow(&mut self, now: Timestamp, is_limited: bool) {
        let elapsed = seconds(now.since(self.grown_at)).min(5.0);
        self.grown_at = self.grown_at.max(now);
        if !is_limited {
            return;
        }
        let Some(ceiling) = self.ceiling else {
            return self.set_rate(self.rate * elapsed.exp2());
        };
        let plateau = ceiling * PLATEAU;
        if self.rate < plateau {
            let back = 1.0 - (-elapsed / RETURN_SECONDS).exp();
            self.set_rate(self.rate + (plateau - self.rate) * back);
        } else if self.rate > ceiling * CEILING_IS_GONE {
            self.set_rate(self.rate * (elapsed / 2.0).exp2());
        } else if now.since(self.cut_at) > self.settings.hold {
            self.set_rate(self.rate * (1.0 + GROWTH_PER_SECOND * elapsed));
        }
    }

    fn set_rate(&mut self, rate: f64) {
        self.rate = rate.clamp(MIN_RATE, MAX_RATE);
    }
}
