//! Reservations in a batch: the ledger decides which operation runs on the limit.
//!
//! Must not know: how slots and shards were locked.

use tollgate_core::reservation::{Correction, ReservationId, ReservationStatus};
use tollgate_core::{Nanos, Outcome, Receipt};

use super::{BatchCheck, CheckTransition, LedgerChange};
use crate::contract::{Op, ReplyNote};
use crate::store_error::StoreError;

impl<C> BatchCheck<'_, '_, C> {
    pub(super) fn reserve(
        &mut self,
        id: ReservationId,
        cost: u64,
        hold: Nanos,
    ) -> Result<CheckTransition, StoreError> {
        let (limit, now) = (&self.check.limit.limit, self.now);
        let options = self.store.variable_states().reservation_options(hold);
        let none = Receipt {
            cost: 0,
            at: now,
            mark: 0,
        };
        let full = |retry_after| {
            let outcome = Outcome::Deny { retry_after };
            Ok(CheckTransition::unchanged(
                outcome,
                none,
                ReplyNote::ReservationsFull,
            ))
        };
        let Some(shard) = self.shard.as_deref_mut() else {
            return full(hold);
        };
        let Some(entry) = self
            .store
            .variable_states()
            .get_or_insert(shard, self.hash, limit, now)
        else {
            return full(hold);
        };
        match entry.ledger.status(now, &options, id) {
            ReservationStatus::Known(receipt) => {
                // A peek, which also corrects a state that lies too far ahead because the clock went back.
                let mut result = self.decide_op(Op::Spend(0))?;
                result.transition.receipt = receipt;
                result.note = ReplyNote::AlreadyReserved;
                Ok(result)
            }
            ReservationStatus::Full => full(entry.ledger.time_until_room(now, &options)),
            ReservationStatus::Fresh => {
                if !self.store.variable_states().has_room_to_grow(shard, now) {
                    return full(hold);
                }
                let mut result = self.decide_op(Op::Spend(cost))?;
                if result.note == ReplyNote::Plain {
                    result.ledger = LedgerChange::Open(id, hold);
                }
                Ok(result)
            }
        }
    }

    pub(super) fn close(
        &mut self,
        id: ReservationId,
        actual: Option<u64>,
    ) -> Result<CheckTransition, StoreError> {
        let (now, options) = (
            self.now,
            self.store
                .variable_states()
                .reservation_options(Nanos::ZERO),
        );
        let none = Receipt {
            cost: 0,
            at: now,
            mark: 0,
        };
        let entry = self
            .shard
            .as_deref_mut()
            .and_then(|shard| shard.get(self.hash));
        let correction = entry.map_or(Correction::Unknown, |entry| {
            entry.ledger.correction(now, &options, id, actual)
        });
        let note = match correction {
            Correction::Settle { receipt, actual } => {
                let mut result = self.decide_op(Op::Settle { receipt, actual })?;
                result.ledger = LedgerChange::Close(id);
                return Ok(result);
            }
            Correction::AlreadyClosed => ReplyNote::AlreadyClosed,
            Correction::Expired => ReplyNote::ReservationExpired,
            // An unknown reservation is not closed.
            Correction::Unknown => {
                return Ok(CheckTransition::unchanged(
                    Outcome::Allow,
                    none,
                    ReplyNote::ReservationUnknown,
                ));
            }
        };
        // The first settle or cancel closes the reservation, even if it comes too late to change anything.
        Ok(CheckTransition {
            ledger: LedgerChange::Close(id),
            ..CheckTransition::unchanged(Outcome::Allow, none, note)
        })
    }
}
