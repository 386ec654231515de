//! The adaptive concurrency limit: how many requests an upstream works on at a time without queueing them.
//!
//! The limit changes in small steps, and only while it is in use. Each step is a phase that measures throughput, latency and requests in flight once they
//! have settled. Two phases with different concurrency show on which side of the knee the upstream is ([`knee_search`]). There
//! is no window in which traffic is held back to measure an idle upstream. Must not know: who waits, what a request is.

mod knee_search;
mod phase;

use tollgate_core::Timestamp;

use knee_search::KneeSearch;
use phase::{Phase, PhaseOutcome};

/// The largest limit.
pub const MAX_LIMIT: u32 = 1 << 20;
/// The smallest limit. With less, nothing could be measured any more.
const MIN_LIMIT: u32 = 1;
/// The limit before anything was measured. It doubles while throughput grows with it.
const FIRST_LIMIT: u32 = 32;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The upstream did its work: the latency counts.
    Served,
    /// The request failed or was cancelled: neither its latency nor its end says what the upstream can do.
    Ignored,
}

/// The concurrency limit of one upstream.
///
/// ```
/// use tollgate_core::Timestamp;
/// use tollgate_overload::{AdaptiveLimit, Completion};
///
/// let started = Timestamp::from_secs(1);
/// let mut limit = AdaptiveLimit::new(started);
/// assert!(limit.try_start(started));
/// assert_eq!(limit.in_flight(), 1);
/// limit.finish(Timestamp::from_secs(2), started, Completion::Served);
/// assert_eq!(limit.in_flight(), 0);
/// ```
#[derive(Debug)]
pub struct AdaptiveLimit {
    limit: u32,
    in_flight: u32,
    phase: Phase,
    search: KneeSearch,
    /// The mean latency of the last phase, in seconds.
    latency: Option<f64>,
    /// The requests in a second of the last phases.
    throughput: Option<f64>,
}

impl AdaptiveLimit {
    /// A limit that has measured nothing yet.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self {
            limit: FIRST_LIMIT,
            in_flight: 0,
            phase: Phase::new(now, FIRST_LIMIT),
            search: KneeSearch::new(),
            latency: None,
            throughput: None,
        }
    }

    /// Starts a request if the limit has room for it.
    #[must_use = "a request that started must finish"]
    pub fn try_start(&mut self, now: Timestamp) -> bool {
        if self.in_flight >= self.limit {
            self.phase.record_blocked(now);
            return false;
        }
        self.start(now);
        true
    }

    /// Starts a request whatever the limit, for requests that are only observed.
    pub fn start(&mut self, now: Timestamp) {
        self.phase.advance(now, self.in_flight);
        if self.in_flight >= self.limit {
            self.phase.record_exceeded();
        }
        self.in_flight = self.in_flight.saturating_add(1);
    }

    /// Ends a request that started at `started`.
    pub fn finish(&mut self, now: Timestamp, started: Timestamp, completion: Completion) {
        self.phase.advance(now, self.in_flight);
        self.in_flight = self.in_flight.saturating_sub(1);
        if completion == Completion::Ignored {
            return;
        }
        let latency = now.since(started);
        let measured = match self.phase.record_served(now, latency) {
            None => return,
            Some(PhaseOutcome::BelowLimit(measured)) => {
                return self.search.observe_below_limit(measured);
            }
            Some(PhaseOutcome::InUse(measured)) => measured,
        };
        self.latency = Some(measured.latency);
        // Requests that hang make the rest look fast, so a measurement that the search rejects says nothing about throughput.
        if let Some(wanted) = self.search.next_limit(measured) {
            let throughput = measured.in_flight / measured.latency;
            self.throughput = Some(f64::midpoint(
                self.throughput.unwrap_or(throughput),
                throughput,
            ));
            self.limit = to_limit(wanted, self.limit);
        }
        self.phase = Phase::new(now, self.limit);
    }

    /// The most requests in flight.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// The limit, if it is what the upstream can do: throughput was seen to grow with the requests in flight up to it, and no further.
    /// `None` before, because the limit is then only the next one to try.
    #[must_use]
    pub const fn capacity(&self) -> Option<u32> {
        match self.search.is_knee_found() {
            true => Some(self.limit),
            false => None,
        }
    }

    /// Whether the last measurements agree about the limit. If not, it is still moving.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        self.search.is_settled()
    }

    /// The requests in flight.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The requests that were done in a second while the limit was in use. `None` before the capacity was found.
    #[must_use]
    pub fn throughput_per_second(&self) -> Option<f64> {
        self.capacity().and(self.throughput)
    }

    /// The mean latency that was measured last, in seconds. `None` before the first measurement.
    #[must_use]
    pub const fn latency_seconds(&self) -> Option<f64> {
        self.latency
    }
}

/// A limit in whole requests. It is never the limit before, because a step that rounds to nothing measures nothing.
///
/// A lower limit is rounded to the nearest: of 12 workers, 11 would idle one for no reason.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value is clamped to the range of limits before"
)]
fn to_limit(wanted: f64, before: u32) -> u32 {
    if !wanted.is_finite() {
        return before;
    }
    let (least, most) = (f64::from(MIN_LIMIT), f64::from(MAX_LIMIT));
    let rounded = if wanted >= f64::from(before) {
        wanted.ceil()
    } else {
        wanted.round().min(f64::from(before) - 1.0)
    };
    rounded.clamp(least, most) as u32
}

#[cfg(test)]
mod tests;
