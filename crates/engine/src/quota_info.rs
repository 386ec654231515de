//! What header fields say of the quota that decided: its window, its unit, and when there is one unit more.
//!
//! A limit may be decided by one of many quotas, and two of them may admit the same number in different times. Must not know:
//! how header fields are written.

use tollgate_core::limit::{Limit, RefillPeriod};
use tollgate_core::{Nanos, QuotaStatus, QuotaUnit, TokenBucket};

use crate::verdict::DenialReason;

/// What is to be known of a quota that decided.
#[derive(Clone, Copy, Debug)]
pub struct QuotaInfo<'a> {
    pub(crate) unit: QuotaUnit,
    /// Why it refuses, if it does.
    pub(crate) reason: DenialReason,
    /// The time in which the whole of it comes back; zero where there is no one such time.
    refill_time: Nanos,
    bucket: Option<&'a TokenBucket>,
}

impl<'a> QuotaInfo<'a> {
    /// Of a check that has no quota, which is never asked.
    pub(crate) const EMPTY: Self = Self {
        unit: QuotaUnit::Requests,
        reason: DenialReason::Rate,
        refill_time: Nanos::ZERO,
        bucket: None,
    };

    /// Of a quota. `capacity` is the debt that it admits of its own, where waits were added to what decides.
    pub(crate) fn new(limit: &'a Limit, capacity: Option<Nanos>) -> Self {
        let bucket = limit.bucket();
        let (comes_back_in, reason) = match bucket {
            Some(bucket) => length_and_reason(capacity.unwrap_or(bucket.refill_time())),
            None => match limit.refill_period() {
                Some(RefillPeriod::Span(span)) => length_and_reason(span),
                // Months have no one length, and the shortest calendar window is a day.
                Some(RefillPeriod::Calendar) => (Nanos::ZERO, DenialReason::Quota),
                None => (Nanos::ZERO, DenialReason::Concurrency),
            },
        };
        Self {
            unit: limit.unit(),
            reason,
            refill_time: comes_back_in,
            bucket,
        }
    }

    /// What it counts.
    #[must_use]
    pub const fn unit(&self) -> QuotaUnit {
        self.unit
    }

    /// The time in which the whole of the quota is given, as it was written: a bucket's interval is a whole number of
    /// nanoseconds, rounded up, so that nine a second take eight nanoseconds more than a second. Said in whole seconds that
    /// would be two. Zero where there is no one such time: places are held as long as work takes, and months have no one
    /// length.
    #[must_use]
    pub fn window(&self) -> Nanos {
        let exact = self.refill_time.as_nanos();
        let intervals = self.bucket.map_or(0, |bucket| {
            let interval = bucket.interval().as_nanos();
            exact.checked_div(interval).unwrap_or(0)
        });
        let beyond = exact % Nanos::SECOND.as_nanos();
        let is_rounding = beyond < intervals;
        Nanos::from_nanos(if is_rounding { exact - beyond } else { exact })
    }

    /// Where nothing remains of a bucket: time until there is one more. Zero for anything else: windows give everything
    /// back together, and when a place is free nobody knows.
    #[must_use]
    pub fn time_to_next_unit(&self, status: &QuotaStatus) -> Nanos {
        match self.bucket {
            // What is owed, less what may be owed while one more is admitted.
            Some(bucket) if status.remaining == 0 => status
                .reset_after
                .saturating_add(bucket.interval())
                .saturating_sub(self.refill_time),
            _ => Nanos::ZERO,
        }
    }
}

/// A quota is what takes a day or longer to come back as a whole.
fn length_and_reason(length: Nanos) -> (Nanos, DenialReason) {
    let reason = if length >= Nanos::DAY {
        DenialReason::Quota
    } else {
        DenialReason::Rate
    };
    (length, reason)
}
