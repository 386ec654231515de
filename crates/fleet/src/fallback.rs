//! Decisions on this node while the store does not answer: by a fallback quota, or by the limit's `on_store_failure`.
//!
//! Must not know: why the store is not asked, breakers, what else decides.

use arrayvec::ArrayVec;
use tollgate_engine::{Sharing, StateStore};
use tollgate_policy::model::OnStoreFailure;
use tollgate_store::{
    IdentifiedLimit, Op, QuotaCheck, ReplyNote, StoreError, StoreErrorKind, StoreReply,
};

use crate::decision_source::DecisionSource;
use crate::local_tier::{ChargedOn, LocalCharge};
use crate::tiered_decider::{TieredBatch, TieredDecider, UNASKED};

impl<S: StateStore> TieredDecider<'_, S> {
    /// Decides the checks that the store does not answer. If one of them denies, none is charged. `is_lost`: the store
    /// may have charged them, so they are not replayed.
    pub(crate) fn decide_by_fallback<const N: usize>(
        &self,
        batch: &mut TieredBatch<'_, N>,
        is_lost: bool,
    ) -> Result<bool, StoreError> {
        self.fleet.counters.count_fallback();
        // Charged after the earlier charges, and removed from the list if not admitted.
        let before = batch.charged.len();
        let checks = batch.checks.iter().zip(&batch.sharing);
        for (position, ((check, sharing), source)) in checks.zip(&batch.sources).enumerate() {
            let (DecisionSource::Fallback { partition }, Some(reply)) =
                (source, batch.replies.get_mut(position))
            else {
                continue;
            };
            // A settlement is dropped: charges stay, and permits return when their leases expire.
            if is_correction(check.op) {
                *reply = WAIVED;
                continue;
            }
            match sharing.on_failure {
                OnStoreFailure::Closed => {
                    batch.charged.truncate(before);
                    return Err(store_unavailable());
                }
                OnStoreFailure::Open => *reply = WAIVED,
                OnStoreFailure::Local => match self.fallback_quota(check, sharing) {
                    Some(limit) => batch.charged.push(LocalCharge {
                        position,
                        limit,
                        on: ChargedOn::Fallback {
                            replay_to: (!is_lost).then_some(*partition),
                        },
                    }),
                    None => {
                        *reply = StoreReply {
                            note: ReplyNote::FallbackQuota,
                            ..StoreReply::EMPTY
                        };
                        batch.charged.truncate(before);
                        return Ok(false);
                    }
                },
            }
        }
        let fallbacks = batch.charged.get(before..).unwrap_or_default();
        let is_admitted = self.decide_locally::<N>(batch.checks, fallbacks, batch.replies);
        for charge in fallbacks {
            if let Some(reply) = batch.replies.get_mut(charge.position) {
                reply.note = ReplyNote::FallbackQuota;
            }
        }
        if !matches!(is_admitted, Ok(true)) {
            batch.charged.truncate(before);
        }
        is_admitted
    }

    /// Queues what was admitted without the store, to replay it later.
    pub(crate) fn queue_replay<const N: usize>(&self, batch: &TieredBatch<'_, N>) {
        for charge in &batch.charged {
            let ChargedOn::Fallback {
                replay_to: Some(partition),
            } = charge.on
            else {
                continue;
            };
            let check = batch.checks.get(charge.position);
            let (Some(check), Some(reply)) = (check, batch.replies.get(charge.position)) else {
                continue;
            };
            let spends = matches!(
                check.op,
                Op::Spend(_) | Op::SpendUpTo(_) | Op::ChargeAlways(_)
            );
            if spends {
                let slot_key = batch.sharing.get(charge.position);
                let slot_key = slot_key.and_then(|sharing| sharing.slot_key);
                let cost = reply.receipt.cost;
                let replay = &self.fleet.replay;
                replay.record(partition, check, slot_key.as_ref(), cost);
            }
        }
    }

    /// This node's fallback quota for a check.
    pub(crate) fn fallback_quota(
        &self,
        check: &QuotaCheck<'_>,
        sharing: &Sharing<'_>,
    ) -> Option<IdentifiedLimit> {
        let limit = sharing.base_limit.unwrap_or(&check.limit.limit);
        let quotas = &self.fleet.local_quotas;
        let nodes = self.fleet.nodes();
        let limit = quotas.with(check.limit.id, limit, nodes, |quotas| {
            match sharing.is_envoy_counter {
                true => quotas.counter,
                false => quotas.fallback,
            }
        })?;
        Some(IdentifiedLimit {
            id: check.limit.id,
            limit,
        })
    }

    /// Decides some checks with these quotas on this node, all or nothing.
    pub(crate) fn decide_locally<const N: usize>(
        &self,
        checks: &[QuotaCheck<'_>],
        charges: &[LocalCharge],
        replies: &mut [StoreReply],
    ) -> Result<bool, StoreError> {
        let mut batch: ArrayVec<QuotaCheck<'_>, N> = ArrayVec::new();
        for charge in charges {
            if let Some(check) = checks.get(charge.position) {
                batch.push(QuotaCheck {
                    limit: &charge.limit,
                    ..*check
                });
            }
        }
        if batch.is_empty() {
            return Ok(true);
        }
        let mut local_replies = [StoreReply::EMPTY; N];
        let local_replies = local_replies.get_mut(..batch.len()).unwrap_or_default();
        let outcome = self.local.decide(&batch, local_replies)?;
        for (charge, local_reply) in charges.iter().zip(local_replies) {
            if let Some(reply) = replies.get_mut(charge.position) {
                *reply = *local_reply;
            }
        }
        Ok(outcome.is_admitted())
    }
}

/// Whether it settles an earlier decision of the store.
const fn is_correction(op: Op) -> bool {
    matches!(
        op,
        Op::Settle { .. }
            | Op::SettleReserved { .. }
            | Op::CancelReserved(_)
            | Op::Renew(_)
            | Op::Release(_)
    )
}

/// Admitted because the store cannot be asked.
const WAIVED: StoreReply = StoreReply {
    note: ReplyNote::FailOpen,
    ..UNASKED
};

fn store_unavailable() -> StoreError {
    StoreError::new(
        StoreErrorKind::Unreachable,
        "the store partition of the key is unavailable",
    )
}
