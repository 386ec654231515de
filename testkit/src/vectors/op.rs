//! The one operation of a step: finding it, and saying it in core's words.
//!
//! Must not know: limits' names, traces, expectations.

use tollgate_core::concurrency::LeaseId;
use tollgate_core::limit::{Limit, Op};

use super::model;

/// An operation, or one that needs an earlier receipt.
#[derive(Debug)]
pub(super) enum VectorOp {
    Plain(Op),
    Settle { receipt_of: String, actual: u64 },
}

/// How many operations a step has, other than `together` and `requota`.
pub(super) fn operations(step: &model::VectorStep) -> usize {
    [
        step.spend.is_some(),
        step.up_to.is_some(),
        step.charge.is_some(),
        step.settle.is_some(),
        step.refund.is_some(),
        step.credit.is_some(),
        step.acquire.is_some(),
        step.renew.is_some(),
        step.release.is_some(),
        step.peek.is_some(),
        step.requota.is_some(),
        step.reserve.is_some(),
        step.cancel.is_some(),
        step.together.is_some(),
    ]
    .into_iter()
    .filter(|is_there| *is_there)
    .count()
}

pub(super) fn has_details(step: &model::VectorStep) -> bool {
    step.remaining.is_some()
        || step.reset_after.is_some()
        || step.charged.is_some()
        || step.label.is_some()
}

/// Takes the one operation out of a step.
pub(super) fn operation(step: &mut model::VectorStep, limit: &Limit) -> Result<VectorOp, String> {
    let lease = |id: u64| LeaseId(u128::from(id));
    if let Some(receipt_of) = step.refund.take() {
        return Ok(VectorOp::Settle {
            receipt_of,
            actual: 0,
        });
    }
    if let Some(settle) = step.settle.take() {
        let receipt_of = settle
            .receipt_of
            .ok_or("settle: needs `receipt_of` or `reservation`")?;
        return Ok(VectorOp::Settle {
            receipt_of,
            actual: settle.actual,
        });
    }
    let op = if let Some(cost) = step.spend.take() {
        Op::Spend(cost)
    } else if let Some(most) = step.up_to.take() {
        Op::SpendUpTo(most)
    } else if let Some(cost) = step.charge.take() {
        Op::ChargeAlways(cost)
    } else if let Some(amount) = step.credit.take() {
        Op::Credit(amount)
    } else if let Some(acquire) = step.acquire.take() {
        Op::Acquire {
            id: lease(acquire.id),
            weight: acquire.weight,
        }
    } else if let Some(id) = step.renew.take() {
        Op::Renew(lease(id))
    } else if let Some(id) = step.release.take() {
        Op::Release(lease(id))
    } else if step.peek.take() == Some(true) {
        // A peek is a cost of zero, which a concurrency limit calls a weight.
        match limit.lease_duration() {
            Some(_) => Op::Acquire {
                id: lease(0),
                weight: 0,
            },
            None => Op::Spend(0),
        }
    } else {
        return Err("the operation is not one that a single limit can be asked".to_owned());
    };
    Ok(VectorOp::Plain(op))
}
