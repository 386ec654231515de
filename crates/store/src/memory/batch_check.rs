//! One check of a batch: first what it comes to, then, once all have spoken, what is stored and answered.
//!
//! Must not know: how slots and shelves were taken; they are held when it is asked.

use std::sync::MutexGuard;

use tollgate_core::limit::{Edit, Limit, OpError, State, WhenFull};
use tollgate_core::reservation::{Correction, ReservationId, ReservationStatus};
use tollgate_core::token_bucket::Tat;
use tollgate_core::{Nanos, Outcome, QuotaStatus, Receipt, Timestamp, Transition};

use super::MemoryStore;
use super::batch::SlotAccess;
use super::hash::{StateHash, limit_of};
use super::limit_usage::Table;
use super::overflow::SketchSet;
use super::slot_table::VacantSlot;
use super::variable_state::VariableStateShard;
use super::word_state::{self, StateWords};
use crate::contract::{Op, QuotaCheck, ReplyNote, StoreReply};
use crate::store_error::{StoreError, StoreErrorKind};

/// A check with everything it needs in hand.
pub(super) struct BatchCheck<'b, 'a, C> {
    pub(super) memory: &'a MemoryStore<C>,
    pub(super) check: &'b QuotaCheck<'b>,
    pub(super) hash: StateHash,
    pub(super) now: Timestamp,
    pub(super) slot: &'b mut SlotAccess<'a>,
    pub(super) shard: Option<&'b mut VariableStateShard>,
    pub(super) overflow: &'b mut Option<MutexGuard<'a, SketchSet>>,
}

/// What a check comes to, nothing stored yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct CheckTransition {
    transition: Transition<StateChange>,
    note: ReplyNote,
    ledger: LedgerChange,
}

/// What is to be stored.
#[derive(Clone, Copy, Debug)]
enum StateChange {
    Word([u64; 1]),
    Pair([u64; 2]),
    Variable(Edit),
    Overflow(Tat),
}

#[derive(Clone, Copy, Debug)]
enum LedgerChange {
    Nothing,
    Open(ReservationId, Nanos),
    Close(ReservationId),
}

impl CheckTransition {
    pub(super) const fn outcome(&self) -> Outcome {
        self.transition.outcome
    }

