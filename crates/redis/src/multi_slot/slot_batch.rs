//! Groups a batch's checks by slot and orders the groups.
//!
//! Slots that have denied recently come first, then small groups, because they are cheaper to refund. Corrections
//! cannot be undone and never deny, so they come last. Must not know: refunds.

use tokio::time::Instant;
use tollgate_core::compose::BatchOutcome;
use tollgate_store::{Op, QuotaCheck, StoreError, StoreReply};

use super::recent_denials::RecentDenials;
use super::{PlacedCheck, as_peek, unchecked_reply};
use crate::store::StoreInner;
use crate::topology::HashSlot;
use crate::wire::ScriptCall;

/// The checks of a batch in one slot, by their indices.
#[derive(Debug)]
pub(super) struct SlotBatch {
    pub(super) slot: HashSlot,
    pub(super) indices: Vec<usize>,
    is_correction: bool,
}

/// Groups the checks by slot, in the order in which they are charged.
pub(super) fn group_by_slot(parts: &[PlacedCheck<'_>], lately: &RecentDenials) -> Vec<SlotBatch> {
    let mut pieces: Vec<SlotBatch> = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let is_correction = is_correction(part.check.op);
        let known = pieces
            .iter_mut()
            .find(|piece| piece.slot == part.slot && piece.is_correction == is_correction);
        match known {
            Some(piece) => piece.indices.push(index),
            None => pieces.push(SlotBatch {
                slot: part.slot,
                indices: vec![index],
                is_correction,
            }),
        }
    }
    // A stable sort keeps the order of the checks among equal groups.
    pieces.sort_by_cached_key(|piece| {
        let has_refused = piece
            .checks(parts)
            .any(|(_, part)| lately.has_denied(part.key_name.tag()));
        (piece.is_correction, !has_refused, piece.indices.len())
    });
    pieces
}

/// Whether a key of a limit occurs twice.
pub(super) fn has_duplicate_key(parts: &[PlacedCheck<'_>]) -> bool {
    let same = |one: &PlacedCheck<'_>, other: &PlacedCheck<'_>| {
        one.key_name == other.key_name && one.check.limit.id == other.check.limit.id
    };
    parts
        .iter()
        .enumerate()
        .any(|(index, part)| parts.iter().take(index).any(|other| same(part, other)))
}

const fn is_correction(op: Op) -> bool {
    matches!(
        op,
        Op::Settle { .. }
            | Op::SettleReserved { .. }
            | Op::CancelReserved(_)
            | Op::Credit(_)
            | Op::Renew(_)
            | Op::Release(_)
    )
}

impl SlotBatch {
    pub(super) fn checks<'p, 'a>(
        &'p self,
        parts: &'p [PlacedCheck<'a>],
    ) -> impl Iterator<Item = (usize, &'p PlacedCheck<'a>)> {
        self.indices
            .iter()
            .filter_map(|index| Some((*index, parts.get(*index)?)))
    }

    /// Charges all checks of the group, or none.
    pub(super) async fn charge(
        &self,
        shared: &StoreInner,
        parts: &[PlacedCheck<'_>],
        answers: &mut [StoreReply],
        until: Instant,
    ) -> Result<BatchOutcome, StoreError> {
        self.call(shared, parts, |op| op, answers, until).await
    }

    /// Fills in the current status of the group's limits, as far as they can be reached.
    pub(super) async fn peek(
        &self,
        shared: &StoreInner,
        parts: &[PlacedCheck<'_>],
        answers: &mut [StoreReply],
        until: Instant,
    ) {
        if self
            .call(shared, parts, as_peek, answers, until)
            .await
            .is_err()
        {
            for (index, part) in self.checks(parts) {
                if let Some(answer) = answers.get_mut(index) {
                    *answer = unchecked_reply(&part.check);
                }
            }
        }
    }

    async fn call(
        &self,
        shared: &StoreInner,
        parts: &[PlacedCheck<'_>],
        op: fn(Op) -> Op,
        answers: &mut [StoreReply],
        until: Instant,
    ) -> Result<BatchOutcome, StoreError> {
        let asked: Vec<(QuotaCheck<'_>, _)> = self
            .checks(parts)
            .map(|(_, part)| {
                let op = op(part.check.op);
                (QuotaCheck { op, ..part.check }, part.key_name)
            })
            .collect();
        let request = ScriptCall::for_named_checks(
            shared.reservation_retention(),
            asked.iter().map(|(check, named)| (check, *named)),
            None,
        )?;
        let checks: Vec<QuotaCheck<'_>> = asked.iter().map(|(check, _)| *check).collect();
        let mut own = vec![StoreReply::EMPTY; checks.len()];
        let verdict = shared
            .decide_in_slot(self.slot, &request, &checks, &mut own, until)
            .await?;
        for (index, answer) in self.indices.iter().zip(own) {
            if let Some(place) = answers.get_mut(*index) {
                *place = answer;
            }
        }
        Ok(verdict)
    }
}
