//! Decodes replies: core decides on the state that the script saw, and its result is the reply.
//!
//! The script's own outcome is in the reply too. If core disagrees, the reply is not from our script or a port is
//! wrong, and decoding fails. Must not know: connections, how calls were encoded.

use tollgate_core::compose::BatchOutcome;
use tollgate_core::concurrency::LeaseId;
use tollgate_core::limit::{Edit, Limit};
use tollgate_core::{Outcome, Receipt, Timestamp, Transition};
use tollgate_store::{Op, QuotaCheck, ReplyNote, StoreError, StoreErrorKind, StoreReply};

use super::algorithm;
use super::ledger::{LedgerReply, LedgerStatus};
use super::observed_state::{ObservedState, ReplyReader};

/// The result of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchReply {
    /// The outcome of the batch.
    pub outcome: BatchOutcome,
    /// The server's time of the decision.
    pub now: Timestamp,
    /// How many states could not be parsed and counted as absent.
    pub corrupt: u64,
}

/// One decoded check.
struct DecodedCheck {
    observed: ObservedState,
    transition: Transition<Edit>,
    note: ReplyNote,
    /// Decided, but nothing is stored.
    is_peek: bool,
    /// The receipt of an earlier charge, to be returned again.
    earlier: Option<Receipt>,
}

