//! A server with one quota for all its clients, in simulated time.
//!
//! Must not know: clients.

use tollgate_client::{Nanos, Timestamp};
use tollgate_core::{Outcome, QuotaStatus, QuotaUnit};
use tollgate_http::{Dialect, Dialects, HeaderFields, QuotaPolicy, RateLimitItem, RateLimitStatus};

/// The answer to a request: a status, and the fields that the server sends.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) fields: HeaderFields,
}

/// A time span with another rate: the quota is reduced, or nothing is admitted.
#[derive(Clone, Copy)]
pub(crate) struct Incident {
    pub(crate) from: f64,
    pub(crate) to: f64,
    /// Requests per second meanwhile. Zero is an outage, which answers 503.
    pub(crate) rate: f64,
}

/// A token bucket.
pub(crate) struct Server {
    rate: f64,
    burst: f64,
    incident: Option<Incident>,
    /// The rate after the incident, if it is not the one before.
    rate_after: Option<f64>,
    reports: bool,
    dialects: Dialects,
    /// Whether the quota resets at the end of each window, and does not refill before.
    is_window: bool,
    tokens: f64,
    refilled_at: f64,
    pub(crate) admitted: u64,
    pub(crate) refused: u64,
}

impl Server {
    pub(crate) fn new(rate: f64, burst: f64) -> Self {
        Self {
            rate,
            burst,
            incident: None,
            rate_after: None,
            reports: false,
            dialects: Dialects::default(),
            is_window: false,
            tokens: burst,
            refilled_at: 0.0,
            admitted: 0,
            refused: 0,
        }
    }

    pub(crate) fn with_incident(mut self, incident: Incident) -> Self {
        self.incident = Some(incident);
        self
    }

    /// Another rate after the incident than before it.
    pub(crate) fn with_rate_after(mut self, rate: f64) -> Self {
        self.rate_after = Some(rate);
        self
    }

    pub(crate) fn with_reports(mut self) -> Self {
        self.reports = true;
        self
    }

    /// Reports quota, rest and reset, and not how long a window is: most APIs do.
    pub(crate) fn with_unknown_window(mut self) -> Self {
        self.dialects = Dialect::XRateLimit.into();
        self
    }

    /// Resets the quota at the end of each window of `burst / rate` seconds, and does not refill it before.
    pub(crate) fn with_windows(mut self) -> Self {
        self.is_window = true;
        self
    }

    pub(crate) fn rate_at(&self, second: f64) -> f64 {
        match self.incident {
            Some(incident) if (incident.from..incident.to).contains(&second) => incident.rate,
            Some(incident) if second >= incident.to => self.rate_after.unwrap_or(self.rate),
            _ => self.rate,
        }
    }

    /// How many requests the quota admits in so many seconds, without the first burst.
    pub(crate) fn quota(&self, seconds: f64) -> f64 {
        let reduced = self.incident.map_or(0.0, |incident| {
            let after = self.rate - self.rate_after.unwrap_or(self.rate);
            let end = incident.to.min(seconds);
            (end - incident.from) * (self.rate - incident.rate) + (seconds - end) * after
        });
        self.rate * seconds - reduced
    }

    pub(crate) fn decide(&mut self, now: Timestamp) -> Reply {
        let second = now.as_nanos() as f64 / 1e9;
        let window = self.burst / self.rate;
        if self.is_window && second - self.refilled_at >= window {
            self.tokens = self.burst;
            self.refilled_at += ((second - self.refilled_at) / window).floor() * window;
        }
        // In steps, because the rate changes meanwhile.
        while !self.is_window && self.refilled_at < second {
            let step = (second - self.refilled_at).min(0.1);
            let rate = self.rate_at(self.refilled_at);
            // A bucket that holds no request would admit none.
            let burst = (self.burst * (rate / self.rate)).max(1.0);
            self.tokens = (self.tokens + rate * step).min(burst);
            self.refilled_at += step;
        }
        if self.rate_at(second) <= 0.0 {
            self.refused += 1;
            return Reply {
                status: 503,
                fields: HeaderFields::new(),
            };
        }
        let is_admitted = self.tokens >= 1.0;
        if is_admitted {
            self.tokens -= 1.0;
            self.admitted += 1;
        } else {
            self.refused += 1;
        }
        Reply {
            status: if is_admitted { 200 } else { 429 },
            fields: self.fields(is_admitted, now),
        }
    }

    fn reset_after(&self, now: Timestamp) -> f64 {
        if self.is_window {
            self.refilled_at + self.burst / self.rate - now.as_nanos() as f64 / 1e9
        } else {
            (self.burst - self.tokens) / self.rate
        }
    }

    fn fields(&self, is_admitted: bool, now: Timestamp) -> HeaderFields {
        let mut fields = HeaderFields::new();
        if !self.reports {
            return fields;
        }
        let nanos = |seconds: f64| Nanos::from_nanos((seconds * 1e9) as u64);
        let window = nanos(self.burst / self.rate);
        let policy = QuotaPolicy::new("all", self.burst as u64, window, QuotaUnit::Requests);
        let policy = policy.expect("a valid name");
        let status = QuotaStatus {
            limit: self.burst as u64,
            remaining: self.tokens.max(0.0) as u64,
            reset_after: nanos(self.reset_after(now)),
        };
        let outcome = if is_admitted {
            Outcome::Allow
        } else {
            let retry_after = if self.is_window {
                nanos(self.reset_after(now))
            } else {
                nanos((1.0 - self.tokens) / self.rate)
            };
            Outcome::Deny { retry_after }
        };
        let items = [RateLimitItem::new(&policy, outcome, &status)];
        let status = RateLimitStatus::new(outcome, &items).with_now(now);
        status.write(self.dialects, &mut fields);
        fields
    }
}
