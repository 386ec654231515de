//! The engine as one node of a fleet: the asynchronous driver of decisions and settlements.
//!
//! Must not know: how batches are decided on two tiers, transports.

use tollgate_core::compose::BatchOutcome;
use tollgate_engine::control::{AdjustmentScope, PreparedAdjustment, fewest_remaining};
use tollgate_engine::{
    CheckOptions, Engine, KeyState, Response, SettleAction, Sharing, StateStore, StoreSteps,
    Ticket, Verdict, checks,
};
use tollgate_policy::attributes::Attributes;
use tollgate_store::contract::MAX_CHECKS;
use tollgate_store::{KeyTooLong, StoreError, StoreErrorKind, StoreKey, StoreReply};

use crate::abandoned_tickets::AbandonGuard;
use crate::fleet::Fleet;
use crate::join_all::join_all;
use crate::sharing_policy::SharingPolicy;
use crate::tiered_decider::TieredDecider;

/// The most tickets that one round cancels.
const MAX_CANCELLED_PER_ROUND: usize = 256;

/// An engine whose states a fleet shares. The engine's own store is the local tier.
#[derive(Debug)]
pub struct FleetEngine<'e, S> {
    engine: &'e Engine<S>,
    fleet: &'e Fleet,
}

impl<S> Clone for FleetEngine<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for FleetEngine<'_, S> {}

impl<'e, S: StateStore> FleetEngine<'e, S> {
    /// This engine as a node of this fleet.
    #[must_use]
    pub const fn new(engine: &'e Engine<S>, fleet: &'e Fleet) -> Self {
        Self { engine, fleet }
    }

    /// Decides on a request like [`Engine::check`], with the fleet. If the future is dropped before the verdict is
    /// ready, [`cancel_abandoned`](Self::cancel_abandoned) refunds its charges.
    pub async fn check(self, request: &dyn Attributes, options: CheckOptions) -> Verdict {
        let mut decision = self.engine.fleet_decision(request, options);
        let decider = TieredDecider::new(self.fleet, self.engine.store());
        if decider.is_store_unavailable() {
            decider.run_without_store(&mut decision);
            return decision.into_verdict();
        }
        let mut until_decided = AbandonGuard {
            decision: &mut decision,
            abandoned: &self.fleet.abandoned,
            is_decided: false,
        };
        self.run(until_decided.decision).await;
        until_decided.is_decided = true;
        drop(until_decided);
        decision.into_verdict()
    }

    /// [`Engine::respond`], with the fleet.
    ///
    /// # Errors
    /// The store failed for some of the operations; all others were carried out.
    pub async fn respond(self, ticket: Ticket, response: &dyn Response) -> Result<(), StoreError> {
        let settled = self.settle_by(&ticket, SettleAction::Respond(response));
        settled.await.map(|_| ())
    }

    /// [`Engine::settle`], with the fleet.
    ///
    /// # Errors
    /// The store failed for some of the operations; all others were carried out.
    pub async fn settle(self, ticket: Ticket, actual: u64) -> Result<(), StoreError> {
        let settled = self.settle_by(&ticket, SettleAction::Settle(actual));
        settled.await.map(|_| ())
    }

    /// [`Engine::cancel`], with the fleet.
    ///
    /// # Errors
    /// The store failed for some of the operations; all others were carried out.
    pub async fn cancel(self, ticket: Ticket) -> Result<(), StoreError> {
        let settled = self.settle_by(&ticket, SettleAction::Cancel);
        settled.await.map(|_| ())
    }

    /// [`Engine::renew`], with the fleet.
    ///
    /// # Errors
    /// The store did not answer.
    pub async fn renew(self, ticket: &Ticket) -> Result<bool, StoreError> {
        self.settle_by(ticket, SettleAction::Renew).await
    }

    /// Cancels the tickets of abandoned decisions and settles those of requests that have ended. Call it periodically. A
    /// round is bounded, so that it does not delay other maintenance.
    pub async fn cancel_abandoned(self) {
        let queued = self.fleet.abandoned.take(MAX_CANCELLED_PER_ROUND);
        let calls = queued.into_iter().map(|(ticket, response)| {
            Box::pin(async move {
                match response {
                    Some(response) => self.respond(ticket, &response).await,
                    None => self.cancel(ticket).await,
                }
            })
        });
        // If one fails, its permits return when their leases expire.
        let _settled = join_all(calls.collect()).await;
    }

    /// Resets a key's usage in the shared store; [`Control::reset`](tollgate_engine::Control::reset) does so on this
    /// node. Returns whether there was any usage.
    ///
    /// # Errors
    /// The store did not answer. Some states may be erased.
    pub async fn erase(self, limit: &str, values: &[&str]) -> Result<bool, StoreError> {
        let states = self.engine.generation().key_states(limit, values);
        let mut was_used = Ok(false);
        for state in &states {
            let erased = self.erase_state(state).await;
            was_used = was_used.and_then(|before| Ok(before | erased?));
            if was_used.is_err() {
                break;
            }
        }
        // A concurrent decision may have cached the denial again, also of a state that was erased before an error.
        self.engine.control().clear_cached_denials();
        was_used
    }

