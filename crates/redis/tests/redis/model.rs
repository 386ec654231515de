//! The store contract's operations, decided by core: the specification of the scripts.

use tollgate_core::limit::{Limit, Quota, State};
use tollgate_core::reservation::{
    Correction, ReservationLedger, ReservationOptions, ReservationStatus,
};
use tollgate_core::{Nanos, Outcome, Receipt, SlidingCounter, Timestamp};
use tollgate_redis::ReservationRetention;
use tollgate_store::{Op, ReplyNote, StoreReply};

/// One key of one limit, decided by core.
#[derive(Debug, Default)]
pub(crate) struct Model {
    state: State,
    ledger: ReservationLedger,
    /// When each reservation in the ledger will be forgotten.
    forgotten_at: Vec<Timestamp>,
    /// The quota under which a counter's state was written.
    writer: Option<SlidingCounter>,
}

impl Model {
    pub(crate) fn of(state: State) -> Self {
        Self {
            state,
            ..Self::default()
        }
    }

    pub(crate) fn status(&self, limit: &Limit, now: Timestamp) -> tollgate_core::QuotaStatus {
        limit.status(&self.inherited(limit, now), now)
    }

    /// The counter quota under which the state was written and the present one, if their window lengths differ.
    fn change_of_length(&self, limit: &Limit) -> Option<(SlidingCounter, SlidingCounter)> {
        let (old, Quota::SlidingCounter(new)) = (self.writer?, limit.quota()) else {
            return None;
        };
        (old.window() != new.window()).then_some((old, *new))
    }

    /// The state for this limit: a counter of another window length is converted as core does.
    fn inherited(&self, limit: &Limit, now: Timestamp) -> State {
        match (&self.state, self.change_of_length(limit)) {
            (State::Counter(counter), Some((old, new))) => {
                State::Counter(new.convert_state(&old, *counter, now))
            }
            (state, _) => state.clone(),
        }
    }

    /// Whether a converted counter of another window length is not empty.
    pub(crate) fn is_carried_over(&self, limit: &Limit, now: Timestamp) -> bool {
        let is_something = self.status(limit, now).reset_after > Nanos::ZERO;
        self.change_of_length(limit).is_some() && is_something
    }

    /// `None` if the algorithm does not support the operation.
    pub(crate) fn step(
        &mut self,
        limit: &Limit,
        now: Timestamp,
        op: Op,
        retention: ReservationRetention,
    ) -> Option<StoreReply> {
        let options = |hold| ReservationOptions {
            hold,
            retention: retention.retention,
            max_records: retention.max_records as usize,
        };
        match op {
            Op::Spend(_)
            | Op::SpendUpTo(_)
            | Op::ChargeAlways(_)
            | Op::Credit(_)
            | Op::Settle { .. }
            | Op::Acquire { .. }
            | Op::Release(_) => self.apply(limit, now, op, ReplyNote::Plain),
            Op::Renew(_) => Some(self.apply(limit, now, op, ReplyNote::Plain).unwrap_or_else(
                || {
                    let reply = self.refused(limit, now, Outcome::Allow, ReplyNote::LeaseNotHeld);
                    StoreReply {
                        receipt: Receipt::default(),
                        ..reply
                    }
                },
            )),
            Op::Peek(cost) => self.peek(limit, now, cost),
            Op::Reserve { id, cost, hold } => {
                let options = options(hold);
                match self.ledger.status(now, &options, id) {
                    ReservationStatus::Known(receipt) => {
                        let peeked =
                            self.apply(limit, now, Op::Spend(0), ReplyNote::AlreadyReserved)?;
                        Some(StoreReply { receipt, ..peeked })
                    }
                    ReservationStatus::Full => {
                        let room = self.forgotten_at.iter().filter(|at| **at > now).min();
                        let retry_after = room.map_or(Nanos::ZERO, |at| at.since(now));
                        let outcome = Outcome::Deny { retry_after };
                        Some(self.refused(limit, now, outcome, ReplyNote::ReservationsFull))
                    }
                    ReservationStatus::Fresh => {
                        let answer = self.apply(limit, now, Op::Spend(cost), ReplyNote::Plain)?;
                        if answer.outcome.is_admitted() {
                            self.forgotten_at.retain(|at| *at > now);
                            self.forgotten_at
                                .push(now.after(hold).after(retention.retention));
                            self.ledger.open(now, &options, id, answer.receipt);
                        }
                        Some(answer)
                    }
                }
            }
            Op::SettleReserved { id, actual } => {
                let correction = self.ledger.settle(now, &options(Nanos::ZERO), id, actual);
                self.correct(limit, now, correction)
            }
            Op::CancelReserved(id) => {
                let correction = self.ledger.cancel(now, &options(Nanos::ZERO), id);
                self.correct(limit, now, correction)
            }
            _ => None,
        }
    }

    fn correct(
        &mut self,
        limit: &Limit,
        now: Timestamp,
        correction: Correction,
    ) -> Option<StoreReply> {
        let (op, note) = match correction {
            Correction::Settle { receipt, actual } => {
                (Op::Settle { receipt, actual }, ReplyNote::Plain)
            }
            Correction::AlreadyClosed => (Op::Spend(0), ReplyNote::AlreadyClosed),
            Correction::Expired => (Op::Spend(0), ReplyNote::ReservationExpired),
            Correction::Unknown => (Op::Spend(0), ReplyNote::ReservationUnknown),
        };
        self.apply(limit, now, op, note)
    }

    fn apply(
        &mut self,
        limit: &Limit,
        now: Timestamp,
        op: Op,
        note: ReplyNote,
    ) -> Option<StoreReply> {
        let found = self.inherited(limit, now);
        let transition = limit.decide(&found, now, op).ok()?;
        if self.change_of_length(limit).is_some() || transition.next.is_some() {
            self.writer = match limit.quota() {
                Quota::SlidingCounter(counter) => Some(*counter),
                _ => None,
            };
        }
        self.state = found;
        if let Some(edit) = transition.next {
            self.state.apply(edit);
        }
        Some(StoreReply {
            outcome: transition.outcome,
            status: limit.status(&self.state, now),
            receipt: transition.receipt,
            note,
        })
    }

    /// A peek changes nothing.
    fn peek(&mut self, limit: &Limit, now: Timestamp, cost: u64) -> Option<StoreReply> {
        let found = self.inherited(limit, now);
        let transition = limit.decide(&found, now, Op::Spend(cost)).ok()?;
        Some(StoreReply {
            outcome: transition.outcome,
            status: limit.status(&found, now),
            receipt: Receipt {
                cost: 0,
                ..transition.receipt
            },
            note: ReplyNote::Plain,
        })
    }

    fn refused(
        &self,
        limit: &Limit,
        now: Timestamp,
        outcome: Outcome,
        note: ReplyNote,
    ) -> StoreReply {
        StoreReply {
            outcome,
            status: self.status(limit, now),
            receipt: Receipt {
                at: now,
                ..Receipt::default()
            },
            note,
        }
    }
}
