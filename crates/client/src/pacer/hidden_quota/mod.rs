//! Finds a quota that the server does not report, from its refusals, and paces requests just below it.
//!
//! - `mod.rs`: the phases, and how the rate grows in each of them
//! - `refusal.rs`: what a refusal changes
//! - `held_refusal.rs`: whether a refusal of a rate that was held shows a smaller quota, or only another client
//! - `admission_counter.rs`: how many requests the server admitted since it last refused one
//! - `probes.rs`: the search for a quota that was reduced and may have come back
//! - `probe_series.rs`: one look of that search
//! - `quota_return.rs`: the return to the former rate when the search has found it
//!
//! ADRs 0093, 0108, 0111 and 0114 say why. Must not know: header fields, waiters.

mod admission_counter;
mod held_refusal;
mod probe_series;
mod probes;
mod quota_return;
mod refusal;
#[cfg(test)]
mod tests;

use tollgate_core::{Nanos, Timestamp};

use self::admission_counter::AdmissionCounter;
use self::probe_series::ProbeSeries;
use self::probes::ReducedQuota;
use self::quota_return::QuotaReturn;
use super::{nanos, seconds};
use crate::random::Random;

/// The rate holds this part below what was measured.
const MARGIN: f64 = 0.02;
/// Before the first refusal a client grows by this part with each request: many clients may begin at the same time, and one that is not refused
/// for a while must not outgrow the others. A fast client doubles every two seconds. A server's burst hides how far the rate is above the quota; if it
/// grew faster, more requests would be in flight when the burst ends, and all of them would be refused.
const START_GROWTH_PER_REQUEST: f64 = 0.035;
const START_DOUBLINGS_PER_SECOND: f64 = 0.5;
/// A client that a refusal has slowed down doubles its rate in about this many requests, or within a few seconds. A slow client
/// takes longer, because it is one of many clients that return.
const RETURN_REQUESTS: f64 = 20.0;
const SLOW_RETURN_REQUESTS: f64 = 30.0;
const RETURN_EXPONENT: f64 = 0.6;
/// The same for a client that looks for a quota that it has not measured.
const SEARCH_REQUESTS: f64 = 100.0;
const SEARCH_EXPONENT: f64 = 0.15;
/// How long a measured rate is held before it is tested. Slow clients hold it for so many requests.
const HOLD: Nanos = Nanos::from_secs(450);
const HOLD_REQUESTS: u32 = 2_000;
/// The same for a rate that was not measured.
const UNMEASURED_HOLD: Nanos = Nanos::from_secs(40);
const UNMEASURED_HOLD_REQUESTS: u32 = 800;
/// How fast the rate grows in a test.
const TEST_GROWTH_PER_SECOND: f64 = 0.005;
const TEST_GROWTH_PER_REQUEST: f64 = 0.000_2;
/// A test of a rate that was not measured has found the quota, but for this part.
const UNMEASURED_TEST_CUT: f64 = 0.93;
/// A test that added so many seconds of the rate without a refusal shows that the quota is larger.
const TEST_SECONDS: f64 = 20.0;
/// A client with fewer requests per second is probably one of many. Its gaps vary. With regular gaps many clients would keep
/// their order, and the server would always refuse the same ones.
const SLOW_BELOW: f64 = 5.0;
/// A client with more requests per second is probably one of a few.
const FEW_ABOVE: f64 = 15.0;
const MIN_RATE: f64 = 0.01;
const MAX_RATE: f64 = 1_000_000.0;

/// How eagerly a client looks for quota that has come back, and with which rate it begins.
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

/// What the rate does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It grows until the first refusal.
    Start,
    /// A refusal has cut it. It returns to the target, unless the server refuses again.
    Return {
        /// Whether the target was sustained before. If not, the client looks for the quota more slowly.
        is_known: bool,
    },
    /// It stays.
    Hold,
    /// It grows slowly, to find out whether there is more.
    Test,
}

