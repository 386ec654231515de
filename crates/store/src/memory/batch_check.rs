//! One check of a batch: `decide` computes its transition, and after all checks are decided `commit` stores it and
//! makes the reply.
//!
//! Must not know: how slots and shards were locked; they are locked when it runs.

mod reservations;

use std::sync::MutexGuard;

use tollgate_core::limit::{Edit, Limit, OpError, State, WhenFull};
use tollgate_core::reservation::ReservationId;
use tollgate_core::token_bucket::Tat;
use tollgate_core::{Nanos, Outcome, QuotaStatus, Receipt, Timestamp, Transition};

use super::MemoryStore;
use super::batch::SlotAccess;
use super::hash::{StateHash, limit_of};
use super::limit_usage::Table;
use super::overflow::SketchSet;
use super::slot_table::{SlotTable, VacantSlot};
use super::variable_state::VariableStateShard;
use super::word_state::{self, StateWords};
use crate::contract::{Op, QuotaCheck, ReplyNote, StoreReply};
use crate::store_error::{StoreError, StoreErrorKind};

/// A check with its locked state.
pub(super) struct BatchCheck<'b, 'a, C> {
    pub(super) store: &'a MemoryStore<C>,
    pub(super) check: &'b QuotaCheck<'b>,
    pub(super) hash: StateHash,
    pub(super) now: Timestamp,
    pub(super) slot: &'b mut SlotAccess<'a>,
    pub(super) shard: Option<&'b mut VariableStateShard>,
    pub(super) overflow: &'b mut Option<MutexGuard<'a, SketchSet>>,
}

/// The result of deciding a check, not stored yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct CheckTransition {
    transition: Transition<StateChange>,
    note: ReplyNote,
    ledger: LedgerChange,
}

