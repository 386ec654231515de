//! One check of a batch: first what it comes to, then, once all have spoken, what is stored and answered.
//!
//! Must not know: how slots and shelves were taken; they are held when it is asked.

use std::sync::MutexGuard;

use tollgate_core::limit::{Edit, Limit, OpError, State};
use tollgate_core::reservation::{Correction, ReservationId, ReservationStatus};
use tollgate_core::sketch::Sketch;
use tollgate_core::token_bucket::Tat;
use tollgate_core::{Nanos, Outcome, QuotaStatus, Receipt, Timestamp, Transition};

use super::Memory;
use super::batch::Holding;
use super::hash::Place;
use super::states::{self, Words};
use super::variable_state::VariableStateTable;
use crate::contract::{Note, Op, QuotaCheck, StoreReply};
use crate::failure::{ErrorKind, StoreError};

/// A check with everything it needs in hand.
pub(super) struct Step<'b, 'a, C> {
    pub(super) memory: &'a Memory<C>,
    pub(super) check: &'b QuotaCheck<'b>,
    pub(super) place: Place,
    pub(super) now: Timestamp,
    pub(super) holding: &'b mut Holding<'a>,
    pub(super) shelf: Option<&'b mut VariableStateTable>,
    pub(super) overflow: &'b mut Option<MutexGuard<'a, Sketch>>,
}

/// What a check comes to, nothing stored yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stepped {
    transition: Transition<Change>,
    note: Note,
    ledger: LedgerChange,
}

/// What is to be stored.
#[derive(Clone, Copy, Debug)]
enum Change {
    Word([u64; 1]),
    Pair([u64; 2]),
    VariableStateTable(Edit),
    Overflow(Tat),
}

#[derive(Clone, Copy, Debug)]
enum LedgerChange {
    Nothing,
    Open(ReservationId, Nanos),
    Close(ReservationId),
}

impl Stepped {
    pub(super) const fn outcome(&self) -> Outcome {
        self.transition.outcome
    }

    /// An answer that changes nothing.
    fn said(outcome: Outcome, receipt: Receipt, note: Note) -> Self {
        let transition = Transition {
            outcome,
            next: None,
            receipt,
        };
        Self {
            transition,
            note,
            ledger: LedgerChange::Nothing,
        }
    }
}

impl<C> Step<'_, '_, C> {
    /// What the check comes to.
    #[inline]
    pub(super) fn decide(&mut self) -> Result<Stepped, StoreError> {
        match self.check.op {
            Op::Reserve { id, cost, hold } => self.reserve(id, cost, hold),
            Op::SettleReserved { id, actual } => self.close(id, Some(actual)),
            Op::CancelReserved(id) => self.close(id, None),
            // Decided as a spend also where there is no room for the key; only then is nothing stored.
            Op::Peek(cost) => {
                let mut peeked = self.plain(Op::Spend(cost))?;
                peeked.transition.next = None;
                peeked.transition.receipt.cost = 0;
                Ok(peeked)
            }
            // Made anew: only what a charge has is written then, not what the largest operation has.
            Op::Spend(cost) => self.plain(Op::Spend(cost)),
            Op::ChargeAlways(cost) => self.plain(Op::ChargeAlways(cost)),
            op => self.plain(op),
        }
    }

    /// Stores what the check came to if all admit, or if it only corrects; answers either way.
    pub(super) fn conclude(&mut self, stepped: Stepped, all_admit: bool) -> StoreReply {
        let Stepped {
            transition,
            note,
            ledger,
        } = stepped;
        let is_stored = all_admit || !transition.outcome.is_admitted();
        if is_stored {
            if let Some(change) = transition.next {
                self.store(change);
            }
            if all_admit {
                self.write_ledger(ledger, transition.receipt);
            }
        }
        let receipt = if is_stored {
            transition.receipt
        } else {
            Receipt::default()
        };
        StoreReply {
            outcome: transition.outcome,
            status: self.status(),
            receipt,
            note,
        }
    }

    fn plain(&mut self, op: Op) -> Result<Stepped, StoreError> {
        let limit = &self.check.ruled.limit;
        let (now, note) = (self.now, Note::Plain);
        let decided = match &*self.holding {
            Holding::Word(slot) => {
                states::decide(limit, slot.state(), now, op).map(|t| t.map(Change::Word))
            }
            Holding::Pair(slot) => {
                states::decide(limit, slot.state(), now, op).map(|t| t.map(Change::Pair))
            }
            Holding::NewWord(_) => states::decide(limit, [0], now, op).map(|t| t.map(Change::Word)),
            Holding::NewPair(_) => {
                states::decide(limit, [0, 0], now, op).map(|t| t.map(Change::Pair))
            }
            Holding::Full => return Ok(self.overflow(op)),
            Holding::Nothing => return self.on_shelf(op),
        };
        let ledger = LedgerChange::Nothing;
        match decided {
            Ok(transition) => Ok(Stepped {
                transition,
                note,
                ledger,
            }),
            Err(refused) => refusal(refused),
        }
    }

