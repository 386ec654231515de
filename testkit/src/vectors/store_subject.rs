//! A store's contract as the vectors ask it: one translation for every store, so that a store's own tests say only how it
//! is called.
//!
//! Must not know: how any store decides, files, expectations.

use tollgate_core::Timestamp;
use tollgate_core::compose::BatchOutcome;
use tollgate_core::limit::{Limit, LimitReply, OpError};
use tollgate_core::reservation::{ReservationId, ReservationOptions};
use tollgate_store::{Op, ReplyNote, StoreReply};

use super::parse::LedgerStep;
use super::subject::{Subject, SubjectDecision, SubjectRequest, SubjectReservation};

/// One check of a batch: a key, its limit, and what is asked.
pub type VectorBatch<'a> = (&'a str, &'a Limit, Op);

/// A store that lets tests hand the time in.
pub trait Batches {
    /// Decides a batch at `now`, all or nothing. `terms` are those of the reservation that is asked about, if one is.
    ///
    /// # Errors
    /// The store says that the batch makes no sense; nothing has changed.
    fn batch(
        &mut self,
        now: Timestamp,
        terms: Option<&ReservationOptions>,
        asked: &[VectorBatch<'_>],
    ) -> Result<(BatchOutcome, Vec<StoreReply>), OpError>;

    /// Replaces the quota of a key, as [`Subject::replace`].
    fn change(&mut self, now: Timestamp, key: &str, old: &Limit, new: &Limit);
}

impl<S: Batches> Subject for S {
    fn decide(
        &mut self,
        now: Timestamp,
        asks: &[SubjectRequest<'_>],
    ) -> Result<SubjectDecision, OpError> {
        let asked: Vec<VectorBatch<'_>> = asks
            .iter()
            .map(|ask| (ask.key, ask.limit, ask.op))
            .collect();
        let (verdict, answers) = self.batch(now, None, &asked)?;
        if answers.iter().any(|a| a.note == ReplyNote::LeaseNotHeld) {
            return Err(OpError::NotHeld);
        }
        Ok(SubjectDecision {
            outcome: verdict.outcome(),
            binding: verdict.binding(),
            answers: answers.iter().map(plain).collect(),
        })
    }

    fn replace(&mut self, now: Timestamp, key: &str, old: &Limit, new: &Limit) {
        self.change(now, key, old, new);
    }

    fn reserve(
        &mut self,
        now: Timestamp,
        terms: &ReservationOptions,
        id: ReservationId,
        ask: SubjectRequest<'_>,
    ) -> SubjectReservation {
        // Only what is spent can be reserved.
        let Op::Spend(cost) = ask.op else {
            return Err(OpError::Unsupported.into());
        };
        let hold = terms.hold;
        reservation(self, now, terms, ask, Op::Reserve { id, cost, hold })
    }

    fn close(
        &mut self,
        now: Timestamp,
        terms: &ReservationOptions,
        id: ReservationId,
        ask: SubjectRequest<'_>,
        actual: Option<u64>,
    ) -> SubjectReservation {
        let op = match actual {
            Some(actual) => Op::SettleReserved { id, actual },
            None => Op::CancelReserved(id),
        };
        reservation(self, now, terms, ask, op)
    }
}

/// One reservation's call.
fn reservation(
    store: &mut impl Batches,
    now: Timestamp,
    terms: &ReservationOptions,
    ask: SubjectRequest<'_>,
    op: Op,
) -> SubjectReservation {
    let (_, answers) = store.batch(now, Some(terms), &[(ask.key, ask.limit, op)])?;
    let answer = answers.first().ok_or(OpError::Unsupported)?;
    match answer.note {
        ReplyNote::ReservationsFull => Err(LedgerStep::Full),
        ReplyNote::AlreadyClosed => Err(LedgerStep::AlreadyClosed),
        ReplyNote::ReservationExpired => Err(LedgerStep::Expired),
        ReplyNote::ReservationUnknown => Err(LedgerStep::Unknown),
        _ => Ok(plain(answer)),
    }
}

fn plain(answer: &StoreReply) -> LimitReply {
    LimitReply {
        outcome: answer.outcome,
        status: answer.status,
        receipt: answer.receipt,
    }
}
