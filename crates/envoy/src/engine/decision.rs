//! Carries out a plan: charges its counters round by round, and turns the store's replies into the reply to Envoy.
//!
//! It is a state machine without IO, run by the same drivers as every decision. No charge can deny, so it does not matter
//! that a round is charged as a whole. Must not know: how rules are found, what replies mean.

use std::cell::Cell;
use std::fmt;

use arrayvec::ArrayVec;
use tollgate_core::compose::BatchOutcome;
use tollgate_core::{QuotaStatus, Timestamp};
use tollgate_engine::{Sharing, StoreSteps};
use tollgate_store::{
    IdentifiedLimit, Op, QuotaCheck, StoreError, StoreErrorKind, StoreKey, StoreReply,
};

use super::{DecideError, FileVersion};
use crate::config::{Charge, ChargePlan, CounterKey, EnvoyReply, MAX_DESCRIPTORS, Modes};

/// Buffers that each thread reuses for its decisions.
struct DecisionBuffers {
    keys: [CounterKey; MAX_DESCRIPTORS],
    replies: Vec<StoreReply>,
}

/// A decision by files in progress.
#[must_use = "a decision decides nothing until a driver runs it"]
pub struct EnvoyDecision<'a> {
    version: &'a FileVersion,
    plan: &'a ChargePlan<'a>,
    secret: [u8; 16],
    modes: Modes,
    /// The next round, and the number of rounds.
    round: u16,
    rounds: u16,
    batch: ArrayVec<PlannedCharge, MAX_DESCRIPTORS>,
    buffers: Box<DecisionBuffers>,
    /// The status of each counter, in the order of charges.
    statuses: ArrayVec<QuotaStatus, MAX_DESCRIPTORS>,
    failure: Option<StoreError>,
}

/// One charge of a round.
#[derive(Clone, Copy)]
struct PlannedCharge {
    /// Its index among the plan's charges.
    position: usize,
    ruled: IdentifiedLimit,
    op: Op,
}

impl<'a> EnvoyDecision<'a> {
    pub(super) fn new(
        version: &'a FileVersion,
        plan: &'a ChargePlan<'a>,
        secret: [u8; 16],
        modes: Modes,
    ) -> Self {
        let rounds = plan.charges().map(|charge| u16::from(charge.round));
        let rounds = rounds.max().map_or(0, |last| last.saturating_add(1));
        let statuses = plan.charges().map(|_| StoreReply::EMPTY.status);
        let mut decision = Self {
            version,
            plan,
            secret,
            modes,
            round: 0,
            rounds,
            batch: ArrayVec::new(),
            buffers: take_buffers(),
            statuses: statuses.take(MAX_DESCRIPTORS).collect(),
            failure: None,
        };
        decision.prepare_round();
        decision
    }

    /// The reply, after all rounds. `now` matters only for windows without a count.
    ///
    /// # Errors
    /// The store did not answer; some counters may have been charged.
    pub fn finish(self, now: Timestamp) -> Result<EnvoyReply<'a>, DecideError> {
        let Self {
            version,
            plan,
            modes,
            buffers: room,
            statuses,
            failure,
            ..
        } = self;
        OWN.set(Some(room));
        let reply = match failure {
            None => plan
                .reply(&statuses, now, modes)
                .ok_or_else(missing_counter),
            Some(error) => Err(error),
        };
        match reply {
            Ok(reply) => {
                version.rule_counters.record(plan, &reply, modes);
                Ok(reply)
            }
            Err(error) => {
                version.rule_counters.record_errors(plan);
                Err(DecideError::Store(error))
            }
        }
    }

    /// Prepares the checks of the next round that is not empty.
    fn prepare_round(&mut self) {
        self.batch.clear();
        while self.batch.is_empty() && self.round < self.rounds {
            let charges = self.plan.charges().enumerate();
            let of_round = |(_, charge): &(usize, Charge)| u16::from(charge.round) == self.round;
            for ((position, charge), key) in charges.filter(of_round).zip(&mut self.buffers.keys) {
                self.plan.key(&charge, self.secret, key);
                let Some(id) = self.version.id(charge.state) else {
                    self.failure = Some(missing_counter());
                    self.batch.clear();
                    return;
                };
                self.batch.push(PlannedCharge {
                    position,
                    ruled: IdentifiedLimit {
                        id,
                        limit: charge.limit,
                    },
                    op: charge.op,
                });
            }
            self.round = self.round.saturating_add(1);
        }
    }
}

impl StoreSteps for EnvoyDecision<'_> {
    #[inline]
    fn batch_len(&self) -> usize {
        self.batch.len()
    }

    #[inline]
    fn check(&self, position: usize) -> Option<QuotaCheck<'_>> {
        let charge = self.batch.get(position)?;
        Some(QuotaCheck {
            key: StoreKey::new(self.buffers.keys.get(position)?.as_bytes()).ok()?,
            limit: &charge.ruled,
            op: charge.op,
        })
    }

    fn sharing(&self, _position: usize) -> Sharing<'_> {
        Sharing::ENVOY_COUNTER
    }

    fn take_replies(&mut self) -> Vec<StoreReply> {
        let mut replies = std::mem::take(&mut self.buffers.replies);
        replies.clear();
        replies.resize(self.batch.len(), StoreReply::EMPTY);
        replies
    }

    fn resume(&mut self, replies: Vec<StoreReply>, outcome: Result<BatchOutcome, StoreError>) {
        if let Err(error) = outcome {
            self.failure = Some(error);
            self.batch.clear();
            return;
        }
        for (charge, reply) in self.batch.iter().zip(&replies) {
            if let Some(status) = self.statuses.get_mut(charge.position) {
                *status = reply.status;
            }
        }
        self.buffers.replies = replies;
        self.prepare_round();
    }
}

fn missing_counter() -> StoreError {
    StoreError::new(
        StoreErrorKind::BadRequest,
        "a counter has no id, no key or no reply",
    )
}

thread_local! {
    static OWN: Cell<Option<Box<DecisionBuffers>>> = const { Cell::new(None) };
}

/// Takes this thread's buffers. A decision that starts before another has ended allocates new ones.
fn take_buffers() -> Box<DecisionBuffers> {
    let new = || {
        Box::new(DecisionBuffers {
            keys: std::array::from_fn(|_| CounterKey::new()),
            replies: Vec::new(),
        })
    };
    OWN.take().unwrap_or_else(new)
}

impl fmt::Debug for EnvoyDecision<'_> {
    /// Keys are not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnvoyDecision")
            .field("round", &self.round)
            .field("batch", &self.batch.len())
            .finish_non_exhaustive()
    }
}
