//! The [`Algorithm`] implementation of the concurrency limit.
//!
//! Must not know: callers, other algorithms.

use super::Concurrency;
use crate::limit::algorithm::Algorithm;
use crate::limit::{AlgorithmKind, Edit, Op, OpError, RefillPeriod, State, StateSize, UsageScale};
use crate::outcome::{QuotaStatus, Transition};
use crate::time::{Nanos, Timestamp};
use crate::token_bucket::TokenBucket;

impl Algorithm for Concurrency {
    const STATE: StateSize = StateSize::Collection;

    fn kind(&self) -> AlgorithmKind {
        AlgorithmKind::Concurrency
    }

    fn decide_op(
        &self,
        state: &State,
        now: Timestamp,
        op: Op,
    ) -> Result<Transition<Edit>, OpError> {
        let leases = state.leases();
        let transition = match op {
            Op::Acquire { id, weight } => self.acquire(leases, now, id, weight),
            Op::Renew(id) => self.renew(leases, now, id).ok_or(OpError::NotHeld)?,
            Op::Release(id) => self.release(leases, now, id),
            _ => return Err(OpError::Unsupported),
        };
        Ok(transition.map(Edit::Leases))
    }

    fn status_of(&self, state: &State, now: Timestamp) -> QuotaStatus {
        self.status(state.leases(), now)
    }

    fn capacity(&self) -> u64 {
        self.limit()
    }

    /// Places come back when they are released.
    fn refill_period(&self) -> Option<RefillPeriod> {
        None
    }

    fn lifetime(&self) -> Nanos {
        self.lease_duration()
    }

    fn usage_scale(&self) -> UsageScale {
        UsageScale::from_units(self.limit(), Nanos::ZERO)
    }

    /// No bucket shows when a place is free.
    fn stricter_bucket(&self) -> Option<TokenBucket> {
        None
    }

    fn lease_duration(&self) -> Option<Nanos> {
        Some(Self::lease_duration(self))
    }
}
