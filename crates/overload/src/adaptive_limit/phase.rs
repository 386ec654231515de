//! One phase of the search: the concurrency limit stays the same while throughput, latency and in-flight requests are measured.
//!
//! A phase first waits until the limit was in use for one latency, then measures for at least one latency: by Little's law a
//! window of one latency holds every request in flight once. So the wait ends when as many requests have ended as are in flight,
//! and one that started while the limit was in use. Demand that stays far below the limit is measured too, without an end of
//! the phase. Must not know: what follows from the measurement.

use tollgate_core::{Nanos, Timestamp};

/// A window ends after one latency if the mean latency is known to this part of itself.
const ENOUGH_PRECISION: f64 = 0.015;
/// A window that is not that precise ends after this many latencies.
const LONGEST_IN_LATENCIES: f64 = 4.0;
/// A window of fewer completions is no measurement.
const LEAST_COMPLETIONS: u32 = 16;

/// The part of the limit that must be in use, on average, or the phase says nothing about the limit.
const LEAST_USE: f64 = 0.9;
/// Traffic that uses at most this part of the limit is measured as it is.
const MOST_USE_BELOW: f64 = 0.5;
/// While the number of requests in flight changes by more than this part, latencies are not those of that number.
const MOST_CHANGE_BELOW: f64 = 0.1;

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

/// What a completion has ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum PhaseOutcome {
    /// The phase: the limit was in use all the time.
    InUse(Measurement),
    /// A window of traffic that stayed far below the limit. The phase goes on.
    BelowLimit(Measurement),
}

/// A phase that goes on.
#[derive(Debug)]
pub(super) struct Phase {
    window: Window,
    /// The windows of traffic far below the limit, until they have enough completions.
    below_limit: Window,
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
            below_limit: Window::new(now),
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

    /// Records that the limit turned a request away. From the first time on the limit is in use, most likely.
    pub(super) const fn record_blocked(&mut self, now: Timestamp) {
        if !self.is_settled && !self.window.was_blocked {
            self.window = Window::new(now);
        }
        self.window.was_blocked = true;
    }

    /// Records that a request started above the limit.
    pub(super) const fn record_exceeded(&mut self) {
        self.window.was_exceeded = true;
    }

    /// Records a completion. Returns what was measured if the phase is over, or a window of traffic far below the limit.
    pub(super) fn record_served(&mut self, now: Timestamp, latency: Nanos) -> Option<PhaseOutcome> {
        let window = &mut self.window;
        let last_latency = seconds(latency);
        window.add_latency(last_latency);
        let least = if self.is_settled {
            LEAST_COMPLETIONS
        } else {
            1
        };
        let elapsed = seconds(now.since(window.started));
        let latency = window.latency();
        if window.completions < least || elapsed <= 0.0 || elapsed < latency {
            return None;
        }
        if window.was_blocked && !self.is_settled && elapsed <= last_latency {
            // It started before the limit was in use.
            return None;
        }
        let in_flight = window.in_flight_seconds / elapsed;
        if f64::from(window.completions) < in_flight {
            // Only the shortest requests have ended since.
            return None;
        }
        let is_in_use = window.was_blocked && in_flight >= LEAST_USE * self.limit;
        if !self.is_settled || !is_in_use {
            self.is_settled = is_in_use;
            let window = std::mem::replace(&mut self.window, Window::new(now));
            return self
                .measure_below_limit(now, &window, in_flight)
                .map(PhaseOutcome::BelowLimit);
        }
        if window.is_too_noisy(elapsed) {
            return None;
        }
        Some(PhaseOutcome::InUse(window.measurement(elapsed)))
    }

    /// Adds a window of traffic far below the limit to those before it. Returns the measurement if they have enough completions.
    fn measure_below_limit(
        &mut self,
        now: Timestamp,
        window: &Window,
        in_flight: f64,
    ) -> Option<Measurement> {
        if window.was_blocked || in_flight > MOST_USE_BELOW * self.limit {
            self.below_limit = Window::new(now);
            return None;
        }
        let whole = &mut self.below_limit;
        whole.append(window);
        let elapsed = seconds(now.since(whole.started));
        if whole.completions < LEAST_COMPLETIONS || whole.is_too_noisy(elapsed) {
            return None;
        }
        let measured = whole.measurement(elapsed);
        self.below_limit = Window::new(now);
        let expected = measured.throughput * measured.latency;
        let change = (expected - measured.in_flight).abs();
        let is_steady = change <= MOST_CHANGE_BELOW * measured.in_flight;
        (is_steady && measured.in_flight > 0.0).then_some(measured)
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

    const fn add_latency(&mut self, latency: f64) {
        self.latency_seconds += latency;
        self.latency_squares += latency * latency;
        self.completions = self.completions.saturating_add(1);
    }

    /// Adds the window that follows this one.
    const fn append(&mut self, next: &Self) {
        self.in_flight_seconds += next.in_flight_seconds;
        self.latency_seconds += next.latency_seconds;
        self.latency_squares += next.latency_squares;
        self.completions = self.completions.saturating_add(next.completions);
    }

    /// The mean latency.
    fn latency(&self) -> f64 {
        self.latency_seconds / f64::from(self.completions.max(1))
    }

    /// Whether a longer window would say more.
    fn is_too_noisy(&self, elapsed: f64) -> bool {
        self.noise() > ENOUGH_PRECISION && elapsed < LONGEST_IN_LATENCIES * self.latency()
    }

    fn measurement(&self, elapsed: f64) -> Measurement {
        Measurement {
            in_flight: self.in_flight_seconds / elapsed,
            throughput: f64::from(self.completions) / elapsed,
            latency: self.latency(),
            noise: self.noise(),
            exceeds_limit: self.was_exceeded,
        }
    }

    /// The standard error of the mean latency, as a part of it.
    fn noise(&self) -> f64 {
        let completions = f64::from(self.completions.max(1));
        let mean = self.latency();
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
