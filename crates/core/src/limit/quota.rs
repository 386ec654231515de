//! A compiled limit: one of the algorithms, and what its numbers count.
//!
//! Everything goes to the algorithm through one `match`. Must not know: how any of them answers.

use super::algorithm::{Algorithm, AlgorithmKind, RefillPeriod, StateSize, UsageScale};
use super::op::{Op, OpError};
use super::state::{Edit, State};
use crate::concurrency::Concurrency;
use crate::fixed_window::FixedWindow;
use crate::leaky_bucket::LeakyBucket;
use crate::outcome::{QuotaStatus, QuotaUnit, Transition};
use crate::sliding_counter::SlidingCounter;
use crate::sliding_log::SlidingLog;
use crate::time::{Nanos, Timestamp};
use crate::token_bucket::TokenBucket;

/// The compiled quota of any algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Quota {
    /// See [`token_bucket`](crate::token_bucket).
    TokenBucket(TokenBucket),
    /// See [`leaky_bucket`](crate::leaky_bucket).
    LeakyBucket(LeakyBucket),
    /// See [`fixed_window`](crate::fixed_window).
    FixedWindow(FixedWindow),
    /// See [`sliding_log`](crate::sliding_log).
    SlidingLog(SlidingLog),
    /// See [`sliding_counter`](crate::sliding_counter).
    SlidingCounter(SlidingCounter),
    /// See [`concurrency`](crate::concurrency).
    Concurrency(Concurrency),
}

/// Asks the algorithm that a quota is of: the only place where all of them are told apart.
macro_rules! each {
    ($quota:expr, $algorithm:ident => $answer:expr) => {
        match $quota {
            Quota::TokenBucket($algorithm) => $answer,
            Quota::LeakyBucket($algorithm) => $answer,
            Quota::FixedWindow($algorithm) => $answer,
            Quota::SlidingLog($algorithm) => $answer,
            Quota::SlidingCounter($algorithm) => $answer,
            Quota::Concurrency($algorithm) => $answer,
        }
    };
}

/// A quota that may be of this algorithm.
trait Variant: Sized {
    fn of(quota: &Quota) -> Option<&Self>;
}

macro_rules! variants {
    ($($algorithm:ident),*) => {$(
        impl From<$algorithm> for Quota {
            fn from(quota: $algorithm) -> Self {
                Self::$algorithm(quota)
            }
        }
        impl From<$algorithm> for Limit {
            fn from(quota: $algorithm) -> Self {
                Self::new(quota)
            }
        }
        impl Variant for $algorithm {
            fn of(quota: &Quota) -> Option<&Self> {
                match quota {
                    Quota::$algorithm(quota) => Some(quota),
                    _ => None,
                }
            }
        }
    )*};
}
variants!(
    TokenBucket,
    LeakyBucket,
    FixedWindow,
    SlidingLog,
    SlidingCounter,
    Concurrency
);

/// A quota and what it counts.
///
/// ```
/// use tollgate_core::limit::{Limit, Op, State};
/// use tollgate_core::{Outcome, Rate, Timestamp, TokenBucket, QuotaUnit};
///
/// let limit = Limit::new(TokenBucket::at(Rate::per_minute(60_000)).build()?).counting(QuotaUnit::Bytes);
/// let mut state = State::default();
/// let now = Timestamp::from_secs(1);
/// let answer = limit.decide(&state, now, Op::Spend(50_000)).unwrap();
/// assert_eq!(answer.outcome, Outcome::Allow);
/// state.apply(answer.next.unwrap());
/// assert_eq!(limit.status(&state, now).remaining, 10_000);
/// # Ok::<(), tollgate_core::InvalidQuota>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    quota: Quota,
    unit: QuotaUnit,
}

impl Limit {
    /// A limit on requests.
    #[must_use]
    pub fn new(quota: impl Into<Quota>) -> Self {
        Self {
            quota: quota.into(),
            unit: QuotaUnit::default(),
        }
    }

    /// The same limit on another unit.
    #[must_use]
    pub const fn with_unit(mut self, unit: QuotaUnit) -> Self {
        self.unit = unit;
        self
    }

    /// What the limit's numbers count.
    #[must_use]
    pub const fn unit(&self) -> QuotaUnit {
        self.unit
    }

    /// The compiled quota.
    #[must_use]
    pub const fn quota(&self) -> &Quota {
        &self.quota
    }

