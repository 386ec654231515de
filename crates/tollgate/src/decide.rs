//! Asking the table about every limit of one limiter, and turning what it says into an answer.
//!
//! Must not know: which verb asks, how state is kept.

use std::sync::Arc;

use tollgate_core::Outcome;
use tollgate_core::compose::BatchOutcome;
use tollgate_store as store;
use tollgate_store::{Clock, Op, QuotaCheck, Store as _, StoreError, StoreErrorKind, StoreReply};

use crate::active_limits::{ActiveLimit, ActiveLimits};
use crate::admission::Admission;
use crate::error::{Denial, Error};
use crate::limit_name::LimitName;
use crate::limiter::LimiterInner;
use crate::limits::{Limits, MAX_LIMITS};

impl<C: Clock> LimiterInner<C> {
    /// Asks every limit, all or nothing, and answers in full.
    pub(crate) fn decide(
        &self,
        rules: &Arc<ActiveLimits>,
        key: &store::StoreKey<'_>,
        cost: u64,
        op: Op,
    ) -> Result<Admission, Error> {
        let mut allowed = Admission::with_empty_replies(rules, cost, op);
        let (list, answers) = (rules.list(), &mut allowed.replies);
        let verdict = match list.len() {
            1 => self.decide_into::<1>(list, key, op, answers)?,
            _ => self.decide_into::<MAX_LIMITS>(list, key, op, answers)?,
        };
        match verdict.is_admitted() {
            true => Ok(allowed),
            false => Err(denial(list, answers, &verdict, cost)),
        }
    }

    /// Spends on every limit, all or nothing, and answers yes or no. `N` is at least the number of limits: what there is
    /// no room for need not be cleared.
    pub(crate) fn check_limits<const N: usize>(
        &self,
        rules: &Arc<ActiveLimits>,
        key: &store::StoreKey<'_>,
        cost: u64,
    ) -> Result<(), Error> {
        let mut answers = [StoreReply::EMPTY; N];
        let verdict = self.decide_into::<N>(rules.list(), key, Op::Spend(cost), &mut answers)?;
        match verdict.outcome() {
            Outcome::Allow => Ok(()),
            Outcome::Wait(_) => self.release_queue_slot(rules, key, cost, &answers),
            _ => Err(denial(rules.list(), &answers, &verdict, cost)),
        }
    }

    /// Gives a place in a queue back, because the caller asked for now or not at all.
    #[cold]
    fn release_queue_slot(
        &self,
        rules: &Arc<ActiveLimits>,
        key: &store::StoreKey<'_>,
        cost: u64,
        answers: &[StoreReply],
    ) -> Result<(), Error> {
        let mut place = Admission {
            active_limits: Arc::clone(rules),
            replies: [StoreReply::EMPTY; MAX_LIMITS],
            cost,
        };
        for (slot, answer) in place.replies.iter_mut().zip(answers) {
            *slot = *answer;
        }
        self.settle_with(rules, key, &place, 0)?;
        Err(place.to_denial(cost).into())
    }

    fn decide_into<const N: usize>(
        &self,
        list: &[ActiveLimit],
        key: &store::StoreKey<'_>,
        op: Op,
        answers: &mut [StoreReply],
    ) -> Result<BatchOutcome, Error> {
        let Some(first) = list.first() else {
            return Ok(BatchOutcome::default());
        };
        let check = |ruled| QuotaCheck {
            key: *key,
            limit: ruled,
            op,
        };
        let mut checks = [check(&first.identified); N];
        for (slot, rule) in checks.iter_mut().zip(list) {
            *slot = check(&rule.identified);
        }
        match (checks.get(..list.len()), answers.get_mut(..list.len())) {
            (Some(checks), Some(answers)) => Ok(self.table.memory.decide(checks, answers)?),
            _ => {
                let detail = "there are more limits than there is room for answers";
                Err(StoreError::new(StoreErrorKind::BadRequest, detail).into())
            }
        }
    }
}

/// What the limit says that has to be waited for longest.
#[cold]
pub(crate) fn denial(
    list: &[ActiveLimit],
    answers: &[StoreReply],
    verdict: &BatchOutcome,
    cost: u64,
) -> Error {
    let binding = list.iter().zip(answers).nth(verdict.binding().unwrap_or(0));
    let (name, answer) = binding.map_or(
        (LimitName::literal(Limits::UNNAMED), &StoreReply::EMPTY),
        |(rule, answer)| (rule.name.clone(), answer),
    );
    Denial::new(name, cost, answer.outcome, answer.status).into()
}
