//! What is decided on this node because the store does not answer: by what stands in for a limit, or as the limit says.
//!
//! Must not know: why the store is not asked, breakers, who else decides.

use tollgate_policy::model::OnStoreFailure;
use tollgate_store::{Answer, Check, ErrorKind, Note, Op, Ruled, StoreError};

use super::ask::{Consulting, UNASKED};
use super::asked::{Few, Way};
use super::local::{By, Here};
use crate::asks::{Shared, Sharing};
use crate::store::StateStore;

impl<S: StateStore> Consulting<'_, S> {
    /// Decides on what the store does not answer. If not all of that is admitted, none of it is charged.
    pub(super) fn decide_unanswered<const N: usize>(
        &self,
        checks: &[Check<'_>],
        shared: &impl Shared,
        (ways, is_lost): (&[Way], bool),
        answers: &mut [Answer],
        here: &mut Few<Here, N>,
    ) -> Result<bool, StoreError> {
        self.fleet.counters.count_without();
        let mut stand_ins: Few<Here, N> = Few::new();
        for (position, (check, way)) in checks.iter().zip(ways).enumerate() {
            let (Way::Away { part }, Some(answer)) = (way, answers.get_mut(position)) else {
                continue;
            };
            let sharing = shared.sharing(position);
            // What was to be put right stays as it is: charges stay charged, and places return when their leases end.
            if is_correction(check.op) {
                *answer = WAIVED;
                continue;
            }
            match sharing.on_failure {
                OnStoreFailure::Closed => return Err(away()),
                OnStoreFailure::Open => *answer = WAIVED,
                OnStoreFailure::Local => match self.stand_in(check, &sharing) {
                    Some(ruled) => stand_ins.push(Here {
                        position,
                        ruled,
                        by: By::StandIn {
                            owed: (!is_lost).then_some(*part),
                        },
                    }),
                    None => {
                        *answer = Answer {
                            note: Note::StandIn,
                            ..Answer::EMPTY
                        };
                        return Ok(false);
                    }
                },
            }
        }
        let admits = self.decide_on::<N>(checks, &stand_ins, answers)?;
        for one in &stand_ins {
            if let Some(answer) = answers.get_mut(one.position) {
                answer.note = Note::StandIn;
            }
        }
        if admits {
            here.extend(stand_ins);
        }
        Ok(admits)
    }

    /// Keeps in mind for the store what was admitted without it.
    pub(super) fn note_spent(
        &self,
        checks: &[Check<'_>],
        shared: &impl Shared,
        answers: &[Answer],
        here: &[Here],
    ) {
        for one in here {
            let By::StandIn { owed: Some(part) } = one.by else {
                continue;
            };
            let (Some(check), Some(answer)) = (checks.get(one.position), answers.get(one.position))
            else {
                continue;
            };
            let spends = matches!(
                check.op,
                Op::Spend(_) | Op::SpendUpTo(_) | Op::ChargeAlways(_)
            );
            if spends {
                let place = shared.sharing(one.position).place;
                let cost = answer.receipt.cost;
                self.fleet.replay.note(part, check, place.as_ref(), cost);
            }
        }
    }

    /// What stands in for a check's limit on this node.
    pub(super) fn stand_in(&self, check: &Check<'_>, sharing: &Sharing<'_>) -> Option<Ruled> {
        let limit = sharing.plain.unwrap_or(&check.ruled.limit);
        let shapes = &self.fleet.shapes;
        let nodes = self.fleet.nodes();
        let limit = shapes.with(check.ruled.id, limit, nodes, |shape| {
            match sharing.is_counter {
                true => shape.counter,
                false => shape.stand_in,
            }
        })?;
        Some(Ruled {
            id: check.ruled.id,
            limit,
        })
    }

    /// Decides on some checks by these quotas, all or nothing, on this node.
    pub(super) fn decide_on<const N: usize>(
        &self,
        checks: &[Check<'_>],
        which: &[Here],
        answers: &mut [Answer],
    ) -> Result<bool, StoreError> {
        let mut batch: Few<Check<'_>, N> = Few::new();
        for one in which {
            if let Some(check) = checks.get(one.position) {
                batch.push(Check {
                    ruled: &one.ruled,
                    ..*check
                });
            }
        }
        if batch.is_empty() {
            return Ok(true);
        }
        let mut found = [Answer::EMPTY; N];
        let found = found.get_mut(..batch.len()).unwrap_or_default();
        let verdict = self.local.decide(&batch, found)?;
        for (one, found) in which.iter().zip(found) {
            if let Some(answer) = answers.get_mut(one.position) {
                *answer = *found;
            }
        }
        Ok(verdict.is_admitted())
    }
}

/// Whether it puts something right that the store has decided before.
const fn is_correction(op: Op) -> bool {
    matches!(
        op,
        Op::Settle { .. }
            | Op::SettleReserved { .. }
            | Op::CancelReserved(_)
            | Op::Renew(_)
            | Op::Release(_)
    )
}

/// Admitted because nobody could be asked.
const WAIVED: Answer = Answer {
    note: Note::Waived,
    ..UNASKED
};

fn away() -> StoreError {
    StoreError::new(
        ErrorKind::Unreachable,
        "the part of the store that has the key is away",
    )
}
