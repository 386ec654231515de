//! Checks of leased limits: spent from slices of this node, for which the store is asked only now and then.
//!
//! Slices last while the store is away. When they are used up, the fallback quota decides as for any other limit; that is not
//! replayed to the store, which keeps leased limits by books of their own. Must not know: how slices are accounted for, what
//! else is in a batch.

use tollgate_core::{Outcome, Receipt};
use tollgate_engine::{Sharing, StateStore};
use tollgate_policy::model::Consistency;
use tollgate_store::{Lender, Op, QuotaCheck, StoreError, StoreKey, StoreReply};

use crate::breaker::Breaker;
use crate::decision_source::DecisionSource;
use crate::leases::{LocalLeases, SpendOutcome};
use crate::local_tier::{ChargedOn, LocalCharge};
use crate::tiered_decider::{TieredBatch, TieredDecider};

/// What slices say about a check.
enum LeaseReply {
    Reply(StoreReply),
    /// There is nothing here: another slice has to be borrowed.
    Borrow,
}

impl<S: StateStore> TieredDecider<'_, S> {
    /// Whether slices decide on a check.
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

    /// Decides on the leased checks one after another, and answers whether all of them are admitted.
    pub(crate) async fn decide_leased<const N: usize>(
        &self,
        batch: &mut TieredBatch<'_, N>,
    ) -> Result<bool, StoreError> {
        let Some(lender) = &self.fleet.lease_broker else {
            return Ok(true);
        };
        for position in 0..batch.checks.len() {
            let Some((check, part)) = leased_at(batch, position) else {
                continue;
            };
            let answer = match self.spend_lease(check) {
                LeaseReply::Reply(answer) => Some(answer),
                LeaseReply::Borrow => {
                    let sharing = batch.sharing.get(position);
                    let slot_key = sharing.and_then(|sharing| sharing.slot_key);
                    self.borrow(&**lender, part, check, slot_key).await
                }
            };
            if !self.apply_reply(batch, position, part, answer)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The same from the slices that are here, while nothing can be borrowed.
    pub(crate) fn decide_from_local_leases<const N: usize>(
        &self,
        batch: &mut TieredBatch<'_, N>,
    ) -> Result<bool, StoreError> {
        for position in 0..batch.checks.len() {
            let Some((check, part)) = leased_at(batch, position) else {
                continue;
            };
            let answer = match self.spend_lease(check) {
                LeaseReply::Reply(answer) => Some(answer),
                LeaseReply::Borrow => None,
            };
            if !self.apply_reply(batch, position, part, answer)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Notes what a slice answered; without an answer the fallback quota decides. Whether the check is admitted.
    fn apply_reply<const N: usize>(
        &self,
        batch: &mut TieredBatch<'_, N>,
        position: usize,
        part: usize,
        answer: Option<StoreReply>,
    ) -> Result<bool, StoreError> {
        let Some(answer) = answer else {
            let only = |(other, _): (usize, _)| match other == position {
                true => DecisionSource::Fallback { part },
                false => DecisionSource::Decided,
            };
            let sources = batch.sources.iter().enumerate().map(only).collect();
            let before = std::mem::replace(&mut batch.sources, sources);
            let admits = self.decide_by_fallback(batch, true);
            batch.sources = before;
            return admits;
        };
        if let Some(place) = batch.answers.get_mut(position) {
            *place = answer;
        }
        if !answer.outcome.is_admitted() {
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

    fn spend_lease(&self, check: &QuotaCheck<'_>) -> LeaseReply {
        let leases = &self.fleet.leases;
        let now = self.local.now();
        if let Op::Settle { receipt, actual } = check.op {
            leases.settle(check, &receipt, actual, now);
            return LeaseReply::Reply(SETTLED);
        }
        match leases.spend(&as_spend(check), now) {
            SpendOutcome::Borrow => LeaseReply::Borrow,
            taken => self
                .reply_for(taken, check)
                .map_or(LeaseReply::Borrow, LeaseReply::Reply),
        }
    }

    /// Borrows a slice and spends from it. `None`: the lender is away.
    async fn borrow(
        &self,
        lender: &dyn Lender,
        part: usize,
        check: &QuotaCheck<'_>,
        slot_key: Option<StoreKey<'_>>,
    ) -> Option<StoreReply> {
        let breaker = self.fleet.breakers().get(part);
        breaker.filter(|breaker| Breaker::is_closed(breaker))?;
        let now = || self.local.now();
        let leases = &self.fleet.leases;
        let check_spending = as_spend(check);
        let borrowed = leases.borrow(lender, slot_key, &check_spending, now);
        let borrowed = borrowed.await;
        self.fleet
            .record_call(&[part], now(), borrowed.as_ref().err());
        self.reply_for(borrowed.ok()?, check)
    }

    fn reply_for(&self, taken: SpendOutcome, check: &QuotaCheck<'_>) -> Option<StoreReply> {
        match (taken, check.op) {
            (SpendOutcome::Admitted(answer), _) => Some(answer),
            (SpendOutcome::Denied(answer), Op::ChargeAlways(cost)) => {
                // It is charged whether or not it is there: to the next slice.
                let now = self.local.now();
                let leases = &self.fleet.leases;
                leases.settle(check, &Receipt::default(), cost, now);
                Some(StoreReply {
                    outcome: Outcome::Allow,
                    ..answer
                })
            }
            (SpendOutcome::Denied(answer), _) => Some(answer),
            (SpendOutcome::Borrow | SpendOutcome::AskStore, _) => None,
        }
    }
}

/// The check at this position and its part of the store, if slices decide on it.
fn leased_at<'b, const N: usize>(
    batch: &TieredBatch<'b, N>,
    position: usize,
) -> Option<(&'b QuotaCheck<'b>, usize)> {
    match batch.sources.get(position)? {
        DecisionSource::Lease { part } => Some((batch.checks.get(position)?, *part)),
        _ => None,
    }
}

/// What is spent from a slice: also what is charged in any case.
const fn as_spend<'c>(check: &QuotaCheck<'c>) -> QuotaCheck<'c> {
    let op = match check.op {
        Op::ChargeAlways(cost) => Op::Spend(cost),
        op => op,
    };
    QuotaCheck { op, ..*check }
}

/// What was to be corrected was corrected.
pub(crate) const SETTLED: StoreReply = StoreReply {
    outcome: Outcome::Allow,
    ..StoreReply::EMPTY
};
