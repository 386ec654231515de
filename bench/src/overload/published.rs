//! Published concurrency limits, written from their formulas with the parameters that their authors chose.
//!
//! Netflix' concurrency-limits: Gradient2, AIMD and Vegas. Their upper bound of 200 or 1,000 is raised to a million, because a
//! server of this simulation has more workers. They reject above the limit, without a queue. Must not know: the server.

use tollgate_core::{Nanos, Timestamp};

use super::controller::{Controller, Release, SimulatedRequest};

const MOST: f64 = 1e6;
const FIRST_LIMIT: f64 = 20.0;

/// A rule for the next limit.
pub(super) trait LimitRule {
    fn limit(&self) -> f64;
    /// One request was done after `latency` seconds; `in_flight` were there when it started.
    fn update(&mut self, latency: f64, in_flight: f64);
}

/// A rule that rejects above its limit.
pub(super) struct Limited<R> {
    rule: R,
    in_flight: u32,
}

impl<R> Limited<R> {
    pub(super) const fn new(rule: R) -> Self {
        Self { rule, in_flight: 0 }
    }
}

impl<R: LimitRule> Controller for Limited<R> {
    fn arrive(&mut self, _now: Timestamp, request: SimulatedRequest, release: &mut Release) {
        if f64::from(self.in_flight) < self.rule.limit().floor() {
            self.in_flight += 1;
            release.started.push(request);
        } else {
            release.shed.push(request);
        }
    }

    fn finish(&mut self, now: Timestamp, started: Timestamp, _release: &mut Release) {
        let in_flight = f64::from(self.in_flight);
        self.rule.update(seconds(now.since(started)), in_flight);
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a limit is at most a million"
    )]
    fn limit(&self) -> u32 {
        self.rule.limit() as u32
    }
}

pub(super) struct StaticLimit(pub(super) u32);

impl LimitRule for StaticLimit {
    fn limit(&self) -> f64 {
        f64::from(self.0)
    }

    fn update(&mut self, _latency: f64, _in_flight: f64) {}
}

/// Tolerance 1.5, smoothing 0.2, a long window of 600 samples, a queue of 4.
pub(super) struct Gradient2 {
    limit: f64,
    long: Option<f64>,
}

impl Gradient2 {
    pub(super) const fn new() -> Self {
        Self {
            limit: FIRST_LIMIT,
            long: None,
        }
    }
}

impl LimitRule for Gradient2 {
    fn limit(&self) -> f64 {
        self.limit
    }

    fn update(&mut self, short: f64, in_flight: f64) {
        const TOLERANCE: f64 = 1.5;
        const SMOOTHING: f64 = 0.2;
        const WINDOW: f64 = 600.0;
        const QUEUE: f64 = 4.0;
        let mut long = self.long.unwrap_or(short);
        long += (short - long) * 2.0 / (WINDOW + 1.0);
        if long / short > 2.0 {
            long *= 0.95;
        }
        self.long = Some(long);
        if in_flight < self.limit / 2.0 {
            return;
        }
        let gradient = (TOLERANCE * long / short).clamp(0.5, 1.0);
        let next = self.limit * gradient + QUEUE;
        self.limit = (self.limit * (1.0 - SMOOTHING) + next * SMOOTHING).clamp(FIRST_LIMIT, MOST);
    }
}

/// One more for each success, a tenth less for each timeout.
pub(super) struct Aimd {
    limit: f64,
    timeout: f64,
}

impl Aimd {
    pub(super) fn new(timeout: Nanos) -> Self {
        Self {
            limit: FIRST_LIMIT,
            timeout: seconds(timeout),
        }
    }
}

impl LimitRule for Aimd {
    fn limit(&self) -> f64 {
        self.limit
    }

    fn update(&mut self, latency: f64, in_flight: f64) {
        if latency > self.timeout {
            self.limit *= 0.9;
        } else if in_flight * 2.0 >= self.limit {
            self.limit += 1.0;
        }
        self.limit = self.limit.clamp(FIRST_LIMIT, MOST);
    }
}

/// Alpha 3 and beta 6 times the logarithm of the limit; the least latency is measured anew every 30 limits.
pub(super) struct Vegas {
    limit: f64,
    least: Option<f64>,
    samples: f64,
}

impl Vegas {
    pub(super) const fn new() -> Self {
        Self {
            limit: FIRST_LIMIT,
            least: None,
            samples: 0.0,
        }
    }
}

impl LimitRule for Vegas {
    fn limit(&self) -> f64 {
        self.limit
    }

    fn update(&mut self, latency: f64, in_flight: f64) {
        const PROBE: f64 = 30.0;
        self.samples += 1.0;
        if self.samples >= PROBE * self.limit {
            (self.samples, self.least) = (0.0, Some(latency));
            return;
        }
        let least = self.least.unwrap_or(latency).min(latency);
        self.least = Some(least);
        if in_flight * 2.0 < self.limit {
            return;
        }
        let log = self.limit.log10().max(1.0);
        let queue = (self.limit * (1.0 - least / latency)).ceil();
        let next = if queue <= log {
            self.limit + 6.0 * log
        } else if queue < 3.0 * log {
            self.limit + log
        } else if queue > 6.0 * log {
            self.limit - log
        } else {
            self.limit
        };
        self.limit = next.clamp(1.0, MOST);
    }
}

#[expect(clippy::cast_precision_loss, reason = "a latency needs no 53 bits")]
fn seconds(span: Nanos) -> f64 {
    span.as_nanos() as f64 / 1e9
}
