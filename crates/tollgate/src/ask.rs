//! Asking the table about every limit of one limiter, and turning what it says into an answer.
//!
//! Must not know: which verb asks, how state is kept.

use std::sync::Arc;

use tollgate_core::Outcome;
use tollgate_core::compose::BatchOutcome;
use tollgate_store as store;
use tollgate_store::{Clock, ErrorKind, Op, QuotaCheck, Store as _, StoreError, StoreReply};

use crate::allowed::Allowed;
use crate::denied::{Denied, Error};
use crate::limiter::Shared;
use crate::limits::{Limits, MAX_LIMITS};
use crate::name::Name;
use crate::rules::{Rule, Rules};

impl<C: Clock> Shared<C> {
    /// Asks every limit, all or nothing, and answers in full.
    pub(crate) fn decide(
        &self,
        rules: &Arc<Rules>,
        key: &store::StoreKey<'_>,
        cost: u64,
        op: Op,
    ) -> Result<Allowed, Error> {
        let mut allowed = Allowed::unanswered(rules, cost, op);
        let (list, answers) = (rules.list(), &mut allowed.answers);
        let verdict = match list.len() {
            1 => self.ask::<1>(list, key, op, answers)?,
            _ => self.ask::<MAX_LIMITS>(list, key, op, answers)?,
        };
        match verdict.is_admitted() {
            true => Ok(allowed),
            false => Err(denial(list, answers, &verdict, cost)),
        }
    }

    /// Spends on every limit, all or nothing, and answers yes or no. `N` is at least the number of limits: what there is
    /// no room for need not be cleared.
    pub(crate) fn check_some<const N: usize>(
        &self,
        rules: &Arc<Rules>,
        key: &store::StoreKey<'_>,
        cost: u64,
    ) -> Result<(), Error> {
        let mut answers = [StoreReply::EMPTY; N];
        let verdict = self.ask::<N>(rules.list(), key, Op::Spend(cost), &mut answers)?;
        match verdict.outcome() {
            Outcome::Allow => Ok(()),
            Outcome::Wait(_) => self.decline_place(rules, key, cost, &answers),
            _ => Err(denial(rules.list(), &answers, &verdict, cost)),
        }
    }

    /// Gives a place in a queue back, because the caller asked for now or not at all.
    #[cold]
    fn decline_place(
        &self,
        rules: &Arc<Rules>,
        key: &store::StoreKey<'_>,
        cost: u64,
        answers: &[StoreReply],
    ) -> Result<(), Error> {
        let mut place = Allowed {
            rules: Arc::clone(rules),
            answers: [StoreReply::EMPTY; MAX_LIMITS],
            cost,
        };
        for (slot, answer) in place.answers.iter_mut().zip(answers) {
            *slot = *answer;
        }
        self.settle_under(rules, key, &place, 0)?;
        Err(place.as_denial(cost).into())
    }

    fn ask<const N: usize>(
        &self,
        list: &[Rule],
        key: &store::StoreKey<'_>,
        op: Op,
        answers: &mut [StoreReply],
    ) -> Result<BatchOutcome, Error> {
        let Some(first) = list.first() else {
            return Ok(BatchOutcome::default());
        };
        let check = |ruled| QuotaCheck {
            key: *key,
            ruled,
            op,
        };
        let mut checks = [check(&first.ruled); N];
        for (slot, rule) in checks.iter_mut().zip(list) {
            *slot = check(&rule.ruled);
        }
        match (checks.get(..list.len()), answers.get_mut(..list.len())) {
            (Some(checks), Some(answers)) => Ok(self.table.memory.decide(checks, answers)?),
            _ => {
                let detail = "there are more limits than there is room for answers";
                Err(StoreError::new(ErrorKind::BadRequest, detail).into())
            }
        }
    }
}

/// What the limit says that has to be waited for longest.
#[cold]
pub(crate) fn denial(
    list: &[Rule],
    answers: &[StoreReply],
    verdict: &BatchOutcome,
    cost: u64,
) -> Error {
    let binding = list.iter().zip(answers).nth(verdict.binding().unwrap_or(0));
    let (name, answer) = binding.map_or(
        (Name::literal(Limits::UNNAMED), &StoreReply::EMPTY),
        |(rule, answer)| (rule.name.clone(), answer),
    );
    Denied::new(name, cost, answer.outcome, answer.status).into()
}