    fn on_shelf(&mut self, op: Op) -> Result<Stepped, StoreError> {
        let (limit, now) = (&self.check.ruled.limit, self.now);
        let Some(shelf) = self.shelf.as_deref_mut() else {
            return Ok(self.overflow(op));
        };
        let (shelves, bits) = (self.memory.shelves(), self.place.bits());
        let decided = match shelves.provide(shelf, self.place, limit, now) {
            Some(stored) => {
                let is_owed = || match self.overflow.as_ref() {
                    Some(sketch) => sketch.tat(bits) > now.as_nanos(),
                    None => self.memory.overflow().is_owed(bits, now),
                };
                if stored.state == State::Empty && is_owed() {
                    return Ok(self.overflow(op));
                }
                limit.decide(&stored.state, now, op)
            }
            None => return Ok(self.overflow(op)),
        };
        // The key's own state has the first word: whom it denies stays denied, and what only shrinks it needs no bytes.
        let is_growth = decided.is_ok_and(|t| t.outcome.is_admitted() && t.next.is_some())
            && remembers_more(op);
        if is_growth && !shelves.may_grow(shelf, now) {
            return Ok(self.overflow(op));
        }
        match decided {
            Ok(transition) => Ok(Stepped {
                transition: transition.map(Change::VariableStateTable),
                note: Note::Plain,
                ledger: LedgerChange::Nothing,
            }),
            Err(refused) => refusal(refused),
        }
    }

    /// Decides without a place of its own for the key.
    fn overflow(&mut self, op: Op) -> Stepped {
        let receipt = Receipt {
            cost: 0,
            at: self.now,
            mark: 0,
        };
        let limit = &self.check.ruled.limit;
        let Some(bucket) = limit.stricter_bucket() else {
            // Nothing stands in for places held: refuse until somebody may have left.
            let retry_after = limit.lease_duration().unwrap_or(Nanos::SECOND);
            return Stepped::said(Outcome::Deny { retry_after }, receipt, Note::Overflow);
        };
        let memory = self.memory;
        let sketch = self
            .overflow
            .get_or_insert_with(|| memory.overflow().lock());
        let owed = sketch.tat(self.place.bits());
        let transition = match op {
            Op::Spend(cost) => bucket.decide(owed, self.now, cost),
            Op::SpendUpTo(most) => bucket.decide_up_to(owed, self.now, most),
            Op::ChargeAlways(cost) => bucket.charge_always(owed, self.now, cost),
            // What a sketch was charged cannot be taken out again.
            _ => return Stepped::said(Outcome::Allow, receipt, Note::Overflow),
        };
        Stepped {
            transition: transition.map(Change::Overflow),
            note: Note::Overflow,
            ledger: LedgerChange::Nothing,
        }
    }

    fn reserve(
        &mut self,
        id: ReservationId,
        cost: u64,
        hold: Nanos,
    ) -> Result<Stepped, StoreError> {
        let (limit, now) = (&self.check.ruled.limit, self.now);
        let terms = self.memory.shelves().terms(hold);
        let none = Receipt {
            cost: 0,
            at: now,
            mark: 0,
        };
        let full = |retry_after| {
            let outcome = Outcome::Deny { retry_after };
            Ok(Stepped::said(outcome, none, Note::ReservationsFull))
        };
        let Some(shelf) = self.shelf.as_deref_mut() else {
            return full(hold);
        };
        let Some(stored) = self.memory.shelves().provide(shelf, self.place, limit, now) else {
            return full(hold);
        };
        match stored.ledger.status(now, &terms, id) {
            ReservationStatus::Known(receipt) => {
                // A look, which like any other puts a state right that a clock left too far ahead.
                let mut stepped = self.plain(Op::Spend(0))?;
                stepped.transition.receipt = receipt;
                stepped.note = Note::AlreadyReserved;
                Ok(stepped)
            }
            ReservationStatus::Full => full(stored.ledger.time_until_room(now, &terms)),
            ReservationStatus::Fresh => {
                if !self.memory.shelves().may_grow(shelf, now) {
                    return full(hold);
                }
                let mut stepped = self.plain(Op::Spend(cost))?;
                if stepped.note == Note::Plain {
                    stepped.ledger = LedgerChange::Open(id, hold);
                }
                Ok(stepped)
            }
        }
    }