/// The change to store.
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

    /// A result that changes nothing.
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
    /// Decides the check.
    #[inline]
    pub(super) fn decide(&mut self) -> Result<CheckTransition, StoreError> {
        match self.check.op {
            Op::Reserve { id, cost, hold } => self.reserve(id, cost, hold),
            Op::SettleReserved { id, actual } => self.close(id, Some(actual)),
            Op::CancelReserved(id) => self.close(id, None),
            // Decided like a spend, also by the overflow sketch; then nothing is stored.
            Op::Peek(cost) => {
                let mut peeked = self.decide_op(Op::Spend(cost))?;
                peeked.transition.next = None;
                peeked.transition.receipt.cost = 0;
                Ok(peeked)
            }
            // Rebuilt, so that only the fields of a charge are written and not those of the largest operation.
            Op::Spend(cost) => self.decide_op(Op::Spend(cost)),
            Op::ChargeAlways(cost) => self.decide_op(Op::ChargeAlways(cost)),
            op => self.decide_op(op),
        }
    }

    /// Stores the transition if all checks admit, or if it is a correction; returns the reply.
    pub(super) fn commit(&mut self, transition: CheckTransition, all_admit: bool) -> StoreReply {
        let CheckTransition {
            transition,
            note,
            ledger,
        } = transition;
        let is_stored = all_admit || !transition.outcome.is_admitted();
        if is_stored {
            if let Some(change) = transition.next {
                self.apply_change(change);
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
            let limit = self.hash.limit().0.get();
            self.store.usages().count_overflow(limit, is_refused);
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
            Err(error) => op_error_result(error),
        }
    }

    fn decide_variable(&mut self, op: Op) -> Result<CheckTransition, StoreError> {
        let (limit, now, forgets) = (&self.check.limit.limit, self.now, self.forgets());
        let Some(shard) = self.shard.as_deref_mut() else {
            return Ok(self.decide_by_overflow(op));
        };
        let states = self.store.variable_states();
        let decided = match states.get_or_insert(shard, self.hash, limit, now) {
            Some(entry) => {
                let has_debt = || match self.overflow.as_ref() {
                    Some(sketches) => sketches.tat(self.hash.tag()) > now.as_nanos(),
                    None => self.store.overflow_debt(self.hash, now).is_some(),
                };
                if entry.state == State::Empty && !forgets && has_debt() {
                    return Ok(self.decide_by_overflow(op));
                }
                limit.decide(&entry.state, now, op)
            }
            None => return Ok(self.decide_by_overflow(op)),
        };
        // The key's own state decides first: a denied key stays denied, and a smaller state needs no bytes.
        let is_growth =
            decided.is_ok_and(|t| t.outcome.is_admitted() && t.next.is_some()) && grows_state(op);
        if is_growth && !states.has_room_to_grow(shard, self.hash.limit(), now) {
            self.move_to_sketch();
            return Ok(self.decide_by_overflow(op));
        }
        match decided {
            Ok(transition) => Ok(CheckTransition {
                transition: transition.map(StateChange::Variable),
                note: ReplyNote::Plain,
                ledger: LedgerChange::Nothing,
            }),
            Err(error) => op_error_result(error),
        }
    }

    /// Moves what a key has used from a collection that cannot grow into the limit's sketch, which decides from now on. If
    /// both decided, the key could spend its quota twice.
    fn move_to_sketch(&mut self) {
        let (store, tag, now) = (self.store, self.hash.tag(), self.now);
        let has_sketch = self.check.limit.limit.stricter_bucket().is_some() && !self.forgets();
        let entry = self.shard.as_deref_mut().and_then(|s| s.get(self.hash));
        if let Some(entry) = entry.filter(|_| has_sketch) {
            let debt = entry.debt(now);
            entry.state = State::Empty;
            store.variable_states().recount_bytes(entry);
            let sketches = self.overflow.get_or_insert_with(|| store.overflow().lock());
            sketches.add_debt(store.usages(), tag, debt, now);
        }
    }

    /// Decides for a new key that is inserted with its debt from the sketch.
    fn decide_with_debt(&self, state: [u64; 1], op: Op) -> Result<CheckTransition, StoreError> {
        match word_state::decide(&self.check.limit.limit, state, self.now, op) {
            Ok(transition) => Ok(CheckTransition {
                transition: transition.map(StateChange::Word),
                note: ReplyNote::Overflow,
                ledger: LedgerChange::Nothing,
            }),
            Err(error) => op_error_result(error),
        }
    }

    fn forgets(&self) -> bool {
        self.store.usages().when_full(self.hash.limit().0.get()) == WhenFull::Forget
    }

    /// Decides by the limit's overflow sketch, without a state of the key's own.
    fn decide_by_overflow(&mut self, op: Op) -> CheckTransition {
        let receipt = Receipt {
            cost: 0,
            at: self.now,
            mark: 0,
        };
        let limit = &self.check.limit.limit;
        if self.forgets() {
            // The key starts fresh and nothing is stored, as if its state was evicted at once.
            let outcome = limit.decide(&State::Empty, self.now, op);
            return match outcome.map_or(Outcome::Allow, |transition| transition.outcome) {
                outcome if outcome.is_admitted() => {
                    CheckTransition::unchanged(outcome, receipt, ReplyNote::Overflow)
                }
                outcome => CheckTransition::unchanged(outcome, receipt, ReplyNote::Plain),
            };
        }
        let Some(bucket) = limit.stricter_bucket() else {
            // No sketch can replace leases: deny until some may have expired.
            let retry_after = limit.lease_duration().unwrap_or(Nanos::SECOND);
            return CheckTransition::unchanged(
                Outcome::Deny { retry_after },
                receipt,
                ReplyNote::Overflow,
            );
        };
        let store = self.store;
        let sketches = self.overflow.get_or_insert_with(|| store.overflow().lock());
        let owed = sketches.tat(self.hash.tag());
        let transition = match op {
            Op::Spend(cost) => bucket.decide(owed, self.now, cost),
            Op::SpendUpTo(most) => bucket.decide_up_to(owed, self.now, most),
            Op::ChargeAlways(cost) => bucket.charge_always(owed, self.now, cost),
            // A charge cannot be removed from a sketch.
            _ => return CheckTransition::unchanged(Outcome::Allow, receipt, ReplyNote::Overflow),
        };
        CheckTransition {
            transition: transition.map(StateChange::Overflow),
            note: ReplyNote::Overflow,
            ledger: LedgerChange::Nothing,
        }
    }

    fn apply_change(&mut self, change: StateChange) {
        match (change, &mut *self.slot) {
            (StateChange::Word(state), SlotAccess::Word(slot)) => slot.set(state),
            (StateChange::Pair(state), SlotAccess::Pair(slot)) => slot.set(state),
            (StateChange::Word(state), SlotAccess::NewWord(room)) => {
                evict(
                    self.store,
                    self.store.word_table(),
                    room,
                    self.overflow,
                    self.now,
                );
                room.insert(self.hash, state);
                let limit = self.hash.limit().0.get();
                self.store.usages().add(limit, Table::Words, 1);
            }
            (StateChange::Pair(state), SlotAccess::NewPair(room)) => {
                evict(
                    self.store,
                    self.store.pair_table(),
                    room,
                    self.overflow,
                    self.now,
                );
                room.insert(self.hash, state);
                let limit = self.hash.limit().0.get();
                self.store.usages().add(limit, Table::Pairs, 1);
            }
            (StateChange::Variable(edit), _) => {
                if let Some(entry) = self.shard.as_deref_mut().and_then(|s| s.get(self.hash)) {
                    entry.state.apply(edit);
                    self.store.variable_states().recount_bytes(entry);
                }
            }
            (StateChange::Overflow(tat), _) => {
                if let Some(sketches) = self.overflow {
                    sketches.add_debt(self.store.usages(), self.hash.tag(), tat, self.now);
                }
            }
            _ => {}
        }
    }

    fn write_ledger(&mut self, change: LedgerChange, receipt: Receipt) {
        let Some(entry) = self
            .shard
            .as_deref_mut()
            .and_then(|shard| shard.get(self.hash))
        else {
            return;
        };
        match change {
            LedgerChange::Nothing => return,
            LedgerChange::Open(id, hold) => {
                let options = self.store.variable_states().reservation_options(hold);
                entry.ledger.open(self.now, &options, id, receipt);
            }
            LedgerChange::Close(id) => entry.ledger.close(id),
        }
        self.store.variable_states().recount_bytes(entry);
    }

    /// The limit's status now.
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
                let entry = self
                    .shard
                    .as_deref_mut()
                    .and_then(|shard| shard.get(self.hash));
                entry.map_or_else(|| of(&State::default()), |entry| of(&entry.state))
            }
        }
    }
}

