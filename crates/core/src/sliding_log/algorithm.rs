//! The [`Algorithm`] implementation of the sliding window log.
//!
//! Must not know: callers, other algorithms.

use super::SlidingLog;
use crate::limit::algorithm::{Algorithm, decide_charge};
use crate::limit::{AlgorithmKind, Edit, Op, OpError, RefillPeriod, State, StateSize, UsageScale};
use crate::outcome::{QuotaStatus, Transition};
use crate::time::{Nanos, Timestamp};
use crate::token_bucket::TokenBucket;

impl Algorithm for SlidingLog {
    const STATE: StateSize = StateSize::Collection;

    fn kind(&self) -> AlgorithmKind {
        AlgorithmKind::SlidingLog
    }

    decide_charge!(SlidingLog, log, Edit::Log);

    fn status_of(&self, state: &State, now: Timestamp) -> QuotaStatus {
        self.status(state.log(), now)
    }

    fn capacity(&self) -> u64 {
        self.limit()
    }

    fn refill_period(&self) -> Option<RefillPeriod> {
        Some(RefillPeriod::Span(self.window()))
    }

    fn lifetime(&self) -> Nanos {
        self.retention()
    }

    fn usage_scale(&self) -> UsageScale {
        UsageScale::from_units(self.limit(), Nanos::ZERO)
    }

    fn stricter_bucket(&self) -> Option<TokenBucket> {
        TokenBucket::stricter_than_window(self.limit(), self.window())
    }

    fn share_state(self, with: &Self) -> Self {
        self.sharing_state_with(with)
    }
}
