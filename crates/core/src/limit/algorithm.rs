//! Everything that stores, engines and transports need to know about an algorithm, as one trait.
//!
//! Each algorithm implements it in `algorithm.rs` of its own folder, and [`Limit`](super::Limit) calls the algorithm of its quota. So no
//! other crate matches on algorithms to learn these facts.
//!
//! Must not know: any one algorithm, except by the names in [`AlgorithmKind`].

use super::op::{Op, OpError};
use super::state::{Edit, State};
use crate::fixed_window::WindowState;
use crate::outcome::{QuotaStatus, Receipt, Transition};
use crate::time::{Nanos, Timestamp};
use crate::token_bucket::TokenBucket;

/// The algorithms by name. A state of one kind cannot be read as another.
///
/// The order is part of the contract: limits whose ids collide get them in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum AlgorithmKind {
    /// See [`token_bucket`](crate::token_bucket).
    TokenBucket,
    /// A [`leaky_bucket`](crate::leaky_bucket) that denies what overflows.
    LeakyBucket,
    /// A [`leaky_bucket`](crate::leaky_bucket) that delays requests.
    LeakyQueue,
    /// See [`fixed_window`](crate::fixed_window).
    FixedWindow,
    /// See [`sliding_log`](crate::sliding_log).
    SlidingLog,
    /// See [`sliding_counter`](crate::sliding_counter).
    SlidingCounter,
    /// See [`concurrency`](crate::concurrency).
    Concurrency,
    /// See [`custom_bucket`](crate::custom_bucket).
    CustomBucket,
}

impl AlgorithmKind {
    /// Whether counts of one window length mean nothing in windows of another length, so that a state has to be carried over when the
    /// length changes.
    #[must_use]
    pub const fn is_tied_to_window_length(self) -> bool {
        matches!(self, Self::SlidingCounter)
    }
}

/// The time in which a quota refills completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefillPeriod {
    /// A fixed length.
    Span(Nanos),
    /// The calendar's days, weeks, months or years.
    Calendar,
}

impl RefillPeriod {
    /// The period, with `calendar` as the length of a calendar period.
    #[must_use]
    pub const fn span_or(self, calendar: Nanos) -> Nanos {
        match self {
            Self::Span(span) => span,
            Self::Calendar => calendar,
        }
    }
}

/// How much memory a state takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateSize {
    /// One word: [`State::Bucket`].
    Word,
    /// Two words: see [`Limit::state_from_pair`](super::Limit::state_from_pair) and [`Edit::to_pair`].
    Pair,
    /// One entry per charge.
    Collection,
}

/// How a store reads from the words of a state how much of the quota is used, without deciding anything.
///
/// The use of a state of one word is the time from now until its instant, and `tail` in addition. The use of a state of two words is its
/// second word or, if the scale has a `tail`, the sum of that word's halves. Once `tail` has passed since the instant in the first word, the
/// use is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageScale {
    /// The use that equals the whole quota.
    pub full: u64,
    /// The use above which not even one more unit is admitted.
    pub denied_above: u64,
    /// How long after the instant in its first word a state still counts, in nanoseconds.
    pub tail: u64,
}

impl UsageScale {
    /// The scale of a quota that counts units.
    pub(crate) const fn from_units(units: u64, tail: Nanos) -> Self {
        Self {
            full: units,
            denied_above: units.saturating_sub(1),
            tail: tail.as_nanos(),
        }
    }

    /// The scale of a quota that counts nanoseconds of debt.
    pub(crate) const fn from_debt(full: u64, interval: Nanos) -> Self {
        Self {
            full,
            denied_above: full.saturating_sub(interval.as_nanos()),
            tail: 0,
        }
    }
}

/// What other crates need of an algorithm. [`Limit`](super::Limit) documents every method.
pub(crate) trait Algorithm: Copy {
    /// How much memory its states take.
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

    /// Called only if the states are a [`Pair`](StateSize::Pair). Two words are a window unless the algorithm says otherwise, so that
    /// reading them is one comparison.
    fn state_from_pair(&self, [end, count]: [u64; 2]) -> State {
        State::Window(WindowState { end, count })
    }

    fn bucket(&self) -> Option<&TokenBucket> {
        None
    }

    fn lease_duration(&self) -> Option<Nanos> {
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

/// Implements `decide_op` for every algorithm but concurrency. The method `$of` reads the algorithm's state out of any state; `$edit` is
/// the variant of its edits. `Op::Spend` is by far the most frequent operation, so it shares no registers and no stack with the others.
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
                        $crate::limit::algorithm::to_peek(quota.decide(state, now, cost))
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

/// Turns the transition of a spend into that of a peek.
pub(crate) fn to_peek<S: Copy>(transition: Transition<S>) -> Transition<S> {
    Transition {
        next: None,
        receipt: Receipt {
            cost: 0,
            ..transition.receipt
        },
        ..transition
    }
}
