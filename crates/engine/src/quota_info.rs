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

    /// The time in which the quota refills completely, as the policy states it: see [`TokenBucket::stated_window`]. Zero for
    /// concurrency limits and calendar months, which have no fixed window.
    #[must_use]
    pub fn window(&self) -> Nanos {
        let exact = self.refill_time;
        self.bucket
            .map_or(exact, |bucket| bucket.stated_window(exact))
    }

    /// The time to the next unit of an exhausted bucket. Zero for other algorithms: a window refills as a whole, and
    /// the release of a permit is unpredictable.
    #[must_use]
    pub fn time_to_next_unit(&self, status: &QuotaStatus) -> Nanos {
        self.bucket.map_or(Nanos::ZERO, |bucket| {
            bucket.time_to_next_unit(self.refill_time, status)
        })
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
