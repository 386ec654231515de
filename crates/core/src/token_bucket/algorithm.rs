//! The [`Algorithm`] implementation of the token bucket.
//!
//! Must not know: callers, other algorithms.

use super::TokenBucket;
use crate::limit::algorithm::{Algorithm, decide_charge};
use crate::limit::{AlgorithmKind, Edit, Op, OpError, RefillPeriod, State, StateSize, UsageScale};
use crate::outcome::{QuotaStatus, Transition};
use crate::rate::Rate;
use crate::time::{Nanos, Timestamp};

impl Algorithm for TokenBucket {
    const STATE: StateSize = StateSize::Word;

    fn kind(&self) -> AlgorithmKind {
        AlgorithmKind::TokenBucket
    }

    decide_charge!(TokenBucket, tat, Edit::Bucket);

    fn status_of(&self, state: &State, now: Timestamp) -> QuotaStatus {
        self.status(state.tat(), now)
    }

    fn capacity(&self) -> u64 {
        self.limit()
    }

    fn refill_period(&self) -> Option<RefillPeriod> {
        Some(RefillPeriod::Span(self.refill_time()))
    }

    fn lifetime(&self) -> Nanos {
        self.ceiling()
    }

    fn usage_scale(&self) -> UsageScale {
        UsageScale::from_debt(self.refill_time().as_nanos(), self.interval())
    }

    fn stricter_bucket(&self) -> Option<TokenBucket> {
        Some(*self)
    }

    fn bucket(&self) -> Option<&TokenBucket> {
        Some(self)
    }

    fn share_state(self, with: &Self) -> Self {
        self.sharing_state_with(with)
    }
}

impl TokenBucket {
    /// A bucket that admits no more than a window of `units` does. Half of the units are its burst and half refill over the window,
    /// together at most `units` in any window. A burst of `units` with a rate of `units` would admit twice as many.
    pub(crate) fn stricter_than_window(units: u64, window: Nanos) -> Option<Self> {
        let half = if units == 0 { 0 } else { (units / 2).max(1) };
        Self::builder(Rate::new(half, window))
            .burst(half)
            .build()
            .ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixed_window::{FixedWindow, Window};
    use crate::limit::Limit;

    /// Regression: the bucket had the whole limit as its burst and refilled it within the window, twice the limit.
    #[test]
    fn a_bucket_stricter_than_a_window_never_admits_more_than_its_limit() {
        for units in [0, 1, 2, 3, 10, 101] {
            let window = Window::Epoch(Nanos::MINUTE);
            let limit: Limit = FixedWindow::builder(units, window).build().unwrap().into();
            let bucket = limit.stricter_bucket().unwrap();
            let (mut tat, mut admitted) = (0, 0);
            for millis in 0..60_000 {
                let now = Timestamp::from_secs(1_000).after(Nanos::from_millis(millis));
                let transition = bucket.decide(tat, now, 1);
                admitted += transition.receipt.cost;
                tat = transition.next.unwrap_or(tat);
            }
            assert!(admitted <= units, "{admitted} of {units}");
            assert!(admitted > 0 || units == 0);
        }
    }
}
