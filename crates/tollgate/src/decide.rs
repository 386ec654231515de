//! Decides one call of a limiter: one check for each limit, and the replies become an admission or a denial.
//!
//! Must not know: which operation calls it, how state is kept.

use std::sync::Arc;

use tollgate_core::Outcome;
use tollgate_core::compose::BatchOutcome;
use tollgate_store as store;
use tollgate_store::{Clock, Op, QuotaCheck, Store as _, StoreError, StoreErrorKind, StoreReply};

use crate::active_limits::{ActiveLimit, ActiveLimits};
use crate::admission::{Admission, denial_by};
use crate::error::Error;
use crate::limiter::LimiterInner;
use crate::limits::MAX_LIMITS;

impl<C: Clock> LimiterInner<C> {
    /// Decides on every limit, all or nothing, and returns the status of each.
    pub(crate) fn decide(
        &self,
        limits: &Arc<ActiveLimits>,
        key: &store::StoreKey<'_>,
        cost: u64,
        op: Op,
    ) -> Result<Admission, Error> {
        let mut admission = Admission::with_empty_replies(limits, cost, op);
        let (list, replies) = (limits.list(), &mut admission.replies);
        let verdict = match list.len() {
            1 => self.decide_into::<1>(list, key, op, replies)?,
            _ => self.decide_into::<MAX_LIMITS>(list, key, op, replies)?,
        };
        match verdict.is_admitted() {
            true => Ok(admission),
            false => Err(denial(list, replies, &verdict, cost)),
        }
    }

    /// Spends on every limit, all or nothing, without the status of each. `N` must be at least the number of limits; a small
    /// `N` saves clearing unused entries.
    pub(crate) fn check_limits<const N: usize>(
        &self,
        limits: &Arc<ActiveLimits>,
        key: &store::StoreKey<'_>,
        cost: u64,
    ) -> Result<(), Error> {
        let mut replies = [StoreReply::EMPTY; N];
        let verdict = self.decide_into::<N>(limits.list(), key, Op::Spend(cost), &mut replies)?;
        match verdict.outcome() {
            Outcome::Allow => Ok(()),
            Outcome::Wait(_) => self.release_queue_slot(limits, key, cost, &replies),
            _ => Err(denial(limits.list(), &replies, &verdict, cost)),
        }
    }

    /// Releases a slot in a queue, because `check` does not wait.
    #[cold]
    fn release_queue_slot(
        &self,
        limits: &Arc<ActiveLimits>,
        key: &store::StoreKey<'_>,
        cost: u64,
        replies: &[StoreReply],
    ) -> Result<(), Error> {
        let mut place = Admission {
            active_limits: Arc::clone(limits),
            replies: [StoreReply::EMPTY; MAX_LIMITS],
            cost,
        };
        for (slot, reply) in place.replies.iter_mut().zip(replies) {
            *slot = *reply;
        }
        self.settle_with(limits, key, &place, 0)?;
        Err(place.to_denial(cost).into())
    }

    fn decide_into<const N: usize>(
        &self,
        list: &[ActiveLimit],
        key: &store::StoreKey<'_>,
        op: Op,
        replies: &mut [StoreReply],
    ) -> Result<BatchOutcome, Error> {
        let Some(first) = list.first() else {
            return Ok(BatchOutcome::default());
        };
        let check = |limit| QuotaCheck {
            key: *key,
            limit,
            op,
        };
        let mut checks = [check(&first.identified); N];
        for (slot, limit) in checks.iter_mut().zip(list) {
            *slot = check(&limit.identified);
        }
        match (checks.get(..list.len()), replies.get_mut(..list.len())) {
            (Some(checks), Some(replies)) => Ok(self.table.memory.decide(checks, replies)?),
            _ => {
                let detail = "more limits than reply slots";
                Err(StoreError::new(StoreErrorKind::BadRequest, detail).into())
            }
        }
    }
}

/// The denial by the limit with the longest wait.
#[cold]
pub(crate) fn denial(
    list: &[ActiveLimit],
    replies: &[StoreReply],
    verdict: &BatchOutcome,
    cost: u64,
) -> Error {
    let binding = list.iter().zip(replies).nth(verdict.binding().unwrap_or(0));
    denial_by(binding, cost).into()
}
