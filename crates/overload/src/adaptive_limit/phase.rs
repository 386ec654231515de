//! One phase of the search: the concurrency limit stays the same while throughput, latency and in-flight requests are measured.
//!
//! A phase first waits until the limit was in use for one latency, then measures for at least one latency: by Little's law a
//! window of one latency holds every request in flight once. While demand stays below the limit, it keeps waiting. Must not
//! know: what follows from the measurement.

use tollgate_core::{Nanos, Timestamp};

/// A window ends after one latency if the mean latency is known to this part of itself.
const ENOUGH_PRECISION: f64 = 0.015;
/// A window that is not that precise ends after this many latencies.
const LONGEST_IN_LATENCIES: f64 = 4.0;
/// A window of fewer completions is no measurement.
const LEAST_COMPLETIONS: u32 = 16;

/// The part of the limit that must be in use, on average, or the phase says nothing about the limit.
const LEAST_USE: f64 = 0.9;

const NANOS_PER_SECOND: f64 = 1e9;

/// What a phase has measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measurement {
    /// The time average of the requests in flight.
    pub(super) in_flight: f64,
    /// Completions per second.
    pub(super) throughput: f64,
    /// The mean latency in seconds.
    pub(super) latency: f64,
    /// The standard error of the latency, as a part of it.
    pub(super) noise: f64,
    /// Whether requests started above the limit: it is only observed, and traffic does not follow it.
    pub(super) exceeds_limit: bool,
}

/// A phase that goes on.
#[derive(Debug)]
pub(super) struct Phase {
    window: Window,
    limit: f64,
    is_settled: bool,
}

#[derive(Debug)]
struct Window {
    started: Timestamp,
    last_change: Timestamp,
    /// The integral of the requests in flight over time, in request-seconds.
    in_flight_seconds: f64,
    latency_seconds: f64,
    latency_squares: f64,
    completions: u32,
    was_blocked: bool,
    was_exceeded: bool,
}

impl Phase {
    pub(super) fn new(now: Timestamp, limit: u32) -> Self {
        Self {
            window: Window::new(now),
            limit: f64::from(limit),
            is_settled: false,
        }
    }

    /// Accounts for the time until `now` with the requests in flight so far. Call it before their number changes.
    pub(super) fn advance(&mut self, now: Timestamp, in_flight: u32) {
        let window = &mut self.window;
        window.in_flight_seconds += seconds(now.since(window.last_change)) * f64::from(in_flight);
        if now > window.last_change {
            window.last_change = now;
        }
    }

    /// Records that the limit turned a request away.
    pub(super) const fn record_blocked(&mut self) {
        self.window.was_blocked = true;
    }

    /// Records that a request started above the limit.
    pub(super) const fn record_exceeded(&mut self) {
        self.window.was_exceeded = true;
    }

    /// Records a completion. Returns the measurement if the phase is over and the limit was in use all the time.
    pub(super) fn record_served(&mut self, now: Timestamp, latency: Nanos) -> Option<Measurement> {
        let window = &mut self.window;
        let latency = seconds(latency);
        window.latency_seconds += latency;
        window.latency_squares += latency * latency;
        window.completions = window.completions.saturating_add(1);
        let least = if self.is_settled {
            LEAST_COMPLETIONS
        } else {
            1
        };
        let elapsed = seconds(now.since(window.started));
        let completions = f64::from(window.completions);
        let latency = window.latency_seconds / completions;
        if window.completions < least || elapsed <= 0.0 || elapsed < latency {
            return None;
        }
        let in_flight = window.in_flight_seconds / elapsed;
        let is_in_use = window.was_blocked && in_flight >= LEAST_USE * self.limit;
        if !self.is_settled || !is_in_use {
            self.is_settled = is_in_use;
            self.window = Window::new(now);
            return None;
        }
        let noise = window.noise();
        if noise > ENOUGH_PRECISION && elapsed < LONGEST_IN_LATENCIES * latency {
            return None;
        }
        Some(Measurement {
            in_flight,
            throughput: completions / elapsed,
            latency,
            noise,
            exceeds_limit: window.was_exceeded,
        })
    }
}

impl Window {
    const fn new(now: Timestamp) -> Self {
        Self {
            started: now,
            last_change: now,
            in_flight_seconds: 0.0,
            latency_seconds: 0.0,
            latency_squares: 0.0,
            completions: 0,
            was_blocked: false,
            was_exceeded: false,
        }
    }

    /// The standard error of the mean latency, as a part of it.
    fn noise(&self) -> f64 {
        let completions = f64::from(self.completions.max(1));
        let mean = self.latency_seconds / completions;
        let variance = (self.latency_squares / completions - mean * mean).max(0.0);
        (variance / completions).sqrt() / mean.max(f64::MIN_POSITIVE)
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a latency needs no 53 bits of nanoseconds"
)]
fn seconds(span: Nanos) -> f64 {
    span.as_nanos() as f64 / NANOS_PER_SECOND
}
