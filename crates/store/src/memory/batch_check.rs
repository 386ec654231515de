//! One check of a batch: `decide` computes its transition, and after all checks are decided `commit` stores it and
//! makes the reply.
//!
//! Must not know: how slots and shards were locked; they are locked when it runs.

mod reservations;

use std::sync::MutexGuard;

use tollgate_core::limit::{Edit, Limit, OpError, State};
use tollgate_core::reservation::ReservationId;
use tollgate_core::sketch::Sketch;
use tollgate_core::token_bucket::Tat;
use tollgate_core::{Nanos, Outcome, QuotaStatus, Receipt, Timestamp, Transition};

use super::MemoryStore;
use super::batch::SlotAccess;
use super::hash::StateHash;
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
    pub(super) overflow: &'b mut Option<MutexGuard<'a, Sketch>>,
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
        let (limit, now) = (&self.check.limit.limit, self.now);
        let Some(shard) = self.shard.as_deref_mut() else {
            return Ok(self.decide_by_overflow(op));
        };
        let (states, bits) = (self.store.variable_states(), self.hash.bits());
        let decided = match states.get_or_insert(shard, self.hash, limit, now) {
            Some(entry) => {
                let has_debt = || match self.overflow.as_ref() {
                    Some(sketch) => sketch.tat(bits) > now.as_nanos(),
                    None => self.store.overflow().has_debt(bits, now),
                };
                if entry.state == State::Empty && has_debt() {
                    return Ok(self.decide_by_overflow(op));
                }
                limit.decide(&entry.state, now, op)
            }
            None => return Ok(self.decide_by_overflow(op)),
        };
        // The key's own state decides first: a denied key stays denied, and a smaller state needs no bytes.
        let is_growth =
            decided.is_ok_and(|t| t.outcome.is_admitted() && t.next.is_some()) && grows_state(op);
        if is_growth && !states.has_room_to_grow(shard, now) {
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

    /// Decides by the overflow sketch, without a state of the key's own.
    fn decide_by_overflow(&mut self, op: Op) -> CheckTransition {
        let receipt = Receipt {
            cost: 0,
            at: self.now,
            mark: 0,
        };
        let limit = &self.check.limit.limit;
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
        let sketch = self.overflow.get_or_insert_with(|| store.overflow().lock());
        let owed = sketch.tat(self.hash.bits());
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
                self.store.count_insert(room.insert(self.hash, state));
            }
            (StateChange::Pair(state), SlotAccess::NewPair(room)) => {
                self.store.count_insert(room.insert(self.hash, state));
            }
            (StateChange::Variable(edit), _) => {
                if let Some(entry) = self.shard.as_deref_mut().and_then(|s| s.get(self.hash)) {
                    entry.state.apply(edit);
                    self.store.variable_states().recount_bytes(entry);
                }
            }
            (StateChange::Overflow(tat), _) => {
                if let Some(sketch) = self.overflow {
                    let overflow = self.store.overflow();
                    overflow.add_debt(sketch, self.hash.bits(), tat);
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
                (Some(bucket), Some(sketch)) => bucket.status(sketch.tat(self.hash.bits()), now),
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
