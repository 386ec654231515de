//! Batches whose keys are in several slots, which no single script can reach. Each slot is charged in turn. If a later
//! slot denies, the earlier charges are refunded.
//!
//! Without faults a denied batch leaves no charge. While it is being decided, at most until its deadline, other
//! requests see its charges so far. After a fault in between, at most the batch's own cost stays charged, once, until
//! it refills. A batch never charges less than was admitted, so no limit is exceeded. Must not know: connections,
//! scripts.

mod compensation;
mod recent_denials;
mod slot_batch;

use tollgate_core::compose::BatchOutcome;
use tollgate_core::limit::State;
use tollgate_core::{Outcome, Receipt, Timestamp};
use tollgate_store::{Op, QuotaCheck, ReplyNote, StoreError, StoreErrorKind, StoreReply};

use crate::key_name::KeyName;
use crate::pool::CallDeadline;
use crate::store::StoreInner;
use crate::topology::HashSlot;

pub(crate) use self::compensation::{CompensationQueue, PendingCompensations};

/// One check with its key's name and slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlacedCheck<'a> {
    pub(crate) check: QuotaCheck<'a>,
    pub(crate) key_name: KeyName,
    pub(crate) slot: HashSlot,
}

/// Decides a batch over several slots.
pub(crate) async fn decide(
    store: &StoreInner,
    compensations: &CompensationQueue,
    checks: &[PlacedCheck<'_>],
    answers: &mut [StoreReply],
    deadline: &mut CallDeadline,
) -> Result<BatchOutcome, StoreError> {
    if slot_batch::has_duplicate_key(checks) {
        let detail = "duplicate key of one limit in the batch";
        return Err(StoreError::new(StoreErrorKind::BadRequest, detail));
    }
    let groups = slot_batch::group_by_slot(checks, compensations.recent_denials());
    // From here on refunds run in every case, also if the caller drops the future.
    let mut pending = PendingCompensations::new(compensations);
    let mut charged_groups = 0;
    let mut is_denied = false;
    for group in &groups {
        let charged = group.charge(store, checks, answers, deadline).await;
        match charged {
            Ok(outcome) => is_denied = !outcome.is_admitted(),
            Err(error) => {
                let is_refunded = pending.run_all(store, checks, answers, deadline).await;
                return Err(error_after_charges(error, is_refunded));
            }
        }
        charged_groups += 1;
        if is_denied {
            for (index, check) in group.checks(checks) {
                if answers
                    .get(index)
                    .is_some_and(|answer| !answer.outcome.is_admitted())
                {
                    compensations
                        .recent_denials()
                        .remember(check.key_name.tag());
                }
            }
            break;
        }
        pending.add(group, store, checks, answers);
    }
    if is_denied {
        // Refunds that do not finish within the deadline are finished by the background task.
        let _is_refunded = pending.run_all(store, checks, answers, deadline).await;
        for group in groups.iter().skip(charged_groups) {
            group.peek(store, checks, answers, deadline).await;
        }
    } else {
        pending.forget();
    }
    Ok(answers.iter().map(|answer| answer.outcome).collect())
}

/// A failure that charged nothing itself may still have charged, as long as earlier charges are not refunded.
fn error_after_charges(error: StoreError, is_refunded: bool) -> StoreError {
    if is_refunded || error.may_have_charged() {
        return error;
    }
    StoreError::new(
        StoreErrorKind::ConnectionLost,
        "another slot failed, and earlier charges are not refunded yet",
    )
}

/// The reply for a limit that was not checked: it does not deny.
fn unchecked_reply(check: &QuotaCheck<'_>) -> StoreReply {
    StoreReply {
        outcome: Outcome::Allow,
        status: check
            .limit
            .limit
            .status(&State::default(), Timestamp::EPOCH),
        receipt: Receipt::default(),
        note: ReplyNote::Plain,
    }
}

/// The operation that reports a limit's status and outcome without changing it.
const fn as_peek(op: Op) -> Op {
    match op {
        Op::Spend(cost) | Op::Peek(cost) | Op::Reserve { cost, .. } => Op::Peek(cost),
        Op::SpendUpTo(0) => Op::Peek(0),
        Op::SpendUpTo(_) => Op::Peek(1),
        Op::Acquire { id, .. } | Op::Renew(id) | Op::Release(id) => Op::Acquire { id, weight: 0 },
        _ => Op::Peek(0),
    }
}
