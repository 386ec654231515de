//! Checks of leased limits: decided from this node's leases. The store is only asked for new leases.
//!
//! Leases stay valid while the store is unavailable. When they are used up, the fallback quota decides. Its charges are
//! not replayed, because the store accounts for leased limits separately. Must not know: how leases are accounted for,
//! what else is in a batch.

use tollgate_core::{Outcome, Receipt};
use tollgate_engine::{DenialCaching, Sharing, StateStore};
use tollgate_policy::model::Consistency;
use tollgate_store::{LeaseBroker, Op, QuotaCheck, StoreError, StoreKey, StoreReply};

use crate::breaker::Breaker;
use crate::decision_source::DecisionSource;
use crate::leases::{LocalLeases, SpendOutcome};
use crate::local_tier::{ChargedOn, LocalCharge};
use crate::tiered_decider::{TieredBatch, TieredDecider};

/// What the local leases decide about a check.
enum LeaseReply {
    Reply(StoreReply),
    /// They are used up: another lease is needed.
    Borrow,
}

impl<S: StateStore> TieredDecider<'_, S> {
    /// Whether leases decide a check.
    pub(crate) fn is_leased(&self, check: &QuotaCheck<'_>, sharing: &Sharing<'_>) -> bool {
        let is_spending = matches!(
            check.op,
            Op::Spend(_) | Op::Peek(_) | Op::ChargeAlways(_) | Op::Settle { .. }
        );
        sharing.consistency == Consistency::Leased
            && is_spending
            && self.fleet.lease_broker.is_some()
            && LocalLeases::is_leasable(&check.limit.limit)
    }

    /// Decides the leased checks one by one, and returns whether all of them admit.
    pub(crate) async fn decide_leased<const N: usize>(
        &self,
        batch: &mut TieredBatch<'_, N>,
    ) -> Result<bool, StoreError> {
        let Some(broker) = &self.fleet.lease_broker else {
            return Ok(true);
        };
        for position in 0..batch.checks.len() {
            let Some((check, partition)) = leased_at(batch, position) else {
                continue;
            };
            let Some(sharing) = batch.sharing.get(position) else {
                continue;
            };
            let reply = match self.spend_lease(check, sharing.slot_key.as_ref()) {
                LeaseReply::Reply(reply) => Some(reply),
                LeaseReply::Borrow => {
                    let is_alone = batch.checks.len() == 1;
                    // Boxed, so that the futures of other decisions stay small.
                    let borrow = self.borrow(&**broker, partition, check, sharing, is_alone);
                    Box::pin(borrow).await
                }
            };
            if !self.apply_reply(batch, position, partition, reply)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The same from the leases at hand, while no lease can be requested.
    pub(crate) fn decide_from_local_leases<const N: usize>(
        &self,
        batch: &mut TieredBatch<'_, N>,
    ) -> Result<bool, StoreError> {
        for position in 0..batch.checks.len() {
            let Some((check, partition)) = leased_at(batch, position) else {
                continue;
            };
            let sharing = batch.sharing.get(position);
            let slot_key = sharing.and_then(|sharing| sharing.slot_key);
            let reply = match self.spend_lease(check, slot_key.as_ref()) {
                LeaseReply::Reply(reply) => Some(reply),
                LeaseReply::Borrow => None,
            };
            if !self.apply_reply(batch, position, partition, reply)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Applies a lease's reply; without one the fallback quota decides. Returns whether the check is admitted.
    fn apply_reply<const N: usize>(
        &self,
        batch: &mut TieredBatch<'_, N>,
        position: usize,
        partition: usize,
        reply: Option<StoreReply>,
    ) -> Result<bool, StoreError> {
        let Some(reply) = reply else {
            let only = |(other, _): (usize, _)| match other == position {
                true => DecisionSource::Fallback { partition },
                false => DecisionSource::Decided,
            };
            let sources = batch.sources.iter().enumerate().map(only).collect();
            let before = std::mem::replace(&mut batch.sources, sources);
            let admits = self.decide_by_fallback(batch, true);
            batch.sources = before;
            return admits;
        };
        if let Some(slot) = batch.replies.get_mut(position) {
            *slot = reply;
        }
        if !reply.outcome.is_admitted() {
            return Ok(false);
        }
        if let Some(check) = batch.checks.get(position) {
            batch.charged.push(LocalCharge {
                position,
                limit: *check.limit,
                on: ChargedOn::Lease,
            });
        }
        Ok(true)
    }

    fn spend_lease(&self, check: &QuotaCheck<'_>, slot_key: Option<&StoreKey<'_>>) -> LeaseReply {
        let leases = &self.fleet.leases;
        let now = self.local.now();
        if let Op::Settle { receipt, actual } = check.op {
            leases.settle(slot_key, check, &receipt, actual, now);
            return LeaseReply::Reply(SETTLED);
        }
        match leases.spend(&as_spend(check), now) {
            SpendOutcome::Borrow => LeaseReply::Borrow,
            outcome => self
                .reply_for(outcome, check, slot_key)
                .map_or(LeaseReply::Borrow, LeaseReply::Reply),
        }
    }

    /// Requests a lease and spends from it, or lets the broker decide if a lease does not pay. `None`: the broker is
    /// unavailable.
    async fn borrow(
        &self,
        broker: &dyn LeaseBroker,
        partition: usize,
        check: &QuotaCheck<'_>,
        sharing: &Sharing<'_>,
        is_alone: bool,
    ) -> Option<StoreReply> {
        let breaker = self.fleet.breakers().get(partition);
        breaker.filter(|breaker| Breaker::is_closed(breaker))?;
        let now = || self.local.now();
        let leases = &self.fleet.leases;
        let (spend_check, slot_key) = (as_spend(check), sharing.slot_key);
        // Only a charge on a lease can be refunded: because another limit denies, or because of the response.
        let is_final = is_alone && sharing.denial_caching == DenialCaching::UntilRetryAfter;
        let is_direct = is_final
            && matches!(check.op, Op::Spend(_))
            && !leases.is_lease_worthwhile(check, now());
        let borrowed = match is_direct {
            true => leases.spend_at_broker(broker, slot_key, check).await,
            false => leases.borrow(broker, slot_key, &spend_check, now).await,
        };
        self.fleet
            .record_call(&[partition], now(), borrowed.as_ref().err());
        self.reply_for(borrowed.ok()?, check, slot_key.as_ref())
    }

    fn reply_for(
        &self,
        outcome: SpendOutcome,
        check: &QuotaCheck<'_>,
        slot_key: Option<&StoreKey<'_>>,
    ) -> Option<StoreReply> {
        match (outcome, check.op) {
            (SpendOutcome::Admitted(reply), _) => Some(reply),
            (SpendOutcome::Denied(reply), Op::ChargeAlways(cost)) => {
                // It is charged even if nothing is left: to the next lease.
                let now = self.local.now();
                let leases = &self.fleet.leases;
                leases.settle(slot_key, check, &Receipt::default(), cost, now);
                Some(StoreReply {
                    outcome: Outcome::Allow,
                    ..reply
                })
            }
            (SpendOutcome::Denied(reply), _) => Some(reply),
            (SpendOutcome::Borrow | SpendOutcome::AskStore, _) => None,
        }
    }
}

/// The check at this position and its partition, if leases decide it.
fn leased_at<'b, const N: usize>(
    batch: &TieredBatch<'b, N>,
    position: usize,
) -> Option<(&'b QuotaCheck<'b>, usize)> {
    match batch.sources.get(position)? {
        DecisionSource::Lease { partition } => Some((batch.checks.get(position)?, *partition)),
        _ => None,
    }
}

/// The check as a spend: `ChargeAlways` also spends from a lease.
const fn as_spend<'c>(check: &QuotaCheck<'c>) -> QuotaCheck<'c> {
    let op = match check.op {
        Op::ChargeAlways(cost) => Op::Spend(cost),
        op => op,
    };
    QuotaCheck { op, ..*check }
}

/// The reply to a settlement.
pub(crate) const SETTLED: StoreReply = StoreReply {
    outcome: Outcome::Allow,
    ..StoreReply::EMPTY
};