    /// An answer that changes nothing.
    fn unchanged(outcome: Outcome, receipt: Receipt, note: ReplyNote) -> Self {
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

impl<C> BatchCheck<'_, '_, C> {
    /// What the check comes to.
    #[inline]
    pub(super) fn decide(&mut self) -> Result<CheckTransition, StoreError> {
        match self.check.op {
            Op::Reserve { id, cost, hold } => self.reserve(id, cost, hold),
            Op::SettleReserved { id, actual } => self.close(id, Some(actual)),
            Op::CancelReserved(id) => self.close(id, None),
            // Decided as a spend also where there is no room for the key; only then is nothing stored.
            Op::Peek(cost) => {
                let mut peeked = self.decide_op(Op::Spend(cost))?;
                peeked.transition.next = None;
                peeked.transition.receipt.cost = 0;
                Ok(peeked)
            }
            // Made anew: only what a charge has is written then, not what the largest operation has.
            Op::Spend(cost) => self.decide_op(Op::Spend(cost)),
            Op::ChargeAlways(cost) => self.decide_op(Op::ChargeAlways(cost)),
            op => self.decide_op(op),
        }
    }

    /// Stores what the check came to if all admit, or if it only corrects; answers either way.
    pub(super) fn commit(&mut self, stepped: CheckTransition, all_admit: bool) -> StoreReply {
        let CheckTransition {
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
        if note == ReplyNote::Overflow {
            let is_refused = !transition.outcome.is_admitted();
            self.memory
                .usages()
                .count_overflow(self.hash.limit().0.get(), is_refused);
        }
        StoreReply {
            outcome: transition.outcome,
            status: self.status(),
            receipt,
            note,
        }
    }

    fn decide_op(&mut self, op: Op) -> Result<CheckTransition, StoreError> {
        let limit = &self.check.limit.limit;
        let (now, note) = (self.now, ReplyNote::Plain);
        let decided =
            match &*self.slot {
                SlotAccess::Word(slot) => word_state::decide(limit, slot.state(), now, op)
                    .map(|t| t.map(StateChange::Word)),
                SlotAccess::Pair(slot) => word_state::decide(limit, slot.state(), now, op)
                    .map(|t| t.map(StateChange::Pair)),
                SlotAccess::NewWord(room) if room.has_debt() => {
                    return self.decide_with_debt(room.state(self.hash), op);
                }
                SlotAccess::NewWord(_) => {
                    word_state::decide(limit, [0], now, op).map(|t| t.map(StateChange::Word))
                }
                SlotAccess::NewPair(_) => {
                    word_state::decide(limit, [0, 0], now, op).map(|t| t.map(StateChange::Pair))
                }
                SlotAccess::Full => return Ok(self.decide_by_overflow(op)),
                SlotAccess::Nothing => return self.decide_variable(op),
            };
        let ledger = LedgerChange::Nothing;
        match decided {
            Ok(transition) => Ok(CheckTransition {
                transition,
                note,
                ledger,
            }),
            Err(refused) => refusal(refused),
        }
    }

    fn decide_variable(&mut self, op: Op) -> Result<CheckTransition, StoreError> {
        let (limit, now, forgets) = (&self.check.limit.limit, self.now, self.forgets());
        let Some(shelf) = self.shard.as_deref_mut() else {
            return Ok(self.decide_by_overflow(op));
        };
        let (shelves, tag) = (self.memory.variable_states(), self.hash.tag());
        let decided = match shelves.get_or_insert(shelf, self.hash, limit, now) {
            Some(stored) => {
                let is_owed = || match self.overflow.as_ref() {
                    Some(sketches) => sketches.tat(tag) > now.as_nanos(),
                    None => self.memory.overflow_debt(self.hash, now).is_some(),
                };
                if stored.state == State::Empty && !forgets && is_owed() {
                    return Ok(self.decide_by_overflow(op));
                }
                limit.decide(&stored.state, now, op)
            }
            None => return Ok(self.decide_by_overflow(op)),
        };
        // The key's own state has the first word: whom it denies stays denied, and what only shrinks it needs no bytes.
        let is_growth = decided.is_ok_and(|t| t.outcome.is_admitted() && t.next.is_some())
            && remembers_more(op);
        if is_growth && !shelves.has_room_to_grow(shelf, self.hash.limit(), now) {
            self.move_to_sketch();
            return Ok(self.decide_by_overflow(op));
        }
        match decided {
            Ok(transition) => Ok(CheckTransition {
                transition: transition.map(StateChange::Variable),
                note: ReplyNote::Plain,
                ledger: LedgerChange::Nothing,
            }),
            Err(refused) => refusal(refused),
        }
    }

    /// Moves what a key has used from its collection, which cannot grow, into the sketch that decides from now on: on both
    /// sides it could spend its quota twice.
    fn move_to_sketch(&mut self) {
        let (memory, tag, now) = (self.memory, self.hash.tag(), self.now);
        let has_sketch = self.check.limit.limit.stricter_bucket().is_some() && !self.forgets();
        let stored = self.shard.as_deref_mut().and_then(|s| s.get(self.hash));
        if let Some(stored) = stored.filter(|_| has_sketch) {
            let debt = stored.debt(now);
            stored.state = State::Empty;
            memory.variable_states().recount_bytes(stored);
            let sketches = self
                .overflow
                .get_or_insert_with(|| memory.overflow().lock());
            sketches.add_debt(memory.usages(), tag, debt, now);
        }
    }

    /// Decides without a place of its own for the key.
    fn decide_by_overflow(&mut self, op: Op) -> CheckTransition {
        let receipt = Receipt {
            cost: 0,
            at: self.now,
            mark: 0,
        };
        let limit = &self.check.limit.limit;
        if self.forgets() {
            // The key starts fresh and nothing is remembered, as if it was evicted at once.
            return match limit.decide(&State::Empty, self.now, op) {
                Ok(decided) if decided.outcome.is_admitted() => {
                    CheckTransition::unchanged(decided.outcome, receipt, ReplyNote::Overflow)
                }
                Ok(decided) => {
                    CheckTransition::unchanged(decided.outcome, receipt, ReplyNote::Plain)
                }
                Err(_) => CheckTransition::unchanged(Outcome::Allow, receipt, ReplyNote::Overflow),
            };
        }
        let Some(bucket) = limit.stricter_bucket() else {
            // Nothing stands in for places held: refuse until somebody may have left.
            let retry_after = limit.lease_duration().unwrap_or(Nanos::SECOND);
            return CheckTransition::unchanged(
                Outcome::Deny { retry_after },
                receipt,
                ReplyNote::Overflow,
            );
        };
        let memory = self.memory;
        let sketches = self
            .overflow
            .get_or_insert_with(|| memory.overflow().lock());
        let owed = sketches.tat(self.hash.tag());
        let transition = match op {
            Op::Spend(cost) => bucket.decide(owed, self.now, cost),
            Op::SpendUpTo(most) => bucket.decide_up_to(owed, self.now, most),
            Op::ChargeAlways(cost) => bucket.charge_always(owed, self.now, cost),
            // What a sketch was charged cannot be taken out again.
            _ => return CheckTransition::unchanged(Outcome::Allow, receipt, ReplyNote::Overflow),
        };
        CheckTransition {
            transition: transition.map(StateChange::Overflow),
            note: ReplyNote::Overflow,
            ledger: LedgerChange::Nothing,
        }
    }

    /// Decides on a key that moves in with what it owed in the sketch.
    fn decide_with_debt(&self, state: [u64; 1], op: Op) -> Result<CheckTransition, StoreError> {
        match word_state::decide(&self.check.limit.limit, state, self.now, op) {
            Ok(transition) => Ok(CheckTransition {
                transition: transition.map(StateChange::Word),
                note: ReplyNote::Overflow,
                ledger: LedgerChange::Nothing,
            }),
            Err(refused) => refusal(refused),
        }
    }

    fn forgets(&self) -> bool {
        self.memory.usages().when_full(self.hash.limit().0.get()) == WhenFull::Forget
    }

    fn reserve(
        &mut self,
        id: ReservationId,
        cost: u64,
        hold: Nanos,
    ) -> Result<CheckTransition, StoreError> {
        let (limit, now) = (&self.check.limit.limit, self.now);
        let terms = self.memory.variable_states().reservation_options(hold);
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
        let Some(shelf) = self.shard.as_deref_mut() else {
            return full(hold);
        };
        let Some(stored) = self
            .memory
            .variable_states()
            .get_or_insert(shelf, self.hash, limit, now)
        else {
            return full(hold);
        };
        match stored.ledger.status(now, &terms, id) {
            ReservationStatus::Known(receipt) => {
                // A look, which like any other puts a state right that a clock left too far ahead.
                let mut stepped = self.decide_op(Op::Spend(0))?;
                stepped.transition.receipt = receipt;
                stepped.note = ReplyNote::AlreadyReserved;
                Ok(stepped)
            }
            ReservationStatus::Full => full(stored.ledger.time_until_room(now, &terms)),
            ReservationStatus::Fresh => {
                if !self
                    .memory
                    .variable_states()
                    .has_room_to_grow(shelf, self.hash.limit(), now)
                {
                    return full(hold);
                }
                let mut stepped = self.decide_op(Op::Spend(cost))?;
                if stepped.note == ReplyNote::Plain {
                    stepped.ledger = LedgerChange::Open(id, hold);
                }
                Ok(stepped)
            }
        }
    }

    fn close(
        &mut self,
        id: ReservationId,
        actual: Option<u64>,
    ) -> Result<CheckTransition, StoreError> {
        let (now, terms) = (
            self.now,
            self.memory
                .variable_states()
                .reservation_options(Nanos::ZERO),
        );
        let none = Receipt {
            cost: 0,
            at: now,
            mark: 0,
        };
        let stored = self
            .shard
            .as_deref_mut()
            .and_then(|shelf| shelf.get(self.hash));
        let correction = stored.map_or(Correction::Unknown, |stored| {
            stored.ledger.correction(now, &terms, id, actual)
        });
        let note = match correction {
            Correction::Settle { receipt, actual } => {
                let mut stepped = self.decide_op(Op::Settle { receipt, actual })?;
                stepped.ledger = LedgerChange::Close(id);
                return Ok(stepped);
            }
            Correction::AlreadyClosed => ReplyNote::AlreadyClosed,
            Correction::Expired => ReplyNote::ReservationExpired,
            // What is forgotten is not closed by asking about it.
            Correction::Unknown => {
                return Ok(CheckTransition::unchanged(
                    Outcome::Allow,
                    none,
                    ReplyNote::ReservationUnknown,
                ));
            }
        };
        // The first settle or cancel is the one that counts, also where it came too late to change anything.
        Ok(CheckTransition {
            ledger: LedgerChange::Close(id),
            ..CheckTransition::unchanged(Outcome::Allow, none, note)
        })
    }

    fn store(&mut self, change: StateChange) {
        match (change, &mut *self.slot) {
            (StateChange::Word(state), SlotAccess::Word(slot)) => slot.set(state),
            (StateChange::Pair(state), SlotAccess::Pair(slot)) => slot.set(state),
            (StateChange::Word(state), SlotAccess::NewWord(room)) => {
                move_out(self.memory, room, self.overflow, self.now);
                room.insert(self.hash, state);
                self.memory
                    .usages()
                    .add(self.hash.limit().0.get(), Table::Words, 1);
            }
            (StateChange::Pair(state), SlotAccess::NewPair(room)) => {
                move_out(self.memory, room, self.overflow, self.now);
                room.insert(self.hash, state);
                self.memory
                    .usages()
                    .add(self.hash.limit().0.get(), Table::Pairs, 1);
            }
            (StateChange::Variable(edit), _) => {
                if let Some(stored) = self.shard.as_deref_mut().and_then(|s| s.get(self.hash)) {
                    stored.state.apply(edit);
                    self.memory.variable_states().recount_bytes(stored);
                }
            }
            (StateChange::Overflow(tat), _) => {
                if let Some(sketches) = self.overflow {
                    sketches.add_debt(self.memory.usages(), self.hash.tag(), tat, self.now);
                }
            }
            _ => {}
        }
    }

    fn write_ledger(&mut self, change: LedgerChange, receipt: Receipt) {
        let Some(stored) = self
            .shard
            .as_deref_mut()
            .and_then(|shelf| shelf.get(self.hash))
        else {
            return;
        };
        match change {
            LedgerChange::Nothing => return,
            LedgerChange::Open(id, hold) => {
                let terms = self.memory.variable_states().reservation_options(hold);
                stored.ledger.open(self.now, &terms, id, receipt);
            }
            LedgerChange::Close(id) => stored.ledger.close(id),
        }
        self.memory.variable_states().recount_bytes(stored);
    }

    /// Where the limit stands now.
    fn status(&mut self) -> QuotaStatus {
        let (limit, now) = (&self.check.limit.limit, self.now);
        let of = |state: &State| limit.status(state, now);
        match &*self.slot {
            SlotAccess::Word(slot) => of(&read(limit, slot.state())),
            SlotAccess::Pair(slot) => of(&read(limit, slot.state())),
            SlotAccess::NewWord(room) => of(&read(limit, room.state(self.hash))),
            SlotAccess::NewPair(room) => of(&read(limit, room.state(self.hash))),
            SlotAccess::Full => match (limit.stricter_bucket(), self.overflow.as_ref()) {
                (Some(bucket), Some(sketches)) => bucket.status(sketches.tat(self.hash.tag()), now),
                _ => of(&State::default()),
            },
            SlotAccess::Nothing => {
                let stored = self
                    .shard
                    .as_deref_mut()
                    .and_then(|shelf| shelf.get(self.hash));
                stored.map_or_else(|| of(&State::default()), |stored| of(&stored.state))
            }
        }
    }
}

/// Makes room for a newcomer. What the tenant owes goes into its limit's sketch, unless that limit forgets, before anybody
/// can see that the tenant is gone: whoever looks for it then finds its debt.
fn move_out<'a, C, const W: usize>(
    memory: &'a MemoryStore<C>,
    room: &VacantSlot<'_, W>,
    overflow: &mut Option<MutexGuard<'a, SketchSet>>,
    now: Timestamp,
) {
    let (tag, state) = room.tenant();
    if tag == 0 {
        return;
    }
    let (limit, usages) = (limit_of(tag), memory.usages());
    usages.remove(limit, Table::of_words(W), 1);
    if !room.evicts() {
        return;
    }
    usages.count_eviction(limit);
    if usages.when_full(limit) == WhenFull::Refuse {
        let sketches = overflow.get_or_insert_with(|| memory.overflow().lock());
        let debt = memory.priorities().debt_of(limit, state, now);
        sketches.add_debt(usages, tag, debt, now);
    }
}

fn read<const W: usize>(limit: &Limit, words: [u64; W]) -> State
where
    StateWords: word_state::WordState<W>,
{
    <StateWords as word_state::WordState<W>>::read(limit, words)
}

/// Whether the operation, if admitted, makes a collection longer. Corrections are always carried out: there is one for each
/// charge at most.
const fn remembers_more(op: Op) -> bool {
    matches!(
        op,
        Op::Spend(_) | Op::SpendUpTo(_) | Op::ChargeAlways(_) | Op::Acquire { .. }
    )
}

fn refusal(refused: OpError) -> Result<CheckTransition, StoreError> {
    match refused {
        OpError::NotHeld => Ok(CheckTransition::unchanged(
            Outcome::Allow,
            Receipt::default(),
            ReplyNote::LeaseNotHeld,
        )),
        refused => Err(StoreError::new(
            StoreErrorKind::BadRequest,
            refused.to_string(),
        )),
    }
}
