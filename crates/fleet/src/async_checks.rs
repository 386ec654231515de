//! Checks of `async` limits: counted on this node and reconciled with the store periodically.
//!
//! They never wait, and work the same while the store is unavailable. Must not know: how counts are reconciled, what
//! else is in a batch.

use tollgate_engine::{Sharing, StateStore};
use tollgate_policy::model::Consistency;
use tollgate_store::{Op, QuotaCheck};

use crate::decision_source::DecisionSource;
use crate::leased_checks::SETTLED;
use crate::leases::SpendOutcome;
use crate::local_tier::{ChargedOn, LocalCharge};
use crate::reconcile::Reconciler;
use crate::tiered_decider::{TieredBatch, TieredDecider};

impl<S: StateStore> TieredDecider<'_, S> {
    /// Whether this node's own count decides a check.
    pub(crate) fn is_async(check: &QuotaCheck<'_>, sharing: &Sharing<'_>) -> bool {
        let is_spending = matches!(check.op, Op::Spend(_) | Op::Peek(_) | Op::Settle { .. });
        matches!(sharing.consistency, Consistency::Async(_))
            && is_spending
            && Reconciler::can_reconcile(&check.limit.limit)
    }

    /// Decides the `async` checks, and returns whether all of them admit. Checks of keys that the table has no room for
    /// go to the store.
    pub(crate) fn decide_async<const N: usize>(
        &self,
        batch: &mut TieredBatch<'_, N>,
        store_or_fallback: impl Fn(usize) -> DecisionSource,
    ) -> bool {
        let reconciled = &self.fleet.reconciler;
        let checks = batch.checks.iter().zip(&batch.sharing);
        for (position, ((check, sharing), source)) in checks.zip(&mut batch.sources).enumerate() {
            let DecisionSource::Async { partition } = *source else {
                continue;
            };
            let now = self.local.now();
            let outcome = match (check.op, sharing.consistency) {
                (Op::Settle { receipt, actual }, _) => {
                    reconciled.settle(check, &receipt, actual, now);
                    SpendOutcome::Admitted(SETTLED)
                }
                (_, Consistency::Async(interval)) => {
                    reconciled.spend(check, sharing.slot_key.as_ref(), interval, now)
                }
                _ => SpendOutcome::AskStore,
            };
            let (SpendOutcome::Admitted(reply) | SpendOutcome::Denied(reply)) = outcome else {
                *source = store_or_fallback(partition);
                continue;
            };
            if let Some(slot) = batch.replies.get_mut(position) {
                *slot = reply;
            }
            if !reply.outcome.is_admitted() {
                return false;
            }
            batch.charged.push(LocalCharge {
                position,
                limit: *check.limit,
                on: ChargedOn::AsyncCount,
            });
        }
        true
    }
}