/// The estimate of a quota that is not reported, and the pace of requests under it.
#[derive(Clone, Debug)]
pub(crate) struct HiddenQuota {
    settings: HiddenQuotaSettings,
    phase: Phase,
    /// Requests per second.
    rate: f64,
    /// The rate that the client returns to and holds.
    target: f64,
    /// The rate at which a start ended.
    peak: f64,
    /// When the next request may be sent.
    next_at: Timestamp,
    /// By how much the last request moved it.
    gap: Nanos,
    grown_at: Timestamp,
    /// When the rate was last cut. Refusals of earlier requests say nothing new.
    cut_at: Timestamp,
    /// Refusals before this time are about the rate of other clients, which have not been cut yet.
    settled_at: Timestamp,
    /// Requests since the return began.
    returning: f64,
    held_since: Timestamp,
    hold: Nanos,
    /// Requests since the last test.
    held: u32,
    /// Requests that a test has added.
    tested: f64,
    /// Whether the target is a count of admissions between two refusals.
    is_measured: bool,
    /// When a rate that was held was last refused.
    held_refusal_at: Timestamp,
    /// When the rate last began to grow beyond a former one.
    excess_at: Timestamp,
    admissions: AdmissionCounter,
    /// The last rate that was held for long.
    confirmed_rate: Option<f64>,
    reduced: Option<ReducedQuota>,
    returned: Option<QuotaReturn>,
}

impl HiddenQuota {
    pub(crate) fn new(settings: HiddenQuotaSettings, now: Timestamp) -> Self {
        Self {
            settings,
            phase: Phase::Start,
            rate: settings.initial_rate,
            target: MAX_RATE,
            peak: MAX_RATE,
            next_at: now,
            gap: Nanos::ZERO,
            grown_at: now,
            cut_at: Timestamp::EPOCH,
            settled_at: Timestamp::EPOCH,
            returning: 0.0,
            held_since: now,
            hold: HOLD,
            held: 0,
            tested: 0.0,
            is_measured: false,
            held_refusal_at: now,
            excess_at: now,
            admissions: AdmissionCounter::new(now),
            confirmed_rate: None,
            reduced: None,
            returned: None,
        }
    }

    /// Whether no refusal has shown a quota yet.
    pub(crate) fn is_start(&self) -> bool {
        self.phase == Phase::Start
    }

    /// Requests per second.
    pub(crate) const fn rate(&self) -> f64 {
        self.rate
    }

    /// Whether this client is probably one of many.
    fn is_slow(&self) -> bool {
        self.rate.min(self.target) < SLOW_BELOW
    }

    /// When the next request may be sent.
    pub(crate) fn ready_at(&self) -> Timestamp {
        match &self.reduced {
            None => self.next_at,
            Some(reduced) => match reduced.series {
                None => self.next_at.min(reduced.probe_at),
                Some(series) if series.is_ready() => Timestamp::EPOCH,
                Some(_) => self.next_at,
            },
        }
    }

    /// Records that a request is sent at `now`. `is_limited` if requests wait for this rate, so that a higher one would be used.
    pub(crate) fn on_send(
        &mut self,
        now: Timestamp,
        is_limited: bool,
        random: &mut Random,
    ) -> Purpose {
        if is_limited {
            self.grow(now);
        } else {
            self.admissions.interrupt(now);
        }
        self.grown_at = self.grown_at.max(now);
        if now < self.next_at
            && let Some(reduced) = &mut self.reduced
        {
            let new = ProbeSeries::new(reduced);
            reduced.series.get_or_insert(new).on_send();
            // A paced request beside the probe would be refused with it.
            self.next_at = self.next_at.max(now.after(nanos(0.5 / self.rate)));
            return Purpose::Probe;
        }
        // A timer that fires late may catch up a little, but an idle client saves nothing.
        let earliest = Timestamp::from_nanos(now.as_nanos().saturating_sub(20_000_000));
        let jitter = if self.is_slow() {
            random.fraction() - 0.5
        } else {
            0.0
        };
        self.gap = nanos((1.0 + jitter) / self.rate);
        self.next_at = self.next_at.max(earliest).after(self.gap);
        Purpose::Paced
    }

    /// Records that a request was not sent after all.
    pub(crate) fn on_cancel(&mut self, purpose: Purpose, now: Timestamp) {
        match (purpose, self.series()) {
            (Purpose::Probe, Some(series)) => series.on_abandon(),
            _ => {
                let next_at = self.next_at.as_nanos().saturating_sub(self.gap.as_nanos());
                self.next_at = Timestamp::from_nanos(next_at).max(now);
            }
        }
    }

