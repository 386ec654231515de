//! The [`Algorithm`] implementation of the custom bucket.
//!
//! Must not know: callers, other algorithms than the token bucket, whose arithmetic it uses.

use super::CustomBucket;
use crate::limit::algorithm::{Algorithm, decide_charge};
use crate::limit::{AlgorithmKind, Edit, Op, OpError, RefillPeriod, State, StateSize, UsageScale};
use crate::outcome::{QuotaStatus, Transition};
use crate::rate::Rate;
use crate::time::{Nanos, Timestamp};
use crate::token_bucket::TokenBucket;

impl Algorithm for CustomBucket {
    const STATE: StateSize = StateSize::Word;

    fn kind(&self) -> AlgorithmKind {
        AlgorithmKind::CustomBucket
    }

    decide_charge!(CustomBucket, tat, Edit::Bucket);

    fn status_of(&self, state: &State, now: Timestamp) -> QuotaStatus {
        self.status(state.tat(), now)
    }

    fn capacity(&self) -> u64 {
        self.limit()
    }

    fn refill_period(&self) -> Option<RefillPeriod> {
        Some(RefillPeriod::Span(self.bucket.refill_time()))
    }

    fn lifetime(&self) -> Nanos {
        self.bucket.ceiling().saturating_add(self.tail())
    }

    fn usage_scale(&self) -> UsageScale {
        let full = self.bucket.refill_time().as_nanos();
        let scale = UsageScale::from_debt(full, self.bucket.interval());
        // A state counts for `tail` longer than its debt, and the use that a store reads includes that time.
        UsageScale {
            full: scale.full.saturating_add(self.tail),
            denied_above: scale.denied_above.saturating_add(self.tail),
            tail: self.tail,
        }
    }

    /// It decides without a state of the key, so every key counts as new there.
    fn stricter_bucket(&self) -> Option<TokenBucket> {
        let bucket = TokenBucket::builder(Rate::new(1, self.bucket.interval()))
            .burst(self.initial() / self.bucket.block_size());
        bucket.build().ok()
    }

    fn share_state(self, with: &Self) -> Self {
        self.sharing_state_with(with)
    }
}