/// Evicts the state that is in the slot of a new key. Its debt goes into its limit's sketch, unless that limit forgets, before
/// the slot's tag changes: a thread that no longer finds the evicted key then finds its debt.
pub(super) fn evict<'a, C, const W: usize>(
    store: &'a MemoryStore<C>,
    table: &SlotTable<W>,
    room: &VacantSlot<'_, W>,
    overflow: &mut Option<MutexGuard<'a, SketchSet>>,
    now: Timestamp,
) {
    let (tag, state) = room.tenant();
    if tag == 0 {
        table.count_first_use();
        return;
    }
    let (limit, usages) = (limit_of(tag), store.usages());
    usages.remove(limit, Table::of_words(W), 1);
    if !room.evicts() {
        return;
    }
    usages.count_eviction(limit);
    if usages.when_full(limit) == WhenFull::Refuse {
        let sketches = overflow.get_or_insert_with(|| store.overflow().lock());
        let debt = store.priorities().debt_of(limit, state, now);
        sketches.add_debt(usages, tag, debt, now);
    }
}

fn read<const W: usize>(limit: &Limit, words: [u64; W]) -> State
where
    StateWords: word_state::WordState<W>,
{
    <StateWords as word_state::WordState<W>>::read(limit, words)
}

/// Whether the operation, if admitted, lengthens a collection. Corrections are always stored: there is at most one for
/// each charge.
const fn grows_state(op: Op) -> bool {
    matches!(
        op,
        Op::Spend(_) | Op::SpendUpTo(_) | Op::ChargeAlways(_) | Op::Acquire { .. }
    )
}

fn op_error_result(error: OpError) -> Result<CheckTransition, StoreError> {
    match error {
        OpError::NotHeld => Ok(CheckTransition::unchanged(
            Outcome::Allow,
            Receipt::default(),
            ReplyNote::LeaseNotHeld,
        )),
        error => Err(StoreError::new(
            StoreErrorKind::BadRequest,
            error.to_string(),
        )),
    }
}