    /// Records that a probe has no result.
    pub(crate) fn on_abandoned_probe(&mut self) {
        if let Some(series) = self.series() {
            series.on_abandon();
        }
    }

    /// Records that a request sent at `sent_at` was admitted.
    pub(crate) fn on_success(&mut self, purpose: Purpose, sent_at: Timestamp, now: Timestamp) {
        let is_after = self.admissions.is_after_refusal(sent_at);
        if self.phase == (Phase::Return { is_known: false }) && is_after && sent_at < self.cut_at {
            // Sent at the rate of the peak and admitted nevertheless: the quota is not so far below it.
            self.target = (self.target + 0.3 * self.rate).min(self.peak);
        }
        if let Some(rate) = self.admissions.on_success(sent_at, now) {
            // A window has ended in which nothing was admitted any more: the whole cycle tells the rate. It ends a search only if it is about
            // the former rate: a client with a low rate may be refused as often because of another one.
            self.reduced = self
                .reduced
                .take()
                .and_then(|reduced| reduced.without_series(rate));
            self.hold_at(rate * (1.0 - MARGIN), now);
        }
        if purpose == Purpose::Probe {
            self.on_probe_success(now);
        }
    }

    /// Grows the rate for the time since it last did. A rate that nobody uses up does not grow.
    fn grow(&mut self, now: Timestamp) {
        let elapsed = seconds(now.since(self.grown_at)).min(5.0);
        match self.phase {
            Phase::Start => {
                let doublings = self.start_doublings() * elapsed;
                self.set_rate(self.rate * doublings.exp2().min(1.3));
            }
            Phase::Return { .. } if now < self.settled_at => {}
            Phase::Return { is_known } => self.grow_back(is_known, now),
            Phase::Hold => self.grow_held(now),
            Phase::Test => {
                let growth = (TEST_GROWTH_PER_SECOND * elapsed).min(TEST_GROWTH_PER_REQUEST);
                self.set_rate(self.rate * (1.0 + growth));
                self.tested += 1.0 - self.target / self.rate;
                if self.tested > TEST_SECONDS * self.rate {
                    self.phase = Phase::Start;
                }
            }
        }
    }

    /// By how many doublings the rate grows in a second before the first refusal.
    fn start_doublings(&self) -> f64 {
        let doublings = START_GROWTH_PER_REQUEST / std::f64::consts::LN_2 * self.rate;
        doublings.min(START_DOUBLINGS_PER_SECOND)
    }

    fn grow_back(&mut self, is_known: bool, now: Timestamp) {
        let (requests, exponent, top) = if is_known {
            let requests = if self.is_slow() {
                SLOW_RETURN_REQUESTS
            } else {
                RETURN_REQUESTS
            };
            (requests, RETURN_EXPONENT, self.target)
        } else {
            (
                SEARCH_REQUESTS,
                SEARCH_EXPONENT,
                self.target * (1.0 - MARGIN),
            )
        };
        self.returning += 1.0;
        // Fast clients grow with time, slow ones with their requests.
        let growth = exponent / (self.returning + requests.max(self.rate));
        self.set_rate(self.rate * (1.0 + growth));
        if self.rate >= top {
            self.hold_at(top, now);
        }
    }

    fn grow_held(&mut self, now: Timestamp) {
        self.change_excess(now);
        self.held = self.held.saturating_add(1);
        let (hold, requests) = if self.is_measured {
            (self.hold, HOLD_REQUESTS)
        } else {
            (UNMEASURED_HOLD, UNMEASURED_HOLD_REQUESTS)
        };
        if now.since(self.held_since) > hold && self.held > requests && self.reduced.is_none() {
            self.phase = Phase::Test;
            self.held = 0;
            self.tested = 0.0;
        }
    }

    fn hold_at(&mut self, rate: f64, now: Timestamp) {
        self.target = rate;
        self.set_rate(rate);
        self.phase = Phase::Hold;
        self.held_since = now;
    }

    fn set_rate(&mut self, rate: f64) {
        self.rate = rate.clamp(MIN_RATE, MAX_RATE);
    }
}