/// Decodes the reply to these checks into `answers`.
///
/// # Errors
///
/// The reply is not one that the script sends.
pub fn decode(
    checks: &[QuotaCheck<'_>],
    reply: &[i64],
    answers: &mut [StoreReply],
) -> Result<BatchReply, StoreError> {
    let mut reader = ReplyReader(reply.iter());
    // Most batches have one check, for which nothing is allocated.
    let mut first = None;
    let mut others = Vec::with_capacity(checks.len().saturating_sub(1));
    let keep = |decoded| match &first {
        None => first = Some(decoded),
        Some(_) => others.push(decoded),
    };
    let batch = read(checks, &mut reader, keep).ok_or_else(invalid_reply)?;
    if reader.int().is_some() {
        return Err(invalid_reply());
    }
    let decoded = first.into_iter().chain(others);
    for ((check, decoded), answer) in checks.iter().zip(decoded).zip(answers) {
        *answer = decoded.answer(&check.limit.limit, &batch);
    }
    Ok(batch)
}

fn read(
    checks: &[QuotaCheck<'_>],
    reader: &mut ReplyReader<'_>,
    mut keep: impl FnMut(DecodedCheck),
) -> Option<BatchReply> {
    let now = Timestamp::from_nanos(reader.pair()?);
    let is_admitted = reader.int()?;
    let corrupt = reader.count()?;
    let mut outcome = BatchOutcome::default();
    for check in checks {
        let decoded = DecodedCheck::read(check, reader, now)?;
        outcome.add(decoded.transition.outcome);
        keep(decoded);
    }
    let batch = BatchReply {
        outcome,
        now,
        corrupt,
    };
    (is_admitted == i64::from(outcome.is_admitted())).then_some(batch)
}

fn invalid_reply() -> StoreError {
    StoreError::new(
        StoreErrorKind::InvalidReply,
        "the script's reply does not match the call",
    )
}

impl DecodedCheck {
    fn read(check: &QuotaCheck<'_>, reader: &mut ReplyReader<'_>, now: Timestamp) -> Option<Self> {
        let quota = check.limit.limit.quota();
        let ledger = match check.op {
            Op::Reserve { .. } | Op::SettleReserved { .. } | Op::CancelReserved(_) => {
                Some(LedgerReply::read(reader, quota)?)
            }
            _ => None,
        };
        let id = lease_of(check.op);
        let observed = algorithm::observe(quota, reader, id)?;
        let core_call = CoreCall::new(check.op, ledger, observed.is_held, now)?;
        let nothing = |outcome| Transition {
            outcome,
            next: None,
            receipt: Receipt {
                cost: 0,
                at: now,
                mark: 0,
            },
        };
        let transition = match core_call.op {
            Ok(op) => check.limit.limit.decide(&observed.before, now, op).ok()?,
            Err(outcome) => nothing(outcome),
        };
        Some(Self {
            observed,
            transition,
            note: core_call.note,
            is_peek: matches!(check.op, Op::Peek(_)),
            earlier: core_call.earlier,
        })
    }

    fn answer(self, limit: &Limit, batch: &BatchReply) -> StoreReply {
        let Self {
            observed,
            transition,
            ..
        } = self;
        let outcome = transition.outcome;
        // An edit by a check that denies is a correction, which is stored in any case.
        let is_stored = batch.outcome.is_admitted() || !outcome.is_admitted();
        let state = if is_stored && !self.is_peek {
            observed.changed.unwrap_or_else(|| {
                let mut state = observed.before;
                if let Some(edit) = transition.next {
                    state.apply(edit);
                }
                state
            })
        } else {
            observed.unchanged.unwrap_or(observed.before)
        };
        let receipt = match self.earlier {
            Some(receipt) => receipt,
            None if is_stored => transition.receipt,
            None => Receipt::default(),
        };
        StoreReply {
            outcome,
            status: limit.status(&state, batch.now),
            receipt,
            note: self.note,
        }
    }
}

fn lease_of(op: Op) -> LeaseId {
    match op {
        Op::Acquire { id, .. } | Op::Renew(id) | Op::Release(id) => id,
        _ => LeaseId(0),
    }
}

/// The operation that core decides, or an outcome that is certain without core.
struct CoreCall {
    op: Result<Op, Outcome>,
    note: ReplyNote,
    earlier: Option<Receipt>,
}

impl CoreCall {
    fn new(op: Op, ledger: Option<LedgerReply>, is_held: bool, now: Timestamp) -> Option<Self> {
        if let Some(ledger) = ledger {
            return Self::from_ledger(op, &ledger, now);
        }
        // Not a denial: nothing was decided, and the note tells why.
        if matches!(op, Op::Renew(_)) && !is_held {
            return Some(Self {
                op: Err(Outcome::Allow),
                note: ReplyNote::LeaseNotHeld,
                earlier: Some(Receipt::default()),
            });
        }
        Some(Self {
            op: Ok(op),
            note: ReplyNote::Plain,
            earlier: None,
        })
    }

    fn from_ledger(op: Op, ledger: &LedgerReply, now: Timestamp) -> Option<Self> {
        let receipt = ledger.receipt;
        let peek = Ok(Op::Spend(0));
        let settle = |actual| Ok(Op::Settle { receipt, actual });
        let (op, note) = match (ledger.status, op) {
            (LedgerStatus::Fresh, Op::Reserve { cost, .. }) => {
                (Ok(Op::Spend(cost)), ReplyNote::Plain)
            }
            (LedgerStatus::Known, Op::Reserve { .. }) => (peek, ReplyNote::AlreadyReserved),
            (LedgerStatus::Full, Op::Reserve { .. }) => {
                let retry_after = ledger.room_after(now);
                (
                    Err(Outcome::Deny { retry_after }),
                    ReplyNote::ReservationsFull,
                )
            }
            (_, Op::Reserve { .. }) => return None,
            (LedgerStatus::Open, Op::SettleReserved { actual, .. }) => {
                (settle(actual), ReplyNote::Plain)
            }
            (LedgerStatus::Late, Op::SettleReserved { actual, .. }) => {
                (settle(actual.max(receipt.cost)), ReplyNote::Plain)
            }
            (LedgerStatus::Open, Op::CancelReserved(_)) => (settle(0), ReplyNote::Plain),
            (LedgerStatus::Closed, _) => (peek, ReplyNote::AlreadyClosed),
            (LedgerStatus::Expired, _) => (peek, ReplyNote::ReservationExpired),
            (LedgerStatus::Unknown, _) => (peek, ReplyNote::ReservationUnknown),
            _ => return None,
        };
        let earlier = (note == ReplyNote::AlreadyReserved).then_some(receipt);
        Some(Self { op, note, earlier })
    }
}
