//! Checks of leased limits: spent from slices of this node, for which the store is asked only now and then.
//!
//! Slices last while the store is away. When they are used up, what stands in for the limit decides as for any other; that is
//! not told to the store afterwards, which keeps leased limits by books of their own. Must not know: how slices are
//! accounted for, what else is in a batch.

use tollgate_core::{Outcome, Receipt};
use tollgate_policy::model::Consistency;
use tollgate_store::{Answer, Check, Lender, Op, StoreError};

use super::ask::Consulting;
use super::asked::{Few, Way};
use super::leases::{Leases, Taken};
use super::local::{By, Here};
use crate::asks::{Shared, Sharing};
use crate::store::StateStore;

impl<S: StateStore> Consulting<'_, S> {
    /// Whether slices decide on a check.
    pub(super) fn is_leased(&self, check: &Check<'_>, sharing: &Sharing<'_>) -> bool {
        let is_spending = matches!(
            check.op,
            Op::Spend(_) | Op::Peek(_) | Op::ChargeAlways(_) | Op::Settle { .. }
        );
        sharing.consistency == Consistency::Leased
            && is_spending
            && self.fleet.lender.is_some()
            && Leases::can_lend(&check.ruled.limit)
    }

    /// Decides on the checks that slices decide on, one after another, and answers whether all of them are admitted. What
    /// was spent is in `here`, whether or not.
    pub(super) async fn decide_leased<const N: usize>(
        &self,
        checks: &[Check<'_>],
        shared: &impl Shared,
        ways: &[Way],
        answers: &mut [Answer],
        here: &mut Few<Here, N>,
    ) -> Result<bool, StoreError> {
        let Some(lender) = &self.fleet.lender else {
            return Ok(true);
        };
        for (position, (check, way)) in checks.iter().zip(ways).enumerate() {
            let Way::Leased { part } = *way else {
                continue;
            };
            let sharing = shared.sharing(position);
            let answer = match self.take(&**lender, part, check, &sharing).await {
                Some(answer) => answer,
                None => {
                    let away: Few<Way, N> = (0..checks.len())
                        .map(|other| match other == position {
                            true => Way::Away { part },
                            false => Way::Own,
                        })
                        .collect();
                    if !self.decide_unanswered(checks, shared, (&away, true), answers, here)? {
                        return Ok(false);
                    }
                    continue;
                }
            };
            if let Some(place) = answers.get_mut(position) {
                *place = answer;
            }
            if !answer.outcome.is_admitted() {
                return Ok(false);
            }
            here.push(Here {
                position,
                ruled: *check.ruled,
                by: By::Slice,
            });
        }
        Ok(true)
    }

    /// What slices answer. `None`: there is nothing here, and the lender is away.
    async fn take(
        &self,
        lender: &dyn Lender,
        part: usize,
        check: &Check<'_>,
        sharing: &Sharing<'_>,
    ) -> Option<Answer> {
        let leases = &self.fleet.leases;
        let now = || self.local.now();
        let spending = match check.op {
            Op::ChargeAlways(cost) => Check {
                op: Op::Spend(cost),
                ..*check
            },
            Op::Settle { receipt, actual } => {
                leases.settle(check, &receipt, actual, now());
                return Some(CARRIED_OUT);
            }
            _ => *check,
        };
        let mut taken = leases.spend(&spending, now());
        if taken == Taken::Borrow {
            let breaker = self.fleet.breakers.get(part);
            if self.is_alone || !breaker.is_some_and(super::Breaker::is_closed) {
                return None;
            }
            let borrowed = leases.borrow(lender, sharing.place, &spending, now).await;
            self.fleet.note(&[part], now(), borrowed.as_ref().err());
            taken = borrowed.ok()?;
        }
        match (taken, check.op) {
            (Taken::Spent(answer), _) => Some(answer),
            (Taken::Denied(answer), Op::ChargeAlways(cost)) => {
                // It is charged whether or not it is there: to the next slice.
                leases.settle(check, &Receipt::default(), cost, now());
                Some(Answer {
                    outcome: Outcome::Allow,
                    ..answer
                })
            }
            (Taken::Denied(answer), _) => Some(answer),
            (Taken::Borrow | Taken::Elsewhere, _) => None,
        }
    }
}

/// What was to be put right was put right.
pub(super) const CARRIED_OUT: Answer = Answer {
    outcome: Outcome::Allow,
    ..Answer::EMPTY
};
