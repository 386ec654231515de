//! Checks of `async` limits: counted here and told to the store now and then.
//!
//! They never wait, and go on in the same way while the store is away. Must not know: how counts are reconciled, what else
//! is in a batch.

use tollgate_policy::model::Consistency;
use tollgate_store::{Answer, Check, Op};

use super::ask::Consulting;
use super::asked::{Few, Way};
use super::by_lease::CARRIED_OUT;
use super::leases::Taken;
use super::local::{By, Here};
use super::reconciled::Reconciled;
use crate::asks::{Shared, Sharing};
use crate::store::StateStore;

impl<S: StateStore> Consulting<'_, S> {
    /// Whether this node's count decides on a check.
    pub(super) fn is_counted(check: &Check<'_>, sharing: &Sharing<'_>) -> bool {
        let is_spending = matches!(check.op, Op::Spend(_) | Op::Peek(_) | Op::Settle { .. });
        matches!(sharing.consistency, Consistency::Async(_))
            && is_spending
            && Reconciled::can_reconcile(&check.ruled.limit)
    }

    /// Decides on the checks that are counted here, and answers whether all of them are admitted. Those that there is no
    /// room for become the store's.
    pub(super) fn decide_counted<const N: usize>(
        &self,
        checks: &[Check<'_>],
        shared: &impl Shared,
        ways: &mut [Way],
        answers: &mut [Answer],
        here: &mut Few<Here, N>,
    ) -> bool {
        let reconciled = &self.fleet.reconciled;
        for (position, (check, way)) in checks.iter().zip(ways).enumerate() {
            let Way::Counted { part } = *way else {
                continue;
            };
            let sharing = shared.sharing(position);
            let now = self.local.now();
            let taken = match (check.op, sharing.consistency) {
                (Op::Settle { receipt, actual }, _) => {
                    reconciled.settle(check, &receipt, actual, now);
                    Taken::Spent(CARRIED_OUT)
                }
                (_, Consistency::Async(interval)) => {
                    reconciled.spend(check, sharing.place.as_ref(), interval, now)
                }
                _ => Taken::Elsewhere,
            };
            let (Taken::Spent(answer) | Taken::Denied(answer)) = taken else {
                *way = self.by_store(part);
                continue;
            };
            if let Some(place) = answers.get_mut(position) {
                *place = answer;
            }
            if !answer.outcome.is_admitted() {
                return false;
            }
            here.push(Here {
                position,
                ruled: *check.ruled,
                by: By::Count,
            });
        }
        true
    }
}
