//! What the rest of the workspace asks of a sliding window log.
//!
//! Must not know: who asks, other algorithms.

use super::SlidingLog;
use crate::limit::algorithm::{Algorithm, decide_charge};
use crate::limit::{AlgorithmKind, Edit, Op, RefillPeriod, Refused, State, StateSize, UsageScale};
use crate::outcome::{Status, Transition};
use crate::time::{Nanos, Timestamp};
use crate::token_bucket::TokenBucket;

impl Algorithm for SlidingLog {
    const STATE: StateSize = StateSize::Collection;

    fn kind(&self) -> AlgorithmKind {
        AlgorithmKind::SlidingLog
    }

    fn decide_op(
        &self,
        state: &State,
        now: Timestamp,
        op: Op,
    ) -> Result<Transition<Edit>, Refused> {
        decide_charge!(self, state.log(), now, op, Edit::Log)
    }

    fn status_of(&self, state: &State, now: Timestamp) -> Status {
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
        UsageScale::of_units(self.limit(), Nanos::ZERO)
    }

    fn stricter_bucket(&self) -> Option<TokenBucket> {
        TokenBucket::stricter_than_window(self.limit(), self.window())
    }

    fn share_state(self, with: &Self) -> Self {
        self.sharing_state_with(with)
    }
}
