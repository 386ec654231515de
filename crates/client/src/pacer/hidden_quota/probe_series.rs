//! One look for a reduced quota: requests beyond the pace, until the server refuses one or admits more than the reduced quota could have paid for.
//!
//! Must not know: when a client looks, what follows when the quota is found.

use super::super::{from_count, to_count};
use super::probes::ReducedQuota;

/// The seconds of the former rate that a series has to add without a refusal, and two requests more.
const SERIES_SECONDS: f64 = 0.5;
/// The requests that a prober of many clients has to add: it takes what all of them have lost, so that a few saved requests are no proof.
const PROBER_REQUESTS: u32 = 25;
/// A prober of many clients sends one request after another until its series has taken this multiple of what the last ones took, and so many
/// requests more. Then the quota has probably come back, so that more requests at the same time are rarely refused.
const OVERLAP_MULTIPLE: f64 = 1.5;
const OVERLAP_REQUESTS: f64 = 3.0;
/// From there one more request is in flight for so many admissions.
const ADMISSIONS_PER_OVERLAP: f64 = 2.0;
/// Without a series before, requests overlap after this part of the series.
const FIRST_OVERLAP_PART: f64 = 0.5;
/// How much of what a series took is remembered when a later one takes less.
const REMEMBERED_PART: f64 = 0.7;

/// A series of requests beyond the pace.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeSeries {
    left: u32,
    admitted: u32,
    outstanding: u32,
    /// After so many admissions requests overlap.
    overlap_after: f64,
}

impl ProbeSeries {
    pub(super) fn new(reduced: &ReducedQuota) -> Self {
        if !reduced.is_prober_of_many() {
            let needed = (reduced.former_rate * SERIES_SECONDS).ceil();
            return Self::with(to_count(needed).saturating_add(2), f64::INFINITY);
        }
        let first = f64::from(PROBER_REQUESTS) * FIRST_OVERLAP_PART;
        let after = |taken: f64| taken.mul_add(OVERLAP_MULTIPLE, OVERLAP_REQUESTS);
        Self::with(PROBER_REQUESTS, reduced.taken.map_or(first, after))
    }

    const fn with(left: u32, overlap_after: f64) -> Self {
        Self {
            left,
            admitted: 0,
            outstanding: 0,
            overlap_after,
        }
    }

    /// Whether the next request of the series may be sent now.
    pub(super) fn is_ready(&self) -> bool {
        let extra = (f64::from(self.admitted) - self.overlap_after) / ADMISSIONS_PER_OVERLAP;
        let limit = if extra < 0.0 { 1 } else { to_count(extra) + 2 };
        self.outstanding < limit.min(self.left)
    }

    pub(super) const fn on_send(&mut self) {
        self.outstanding = self.outstanding.saturating_add(1);
    }

    /// Records that a request has no result.
    pub(super) const fn on_abandon(&mut self) {
        self.outstanding = self.outstanding.saturating_sub(1);
    }

    /// Records an admission. Returns whether the series has found the quota.
    pub(super) const fn on_success(&mut self) -> bool {
        self.outstanding = self.outstanding.saturating_sub(1);
        self.admitted = self.admitted.saturating_add(1);
        self.left = self.left.saturating_sub(1);
        self.left == 0
    }

    /// The requests that the server admitted.
    pub(super) const fn admitted(&self) -> u32 {
        self.admitted
    }

    /// What series take before they are refused, if this one is over and earlier ones took `taken`.
    pub(super) fn taken(&self, taken: Option<f64>) -> f64 {
        let before = taken.map_or(0.0, |taken| taken * REMEMBERED_PART);
        before.max(from_count(u64::from(self.admitted)))
    }
}