    fn close(&mut self, id: ReservationId, actual: Option<u64>) -> Result<Stepped, StoreError> {
        let (now, terms) = (self.now, self.memory.shelves().terms(Nanos::ZERO));
        let none = Receipt {
            cost: 0,
            at: now,
            mark: 0,
        };
        let stored = self
            .shelf
            .as_deref_mut()
            .and_then(|shelf| shelf.get(self.place));
        let correction = stored.map_or(Correction::Unknown, |stored| {
            stored.ledger.correction(now, &terms, id, actual)
        });
        let note = match correction {
            Correction::Settle { receipt, actual } => {
                let mut stepped = self.plain(Op::Settle { receipt, actual })?;
                stepped.ledger = LedgerChange::Close(id);
                return Ok(stepped);
            }
            Correction::AlreadyClosed => Note::AlreadyClosed,
            Correction::Expired => Note::ReservationExpired,
            // What is forgotten is not closed by asking about it.
            Correction::Unknown => {
                return Ok(Stepped::said(
                    Outcome::Allow,
                    none,
                    Note::ReservationUnknown,
                ));
            }
        };
        // The first settle or cancel is the one that counts, also where it came too late to change anything.
        Ok(Stepped {
            ledger: LedgerChange::Close(id),
            ..Stepped::said(Outcome::Allow, none, note)
        })
    }

    fn store(&mut self, change: Change) {
        match (change, &mut *self.holding) {
            (Change::Word(state), Holding::Word(slot)) => slot.set(state),
            (Change::Pair(state), Holding::Pair(slot)) => slot.set(state),
            (Change::Word(state), Holding::NewWord(room)) => {
                self.memory.count_move(room.house(self.place, state));
            }
            (Change::Pair(state), Holding::NewPair(room)) => {
                self.memory.count_move(room.house(self.place, state));
            }
            (Change::VariableStateTable(edit), _) => {
                if let Some(stored) = self.shelf.as_deref_mut().and_then(|s| s.get(self.place)) {
                    stored.state.apply(edit);
                    self.memory.shelves().recount(stored);
                }
            }
            (Change::Overflow(tat), _) => {
                if let Some(sketch) = self.overflow {
                    let overflow = self.memory.overflow();
                    overflow.owe(sketch, self.place.bits(), tat);
                }
            }
            _ => {}
        }
    }

    fn write_ledger(&mut self, change: LedgerChange, receipt: Receipt) {
        let Some(stored) = self
            .shelf
            .as_deref_mut()
            .and_then(|shelf| shelf.get(self.place))
        else {
            return;
        };
        match change {
            LedgerChange::Nothing => return,
            LedgerChange::Open(id, hold) => {
                let terms = self.memory.shelves().terms(hold);
                stored.ledger.open(self.now, &terms, id, receipt);
            }
            LedgerChange::Close(id) => stored.ledger.close(id),
        }
        self.memory.shelves().recount(stored);
    }

    /// Where the limit stands now.
    fn status(&mut self) -> QuotaStatus {
        let (limit, now) = (&self.check.ruled.limit, self.now);
        let of = |state: &State| limit.status(state, now);
        match &*self.holding {
            Holding::Word(slot) => of(&read(limit, slot.state())),
            Holding::Pair(slot) => of(&read(limit, slot.state())),
            Holding::NewWord(room) => of(&read(limit, room.state(self.place))),
            Holding::NewPair(room) => of(&read(limit, room.state(self.place))),
            Holding::Full => match (limit.stricter_bucket(), self.overflow.as_ref()) {
                (Some(bucket), Some(sketch)) => bucket.status(sketch.tat(self.place.bits()), now),
                _ => of(&State::default()),
            },
            Holding::Nothing => {
                let stored = self
                    .shelf
                    .as_deref_mut()
                    .and_then(|shelf| shelf.get(self.place));
                stored.map_or_else(|| of(&State::default()), |stored| of(&stored.state))
            }
        }
    }
}

fn read<const W: usize>(limit: &Limit, words: [u64; W]) -> State
where
    Words: states::InWords<W>,
{
    <Words as states::InWords<W>>::read(limit, words)
}

/// Whether the operation, if admitted, makes a collection longer. Corrections are always carried out: there is one for each
/// charge at most.
const fn remembers_more(op: Op) -> bool {
    matches!(
        op,
        Op::Spend(_) | Op::SpendUpTo(_) | Op::ChargeAlways(_) | Op::Acquire { .. }
    )
}

fn refusal(refused: OpError) -> Result<Stepped, StoreError> {
    match refused {
        OpError::NotHeld => Ok(Stepped::said(
            Outcome::Allow,
            Receipt::default(),
            Note::LeaseNotHeld,
        )),
        refused => Err(StoreError::new(ErrorKind::BadRequest, refused.to_string())),
    }
}