    /// Carries out an operator's adjustment in the shared store, then on the states that belong to this node. Returns the
    /// units that are left.
    ///
    /// # Errors
    /// The store did not answer. Nothing was changed, unless the error [may have charged](StoreError::may_have_charged).
    pub async fn adjust(self, prepared: &PreparedAdjustment) -> Result<u64, StoreError> {
        let (slot_keys, checks) = prepared.checks(AdjustmentScope::Shared)?;
        let mut replies = vec![StoreReply::EMPTY; checks.len()];
        let remote = self.fleet.remote();
        // Charges and refunds are never denied.
        let _outcome = remote.decide(&slot_keys, &checks, &mut replies).await?;
        let local = self.engine.store();
        for (check, reply) in checks.iter().zip(&replies) {
            // A charge also counts while the store is unavailable.
            self.fleet.record_admitted(local, check, reply);
        }
        // States of this node guard it beside the shared ones; a failure there does not undo the adjustment.
        let own = prepared
            .apply(local, AdjustmentScope::ThisNode)
            .ok()
            .flatten();
        let remaining = fewest_remaining(&replies);
        Ok(remaining.into_iter().chain(own).min().unwrap_or(0))
    }

    async fn erase_state(self, state: &KeyState) -> Result<bool, StoreError> {
        let too_long =
            |error: KeyTooLong| StoreError::new(StoreErrorKind::BadRequest, error.to_string());
        let key = StoreKey::new(&state.key).map_err(too_long)?;
        let slot_key = state.slot_key.as_deref().map(StoreKey::new);
        let slot_key = slot_key.transpose().map_err(too_long)?;
        let remote = self.fleet.remote();
        remote.erase(slot_key, key, &state.limit).await
    }

    async fn settle_by(
        self,
        ticket: &Ticket,
        action: SettleAction<'_>,
    ) -> Result<bool, StoreError> {
        let mut settlement = ticket.settlement(action);
        self.run(&mut settlement).await;
        settlement.finish()
    }

    /// Runs a procedure on both tiers.
    pub async fn run<P: StoreSteps + Sync>(self, steps: &mut P) {
        TieredDecider::new(self.fleet, self.engine.store())
            .run(steps)
            .await;
    }
}

impl<S: StateStore> TieredDecider<'_, S> {
    /// Runs a procedure: the shared store and the local tier decide each of its batches.
    pub async fn run<P: StoreSteps + Sync>(self, steps: &mut P) {
        loop {
            let mut replies = match steps.batch_len() {
                0 => return,
                _ => steps.take_replies(),
            };
            let outcome = match steps.batch_len() {
                0..=1 => self.decide_batch::<1, P>(steps, &mut replies).await,
                // Boxed, so that the most frequent futures stay small.
                2..=4 => Box::pin(self.decide_batch::<4, P>(steps, &mut replies)).await,
                5..=32 => Box::pin(self.decide_batch::<32, P>(steps, &mut replies)).await,
                _ => Box::pin(self.decide_batch::<MAX_CHECKS, P>(steps, &mut replies)).await,
            };
            steps.resume(replies, outcome);
        }
    }

    async fn decide_batch<const N: usize, P: StoreSteps + Sync>(
        &self,
        steps: &P,
        replies: &mut [StoreReply],
    ) -> Result<BatchOutcome, StoreError> {
        let checks = checks::<N, P>(steps);
        self.decide::<N>(&checks, &StepSharing(steps), replies)
            .await
    }

    /// Runs a procedure while every partition of the store is unavailable. Nothing is awaited.
    pub(crate) fn run_without_store<P: StoreSteps + Sync>(&self, steps: &mut P) {
        loop {
            match steps.batch_len() {
                0 => return,
                1 => self.decide_batch_without_store::<1, P>(steps),
                2..=4 => self.decide_batch_without_store::<4, P>(steps),
                5..=32 => self.decide_batch_without_store::<32, P>(steps),
                _ => self.decide_batch_without_store::<MAX_CHECKS, P>(steps),
            }
        }
    }

    fn decide_batch_without_store<const N: usize, P: StoreSteps + Sync>(&self, steps: &mut P) {
        let mut replies = steps.take_replies();
        let checks = checks::<N, P>(steps);
        let outcome = match checks.len() == replies.len() {
            true => self.decide_without_store::<N>(&checks, &StepSharing(steps), &mut replies),
            false => Err(incomplete_batch()),
        };
        drop(checks);
        steps.resume(replies, outcome);
    }
}

/// The in-memory store returns the same error.
fn incomplete_batch() -> StoreError {
    StoreError::new(StoreErrorKind::BadRequest, "a check has no quota or no key")
}

/// The sharing settings of a procedure's batch.
struct StepSharing<'a, P>(&'a P);

impl<P: StoreSteps + Sync> SharingPolicy for StepSharing<'_, P> {
    fn sharing(&self, position: usize) -> Sharing<'_> {
        self.0.sharing(position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_store::MemoryStore;

    /// Servers run decisions on any of their threads.
    #[test]
    fn decision_futures_are_send() {
        fn is_send<T: Send>(_: &T) {}
        fn check(
            engine: FleetEngine<'_, MemoryStore>,
            request: &dyn Attributes,
            options: CheckOptions,
            ticket: Ticket,
        ) {
            is_send(&engine.check(request, options));
            is_send(&engine.respond(ticket, &200));
        }
        let _compiles = check;
    }
}
