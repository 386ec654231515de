//! The description of a deciding quota for header fields: its window, its unit, and the time to the next unit.
//!
//! A limit can have many quotas, and two of them may admit the same number in different windows. Must not know: how
//! header fields are rendered.

use tollgate_core::limit::{Limit, RefillPeriod};
use tollgate_core::{Nanos, QuotaStatus, QuotaUnit, TokenBucket};

use crate::verdict::DenialReason;

/// The description of a deciding quota.
#[derive(Clone, Copy, Debug)]
pub struct QuotaInfo<'a> {
    pub(crate) unit: QuotaUnit,
    /// The reason of its denials.
    pub(crate) reason: DenialReason,
    /// The time in which the quota refills completely; zero if that varies.
    refill_time: Nanos,
    bucket: Option<&'a TokenBucket>,
}

impl<'a> QuotaInfo<'a> {
    /// For a check without a quota. Never used.
    pub(crate) const EMPTY: Self = Self {
        unit: QuotaUnit::Requests,
        reason: DenialReason::Rate,
        refill_time: Nanos::ZERO,
        bucket: None,
    };

    /// The description of a quota. `capacity`: the policy's capacity, if a wait was added to it.
    pub(crate) fn new(limit: &'a Limit, capacity: Option<Nanos>) -> Self {
        let bucket = limit.bucket();
        let (comes_back_in, reason) = match bucket {
            Some(bucket) => length_and_reason(capacity.unwrap_or(bucket.refill_time())),
            None => match limit.refill_period() {
                Some(RefillPeriod::Span(span)) => length_and_reason(span),
                // Months vary in length, and the shortest calendar window is a day.
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

    /// The unit that it counts.
    #[must_use]
    pub const fn unit(&self) -> QuotaUnit {
        self.unit
    }

    /// The time in which the quota refills completely, as the policy states it.
    ///
    /// A bucket's interval is rounded up to whole nanoseconds, so 9 per second take 8 ns more than one second. Rounded
    /// up to seconds that would be 2, so the excess is removed. Zero for concurrency limits and calendar months, which
    /// have no fixed window.
    #[must_use]
    pub fn window(&self) -> Nanos {
        let exact = self.refill_time.as_nanos();
        let intervals = self.bucket.map_or(0, |bucket| {
            let interval = bucket.interval().as_nanos();
            exact.checked_div(interval).unwrap_or(0)
        });
        let excess = exact % Nanos::SECOND.as_nanos();
        let is_rounding = excess < intervals;
        Nanos::from_nanos(if is_rounding { exact - excess } else { exact })
    }

    /// The time to the next unit of an exhausted bucket. Zero for other algorithms: a window refills as a whole, and
    /// the release of a permit is unpredictable.
    #[must_use]
    pub fn time_to_next_unit(&self, status: &QuotaStatus) -> Nanos {
        match self.bucket {
            // The debt, minus the debt at which one more unit is admitted.
            Some(bucket) if status.remaining == 0 => status
                .reset_after
                .saturating_add(bucket.interval())
                .saturating_sub(self.refill_time),
            _ => Nanos::ZERO,
        }
    }
}

/// A quota is `quota` if it takes a day or longer to refill, and `rate` otherwise.
fn length_and_reason(length: Nanos) -> (Nanos, DenialReason) {
    let reason = if length >= Nanos::DAY {
        DenialReason::Quota
    } else {
        DenialReason::Rate
    };
    (length, reason)
}