    /// Decides on an operation at `now`. Nothing changes until the answer's edit is applied to the state.
    ///
    /// # Errors
    /// The algorithm does not know the operation, or the lease to renew is not held.
    pub fn decide(
        &self,
        state: &State,
        now: Timestamp,
        op: Op,
    ) -> Result<Transition<Edit>, OpError> {
        each!(&self.quota, quota => quota.decide_op(state, now, op))
    }

    /// What a client may be told about this state.
    #[must_use]
    pub fn status(&self, state: &State, now: Timestamp) -> QuotaStatus {
        each!(&self.quota, quota => quota.status_of(state, now))
    }
}

/// What stores, engines and transports ask beside decisions.
impl Limit {
    /// Which algorithm it is.
    #[must_use]
    pub fn algorithm_kind(&self) -> AlgorithmKind {
        each!(&self.quota, quota => quota.kind())
    }

    /// The most units that it ever admits at once.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        each!(&self.quota, quota => quota.capacity())
    }

    /// The time in which all of it comes back; `None` for places, which come back when they are released.
    #[must_use]
    pub fn refill_period(&self) -> Option<RefillPeriod> {
        each!(&self.quota, quota => quota.refill_period())
    }

    /// How long a state may matter after it was last charged.
    #[must_use]
    pub fn state_lifetime(&self) -> Nanos {
        each!(&self.quota, quota => quota.lifetime())
    }

    /// How long a place is held that nobody releases; only concurrency limits have places.
    #[must_use]
    pub fn lease_duration(&self) -> Option<Nanos> {
        each!(&self.quota, quota => Algorithm::lease(quota))
    }

    /// The token bucket whose arithmetic decides, where it is one: token buckets, leaky buckets and queues.
    #[must_use]
    #[inline]
    pub fn bucket(&self) -> Option<&TokenBucket> {
        each!(&self.quota, quota => quota.bucket())
    }

    /// The same, where what does not fit is denied. A queue asks to wait instead, so its future depends on who waits.
    #[must_use]
    #[inline]
    pub fn denying_bucket(&self) -> Option<&TokenBucket> {
        each!(&self.quota, quota => quota.bucket().filter(|_| quota.kind() != AlgorithmKind::LeakyQueue))
    }

    /// A bucket that admits no more than this limit, at once and in the long run. `None` where there is no such thing.
    #[must_use]
    pub fn stricter_bucket(&self) -> Option<TokenBucket> {
        each!(&self.quota, quota => quota.stricter_bucket())
    }

    /// How much room a state takes.
    #[must_use]
    #[inline]
    pub const fn state_size(&self) -> StateSize {
        const fn size<A: Algorithm>(_: &A) -> StateSize {
            A::STATE
        }
        each!(&self.quota, quota => size(quota))
    }

    /// The state that [`Edit::to_pair`] has written, for limits whose states are a [`Pair`](StateSize::Pair).
    #[must_use]
    #[inline]
    pub fn state_from_pair(&self, words: [u64; 2]) -> State {
        each!(&self.quota, quota => quota.state_from_pair(words))
    }

    /// How the words of a state are read as use.
    #[must_use]
    pub fn usage_scale(&self) -> UsageScale {
        each!(&self.quota, quota => quota.usage_scale())
    }

    /// The same limit, accepting as much in a state that it shares with `other` as that does. One of another algorithm
    /// shares nothing.
    #[must_use]
    pub fn sharing_state_with(self, other: &Self) -> Self {
        let quota = each!(self.quota, quota => match Variant::of(&other.quota) {
            Some(other) => quota.share_state(other).into(),
            None => self.quota,
        });
        Self { quota, ..self }
    }

    /// Whether it can decide on states that `old` has left: both are of one algorithm.
    #[must_use]
    pub fn can_read_state_of(&self, old: &Self) -> bool {
        core::mem::discriminant(&self.quota) == core::mem::discriminant(&old.quota)
    }

    /// Whether states that `old` has left have to be [carried over](Self::carry_over) first.
    #[must_use]
    pub fn has_to_carry_over(&self, old: &Self) -> bool {
        each!(&self.quota, quota => Variant::of(&old.quota).is_some_and(|old| quota.has_to_carry_over(old)))
    }

    /// How a state that `old` has left is changed for this limit to decide on. `None` if it stays as it is.
    #[must_use]
    pub fn carry_over(&self, old: &Self, state: &State, now: Timestamp) -> Option<Edit> {
        each!(&self.quota, quota => quota.carry_over(Variant::of(&old.quota)?, state, now))
    }
}
