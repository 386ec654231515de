//! Everything that stores, engines and transports ask of an algorithm, as one trait.
//!
//! Each algorithm answers in `algorithm.rs` of its own folder, and [`Limit`](super::Limit) calls the one that its quota is
//! of. So no other crate matches on algorithms to learn these facts. Must not know: any one algorithm, except by the
//! names in [`AlgorithmKind`].

use super::op::{Op, OpError};
use super::state::{Edit, State};
use crate::fixed_window::WindowState;
use crate::outcome::{QuotaStatus, Receipt, Transition};
use crate::time::{Nanos, Timestamp};
use crate::token_bucket::TokenBucket;

/// The algorithms by name. States of different kinds cannot be read as each other.
///
/// The order is part of the promise: limits that want the same number get it in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum AlgorithmKind {
    /// See [`token_bucket`](crate::token_bucket).
    TokenBucket,
    /// A [`leaky_bucket`](crate::leaky_bucket) that refuses what overflows.
    LeakyBucket,
    /// A [`leaky_bucket`](crate::leaky_bucket) that asks to wait.
    LeakyQueue,
    /// See [`fixed_window`](crate::fixed_window).
    FixedWindow,
    /// See [`sliding_log`](crate::sliding_log).
    SlidingLog,
    /// See [`sliding_counter`](crate::sliding_counter).
    SlidingCounter,
    /// See [`concurrency`](crate::concurrency).
    Concurrency,
}

impl AlgorithmKind {
    /// Whether counts made in windows of one length mean nothing in windows of another, so that a state has to be carried
    /// over when the length changes.
    #[must_use]
    pub const fn is_tied_to_window_length(self) -> bool {
        matches!(self, Self::SlidingCounter)
    }
}

/// The time in which all of a quota comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefillPeriod {
    /// Always the same.
    Span(Nanos),
    /// The calendar's days, weeks, months or years.
    Calendar,
}

impl RefillPeriod {
    /// The period, where one of the calendar is taken for this long.
    #[must_use]
    pub const fn span_or(self, calendar: Nanos) -> Nanos {
        match self {
            Self::Span(span) => span,
            Self::Calendar => calendar,
        }
    }
}

/// How much room a state takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateSize {
    /// One word: [`State::Bucket`].
    Word,
    /// Two words: see [`Limit::state_from_pair`](super::Limit::state_from_pair) and [`Edit::to_pair`].
    Pair,
    /// As many entries as were charged.
    Collection,
}

/// How a store tells from the words of a state how much of the quota is used, without deciding anything.
///
/// A state of one word uses the time from now until its instant. One of two words uses its second word, or, where the
/// scale has a `tail`, the sum of that word's halves. Neither uses anything once `tail` has passed since its first word's
/// instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageScale {
    /// The use that is a full quota.
    pub full: u64,
    /// The use above which not even one more unit is admitted.
    pub denied_above: u64,
    /// How long after its first word's instant a state still counts, in nanoseconds.
    pub tail: u64,
}

impl UsageScale {
    /// Of a quota that counts units.
    pub(crate) const fn of_units(units: u64, tail: Nanos) -> Self {
        Self {
            full: units,
            denied_above: units.saturating_sub(1),
            tail: tail.as_nanos(),
        }
    }

    /// Of a quota that counts nanoseconds of debt.
    pub(crate) const fn of_debt(full: u64, interval: Nanos) -> Self {
        Self {
            full,
            denied_above: full.saturating_sub(interval.as_nanos()),
            tail: 0,
        }
    }
}

/// What outsiders ask of an algorithm. [`Limit`](super::Limit) documents every question.
pub(crate) trait Algorithm: Copy {
    /// Where its states are kept.
    const STATE: StateSize;

    fn kind(&self) -> AlgorithmKind;

    fn decide_op(&self, state: &State, now: Timestamp, op: Op)
    -> Result<Transition<Edit>, OpError>;

    fn status_of(&self, state: &State, now: Timestamp) -> QuotaStatus;

    fn capacity(&self) -> u64;

    fn refill_period(&self) -> Option<RefillPeriod>;

    fn lifetime(&self) -> Nanos;

    fn usage_scale(&self) -> UsageScale;

    fn stricter_bucket(&self) -> Option<TokenBucket>;

    /// Only those whose states are a [`Pair`](StateSize::Pair) are asked. Two words are a window unless they are
    /// something else, so that reading them is one comparison.
    fn state_from_pair(&self, [end, count]: [u64; 2]) -> State {
        State::Window(WindowState { end, count })
    }

    fn bucket(&self) -> Option<&TokenBucket> {
        None
    }

    fn lease(&self) -> Option<Nanos> {
        None
    }

    fn share_state(self, _with: &Self) -> Self {
        self
    }

    fn has_to_carry_over(&self, _old: &Self) -> bool {
        false
    }

    fn carry_over(&self, _old: &Self, _state: &State, _now: Timestamp) -> Option<Edit> {
        None
    }
}

/// The operations that every algorithm but concurrency has, called alike on each: on the state that the method `$of` reads
/// out of any state, answered with an edit of the variant `$edit`. Spending is what nearly everybody does, so it shares no
/// registers and no stack with the others.
macro_rules! decide_charge {
    ($algorithm:ty, $of:ident, $edit:path) => {
        fn decide_op(
            &self,
            state: &State,
            now: Timestamp,
            op: Op,
        ) -> Result<Transition<Edit>, OpError> {
            #[inline(never)]
            fn other(
                quota: &$algorithm,
                states: &State,
                now: Timestamp,
                op: Op,
            ) -> Result<Transition<Edit>, OpError> {
                let state = states.$of();
                let transition = match op {
                    Op::Spend(cost) => quota.decide(state, now, cost),
                    Op::SpendUpTo(most) => quota.decide_up_to(state, now, most),
                    Op::ChargeAlways(cost) => quota.charge_always(state, now, cost),
                    Op::Settle { receipt, actual } => quota.settle(state, now, &receipt, actual),
                    Op::Credit(amount) => quota.credit(state, now, amount),
                    Op::Peek(cost) => {
                        $crate::limit::algorithm::peeked(quota.decide(state, now, cost))
                    }
                    Op::Reserve { .. }
                    | Op::SettleReserved { .. }
                    | Op::CancelReserved(_)
                    | Op::Acquire { .. }
                    | Op::Renew(_)
                    | Op::Release(_) => return Err(OpError::Unsupported),
                };
                Ok(transition.map($edit))
            }
            match op {
                Op::Spend(cost) => Ok(self.decide(state.$of(), now, cost).map($edit)),
                op => other(self, state, now, op),
            }
        }
    };
}
pub(crate) use decide_charge;

/// The transition of a spend that is only looked at.
pub(crate) fn peeked<S: Copy>(transition: Transition<S>) -> Transition<S> {
    Transition {
        next: None,
        receipt: Receipt {
            cost: 0,
            ..transition.receipt
        },
        ..transition
    }
}
