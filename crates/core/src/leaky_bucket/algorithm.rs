//! The [`Algorithm`] implementation of the leaky bucket.
//!
//! Must not know: callers, other algorithms than the token bucket, whose arithmetic it uses.

use super::LeakyBucket;
use crate::limit::algorithm::{Algorithm, decide_charge};
use crate::limit::{AlgorithmKind, Edit, Op, OpError, RefillPeriod, State, StateSize, UsageScale};
use crate::outcome::{QuotaStatus, Transition};
use crate::rate::Rate;
use crate::time::{Nanos, Timestamp};
use crate::token_bucket::TokenBucket;

impl Algorithm for LeakyBucket {
    const STATE: StateSize = StateSize::Word;

    fn kind(&self) -> AlgorithmKind {
        if self.is_queue() {
            AlgorithmKind::LeakyQueue
        } else {
            AlgorithmKind::LeakyBucket
        }
    }

    decide_charge!(LeakyBucket, tat, Edit::Bucket);

    fn status_of(&self, state: &State, now: Timestamp) -> QuotaStatus {
        self.status(state.tat(), now)
    }

    fn capacity(&self) -> u64 {
        self.limit()
    }

    fn refill_period(&self) -> Option<RefillPeriod> {
        Some(RefillPeriod::Span(self.as_token_bucket().refill_time()))
    }

    fn lifetime(&self) -> Nanos {
        self.ceiling()
    }

    fn usage_scale(&self) -> UsageScale {
        let full = self.limit().saturating_mul(self.interval().as_nanos());
        UsageScale::from_debt(full, self.interval())
    }

    fn stricter_bucket(&self) -> Option<TokenBucket> {
        let bucket = TokenBucket::builder(Rate::new(1, self.interval())).burst(self.limit());
        bucket.build().ok()
    }

    fn bucket(&self) -> Option<&TokenBucket> {
        Some(self.as_token_bucket())
    }

    fn share_state(self, with: &Self) -> Self {
        self.sharing_state_with(with)
    }
}
