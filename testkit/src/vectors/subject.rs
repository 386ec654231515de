//! Whatever decides: the contract that a store fulfils to be run against the vectors, and core's own states as the
//! first to fulfil it.
//!
//! Must not know: files, expectations.

use std::collections::HashMap;

use tollgate_core::limit::{Limit, LimitReply, Op, OpError, State, StateCheck, decide_all};
use tollgate_core::reservation::{
    Correction, ReservationId, ReservationLedger, ReservationOptions, ReservationStatus,
};
use tollgate_core::{Outcome, Timestamp};

use super::parse::LedgerStep;

/// What is asked of one key of one limit.
#[derive(Clone, Copy, Debug)]
pub struct SubjectRequest<'a> {
    /// The key, different for every limit of every case: a subject need not forget anything between cases.
    pub key: &'a str,
    /// The limit.
    pub limit: &'a Limit,
    /// The operation.
    pub op: Op,
}

/// What several limits answer together.
#[derive(Clone, Debug)]
pub struct SubjectDecision {
    /// The verdict.
    pub outcome: Outcome,
    /// The position of the limit that decided, if not all simply allow.
    pub binding: Option<usize>,
    /// What each limit answers, in the order in which they were asked.
    pub answers: Vec<LimitReply>,
}

/// What a reservation is answered: a limit's answer, or why nothing changes.
pub type SubjectReservation = Result<LimitReply, LedgerStep>;

/// Something that keeps state and decides. A store is one by its contract: its tests implement
/// [`Batches`](super::Batches).
///
/// Time is handed in. A store that reads its own clock must let tests hand it in too.
pub trait Subject {
    /// Decides on all asks at `now`: every one is charged if all admit, otherwise none.
    ///
    /// # Errors
    /// One of them cannot be carried out at all; nothing has changed.
    fn decide(
        &mut self,
        now: Timestamp,
        asks: &[SubjectRequest<'_>],
    ) -> Result<SubjectDecision, OpError>;

    /// Replaces the quota of a key. `new` is compiled to share state with `old`; what is owed stays owed.
    fn replace(&mut self, now: Timestamp, key: &str, old: &Limit, new: &Limit);

    /// Charges under an id. An id that is known answers as then and charges nothing.
    fn reserve(
        &mut self,
        now: Timestamp,
        terms: &ReservationOptions,
        id: ReservationId,
        ask: SubjectRequest<'_>,
    ) -> SubjectReservation;

    /// Settles a reservation at what was really used, or cancels it.
    fn close(
        &mut self,
        now: Timestamp,
        terms: &ReservationOptions,
        id: ReservationId,
        ask: SubjectRequest<'_>,
        actual: Option<u64>,
    ) -> SubjectReservation;
}

/// Core's states in a map, without a store: what every store is compared with.
#[derive(Debug, Default)]
pub struct CoreSubject {
    states: HashMap<String, State>,
    ledgers: HashMap<String, ReservationLedger>,
}

impl CoreSubject {
    fn one(&mut self, now: Timestamp, ask: SubjectRequest<'_>) -> Result<LimitReply, OpError> {
        let state = self.states.entry(ask.key.to_owned()).or_default();
        let transition = ask.limit.decide(state, now, ask.op)?;
        if let Some(edit) = transition.next {
            state.apply(edit);
        }
        Ok(LimitReply {
            outcome: transition.outcome,
            status: ask.limit.status(state, now),
            receipt: transition.receipt,
        })
    }

    fn ledger(&mut self, key: &str) -> &mut ReservationLedger {
        self.ledgers.entry(key.to_owned()).or_default()
    }
}

impl Subject for CoreSubject {
    fn decide(
        &mut self,
        now: Timestamp,
        asks: &[SubjectRequest<'_>],
    ) -> Result<SubjectDecision, OpError> {
        // The states leave the map for the decision, because several are borrowed mutably at once.
        let mut states: Vec<State> = asks
            .iter()
            .map(|ask| self.states.remove(ask.key).unwrap_or_default())
            .collect();
        let mut checks: Vec<StateCheck<'_>> = asks
            .iter()
            .zip(&mut states)
            .map(|(ask, state)| StateCheck {
                limit: ask.limit,
                state,
                op: ask.op,
            })
            .collect();
        let decided = decide_all(&mut checks, now);
        for (ask, state) in asks.iter().zip(states) {
            self.states.insert(ask.key.to_owned(), state);
        }
        let (verdict, answers) = decided.map_err(|(_, refused)| refused)?;
        Ok(SubjectDecision {
            outcome: verdict.outcome(),
            binding: verdict.binding(),
            answers,
        })
    }

    fn replace(&mut self, now: Timestamp, key: &str, old: &Limit, new: &Limit) {
        let state = self.states.entry(key.to_owned()).or_default();
        if let Some(edit) = new.carry_over(old, state, now) {
            state.apply(edit);
        }
    }

    fn reserve(
        &mut self,
        now: Timestamp,
        terms: &ReservationOptions,
        id: ReservationId,
        ask: SubjectRequest<'_>,
    ) -> SubjectReservation {
        match self.ledger(ask.key).status(now, terms, id) {
            ReservationStatus::Full => Err(LedgerStep::Full),
            ReservationStatus::Known(receipt) => {
                let peek = SubjectRequest {
                    op: Op::Spend(0),
                    ..ask
                };
                let answer = self.one(now, peek)?;
                Ok(LimitReply { receipt, ..answer })
            }
            ReservationStatus::Fresh => {
                let answer = self.one(now, ask)?;
                if answer.outcome.is_admitted() {
                    self.ledger(ask.key).open(now, terms, id, answer.receipt);
                }
                Ok(answer)
            }
        }
    }

    fn close(
        &mut self,
        now: Timestamp,
        terms: &ReservationOptions,
        id: ReservationId,
        ask: SubjectRequest<'_>,
        actual: Option<u64>,
    ) -> SubjectReservation {
        let ledger = self.ledger(ask.key);
        let correction = match actual {
            Some(actual) => ledger.settle(now, terms, id, actual),
            None => ledger.cancel(now, terms, id),
        };
        match correction {
            Correction::AlreadyClosed => Err(LedgerStep::AlreadyClosed),
            Correction::Expired => Err(LedgerStep::Expired),
            Correction::Unknown => Err(LedgerStep::Unknown),
            Correction::Settle { receipt, actual } => {
                let settle = SubjectRequest {
                    op: Op::Settle { receipt, actual },
                    ..ask
                };
                Ok(self.one(now, settle)?)
            }
        }
    }
}
