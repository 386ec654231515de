//! Groups a batch's checks by slot and orders the groups.
//!
//! Slots that have denied recently come first, then small groups, because they are cheaper to refund. Corrections
//! cannot be undone and never deny, so they come last. Must not know: refunds.

use tollgate_core::compose::BatchOutcome;
use tollgate_store::{Op, QuotaCheck, StoreError, StoreReply};

use super::recent_denials::RecentDenials;
use super::{PlacedCheck, as_peek, unchecked_reply};
use crate::pool::CallDeadline;
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
pub(super) fn group_by_slot(
    checks: &[PlacedCheck<'_>],
    recent_denials: &RecentDenials,
) -> Vec<SlotBatch> {
    let mut groups: Vec<SlotBatch> = Vec::new();
    for (index, placed) in checks.iter().enumerate() {
        let is_correction = is_correction(placed.check.op);
        let existing = groups
            .iter_mut()
            .find(|group| group.slot == placed.slot && group.is_correction == is_correction);
        match existing {
            Some(group) => group.indices.push(index),
            None => groups.push(SlotBatch {
                slot: placed.slot,
                indices: vec![index],
                is_correction,
            }),
        }
    }
    // A stable sort keeps the order of the checks among equal groups.
    groups.sort_by_cached_key(|group| {
        let has_denied = group
            .checks(checks)
            .any(|(_, placed)| recent_denials.has_denied(placed.key_name.tag()));
        (group.is_correction, !has_denied, group.indices.len())
    });
    groups
}

/// Whether a key of a limit occurs twice.
pub(super) fn has_duplicate_key(checks: &[PlacedCheck<'_>]) -> bool {
    let same = |one: &PlacedCheck<'_>, other: &PlacedCheck<'_>| {
        one.key_name == other.key_name && one.check.limit.id == other.check.limit.id
    };
    checks
        .iter()
        .enumerate()
        .any(|(index, placed)| checks.iter().take(index).any(|other| same(placed, other)))
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
        checks: &'p [PlacedCheck<'a>],
    ) -> impl Iterator<Item = (usize, &'p PlacedCheck<'a>)> {
        self.indices
            .iter()
            .filter_map(|index| Some((*index, checks.get(*index)?)))
    }

    /// Charges all checks of the group, or none.
    pub(super) async fn charge(
        &self,
        store: &StoreInner,
        checks: &[PlacedCheck<'_>],
        answers: &mut [StoreReply],
        deadline: &mut CallDeadline,
    ) -> Result<BatchOutcome, StoreError> {
        self.call(store, checks, |op| op, answers, deadline).await
    }

    /// Fills in the current status of the group's limits, as far as they can be reached.
    pub(super) async fn peek(
        &self,
        store: &StoreInner,
        checks: &[PlacedCheck<'_>],
        answers: &mut [StoreReply],
        deadline: &mut CallDeadline,
    ) {
        if self
            .call(store, checks, as_peek, answers, deadline)
            .await
            .is_err()
        {
            for (index, placed) in self.checks(checks) {
                if let Some(answer) = answers.get_mut(index) {
                    *answer = unchecked_reply(&placed.check);
                }
            }
        }
    }

    async fn call(
        &self,
        store: &StoreInner,
        checks: &[PlacedCheck<'_>],
        op: fn(Op) -> Op,
        answers: &mut [StoreReply],
        deadline: &mut CallDeadline,
    ) -> Result<BatchOutcome, StoreError> {
        let encoded: Vec<(QuotaCheck<'_>, _)> = self
            .checks(checks)
            .map(|(_, placed)| {
                let op = op(placed.check.op);
                (QuotaCheck { op, ..placed.check }, placed.key_name)
            })
            .collect();
        let request = ScriptCall::for_named_checks(
            store.reservation_retention(),
            encoded.iter().map(|(check, key_name)| (check, *key_name)),
            None,
        )?;
        let checks: Vec<QuotaCheck<'_>> = encoded.iter().map(|(check, _)| *check).collect();
        let mut replies = vec![StoreReply::EMPTY; checks.len()];
        let outcome = store
            .decide_in_slot(self.slot, &request, &checks, &mut replies, deadline)
            .await?;
        for (index, answer) in self.indices.iter().zip(replies) {
            if let Some(place) = answers.get_mut(*index) {
                *place = answer;
            }
        }
        Ok(outcome)
    }
}
