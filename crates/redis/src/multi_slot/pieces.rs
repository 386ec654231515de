//! The parts of a batch that lie in one place, in the order in which they are charged.
//!
//! Pieces that have refused lately first, then small ones: they are given back cheaper. Corrections, which cannot be taken
//! back and never refuse, come last, when nothing can refuse any more. Must not know: what is owed.

use tokio::time::Instant;
use tollgate_core::compose::BatchOutcome;
use tollgate_store::{Op, QuotaCheck, StoreError, StoreReply};

use super::recent_denials::Lately;
use super::{Part, looking, unasked};
use crate::store::Shared;
use crate::topology::Place;
use crate::wire::ScriptCall;

/// Parts of the batch in one place, by their indices.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) place: Place,
    pub(super) indices: Vec<usize>,
    is_correction: bool,
}

/// The pieces in the order in which they are charged.
pub(super) fn of(parts: &[Part<'_>], lately: &Lately) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let is_correction = is_correction(part.check.op);
        let known = pieces
            .iter_mut()
            .find(|piece| piece.place == part.place && piece.is_correction == is_correction);
        match known {
            Some(piece) => piece.indices.push(index),
            None => pieces.push(Piece {
                place: part.place,
                indices: vec![index],
                is_correction,
            }),
        }
    }
    // Stable: of pieces that are alike the one that was named first comes first.
    pieces.sort_by_cached_key(|piece| {
        let has_refused = piece
            .parts(parts)
            .any(|(_, part)| lately.has_refused(part.named.tag()));
        (piece.is_correction, !has_refused, piece.indices.len())
    });
    pieces
}

/// Whether the same key of the same limit is asked twice.
pub(super) fn has_twice(parts: &[Part<'_>]) -> bool {
    let same = |one: &Part<'_>, other: &Part<'_>| {
        one.named == other.named && one.check.ruled.id == other.check.ruled.id
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

impl Piece {
    pub(super) fn parts<'p, 'a>(
        &'p self,
        parts: &'p [Part<'a>],
    ) -> impl Iterator<Item = (usize, &'p Part<'a>)> {
        self.indices
            .iter()
            .filter_map(|index| Some((*index, parts.get(*index)?)))
    }

    /// Charges the piece, all of it or nothing.
    pub(super) async fn charge(
        &self,
        shared: &Shared,
        parts: &[Part<'_>],
        answers: &mut [StoreReply],
        until: Instant,
    ) -> Result<BatchOutcome, StoreError> {
        self.ask(shared, parts, |op| op, answers, until).await
    }

    /// Says where the piece's limits stand, as far as they can be asked.
    pub(super) async fn look(
        &self,
        shared: &Shared,
        parts: &[Part<'_>],
        answers: &mut [StoreReply],
        until: Instant,
    ) {
        if self
            .ask(shared, parts, looking, answers, until)
            .await
            .is_err()
        {
            for (index, part) in self.parts(parts) {
                if let Some(answer) = answers.get_mut(index) {
                    *answer = unasked(&part.check);
                }
            }
        }
    }

    async fn ask(
        &self,
        shared: &Shared,
        parts: &[Part<'_>],
        op: fn(Op) -> Op,
        answers: &mut [StoreReply],
        until: Instant,
    ) -> Result<BatchOutcome, StoreError> {
        let asked: Vec<(QuotaCheck<'_>, _)> = self
            .parts(parts)
            .map(|(_, part)| {
                let op = op(part.check.op);
                (QuotaCheck { op, ..part.check }, part.named)
            })
            .collect();
        let request = ScriptCall::named(
            shared.remembering(),
            asked.iter().map(|(check, named)| (check, *named)),
            None,
        )?;
        let checks: Vec<QuotaCheck<'_>> = asked.iter().map(|(check, _)| *check).collect();
        let mut own = vec![StoreReply::EMPTY; checks.len()];
        let verdict = shared
            .ask(self.place, &request, &checks, &mut own, until)
            .await?;
        for (index, answer) in self.indices.iter().zip(own) {
            if let Some(place) = answers.get_mut(*index) {
                *place = answer;
            }
        }
        Ok(verdict)
    }
}
