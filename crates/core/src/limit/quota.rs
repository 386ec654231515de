//! A compiled limit: the quota of one algorithm, and the unit that it counts.
//!
//! Every call goes to the algorithm through one `match`. Must not know: how any algorithm decides.

use super::algorithm::{Algorithm, AlgorithmKind, RefillPeriod, StateSize, UsageScale};
use super::op::{Op, OpError};
use super::state::{Edit, State};
use crate::concurrency::Concurrency;
use crate::custom_bucket::CustomBucket;
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
    /// See [`custom_bucket`](crate::custom_bucket).
    CustomBucket(CustomBucket),
    /// See [`fixed_window`](crate::fixed_window).
    FixedWindow(FixedWindow),
    /// See [`sliding_log`](crate::sliding_log).
    SlidingLog(SlidingLog),
    /// See [`sliding_counter`](crate::sliding_counter).
    SlidingCounter(SlidingCounter),
    /// See [`concurrency`](crate::concurrency).
    Concurrency(Concurrency),
}

/// Calls the algorithm of a quota. This is the only place that matches on all of them.
macro_rules! each {
    ($quota:expr, $algorithm:ident => $call:expr) => {
        match $quota {
            Quota::TokenBucket($algorithm) => $call,
            Quota::LeakyBucket($algorithm) => $call,
            Quota::CustomBucket($algorithm) => $call,
            Quota::FixedWindow($algorithm) => $call,
            Quota::SlidingLog($algorithm) => $call,
            Quota::SlidingCounter($algorithm) => $call,
            Quota::Concurrency($algorithm) => $call,
        }
    };
}

/// An algorithm whose quota can be taken out of a [`Quota`].
trait Variant: Sized {
    fn from_quota(quota: &Quota) -> Option<&Self>;
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
            fn from_quota(quota: &Quota) -> Option<&Self> {
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
    CustomBucket,
    FixedWindow,
    SlidingLog,
    SlidingCounter,
    Concurrency
);

/// A quota and the unit that it counts.
///
/// ```
/// use tollgate_core::limit::{Limit, Op, State};
/// use tollgate_core::{Outcome, QuotaUnit, Rate, Timestamp, TokenBucket};
///
/// let limit = Limit::new(TokenBucket::builder(Rate::per_minute(60_000)).build()?).with_unit(QuotaUnit::Bytes);
/// let mut state = State::default();
/// let now = Timestamp::from_secs(1);
/// let transition = limit.decide(&state, now, Op::Spend(50_000)).unwrap();
/// assert_eq!(transition.outcome, Outcome::Allow);
/// state.apply(transition.next.unwrap());
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

    /// The unit that the limit counts.
    #[must_use]
    pub const fn unit(&self) -> QuotaUnit {
        self.unit
    }

    /// The compiled quota.
    #[must_use]
    pub const fn quota(&self) -> &Quota {
        &self.quota
    }

    /// Decides on an operation at `now`. Nothing changes until the edit of the transition is applied to the state.
    ///
    /// # Errors
    /// The algorithm does not have the operation, or the lease to renew is not held.
    pub fn decide(
        &self,
        state: &State,
        now: Timestamp,
        op: Op,
    ) -> Result<Transition<Edit>, OpError> {
        each!(&self.quota, quota => quota.decide_op(state, now, op))
    }

    /// The status of this state for a client.
    #[must_use]
    pub fn status(&self, state: &State, now: Timestamp) -> QuotaStatus {
        each!(&self.quota, quota => quota.status_of(state, now))
    }
}

/// Facts that stores, engines and transports need beside decisions.
impl Limit {
    /// The algorithm of the limit.
    #[must_use]
    pub fn algorithm_kind(&self) -> AlgorithmKind {
        each!(&self.quota, quota => quota.kind())
    }

    /// The most units that it admits at once.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        each!(&self.quota, quota => quota.capacity())
    }

    /// The time in which the quota refills completely; `None` for concurrency limits, whose places come back on release.
    #[must_use]
    pub fn refill_period(&self) -> Option<RefillPeriod> {
        each!(&self.quota, quota => quota.refill_period())
    }

    /// How long a state still counts after its last charge.
    #[must_use]
    pub fn state_lifetime(&self) -> Nanos {
        each!(&self.quota, quota => quota.lifetime())
    }

    /// How long a lease lasts that is not released; only concurrency limits have leases.
    #[must_use]
    pub fn lease_duration(&self) -> Option<Nanos> {
        each!(&self.quota, quota => Algorithm::lease_duration(quota))
    }

    /// The token bucket whose arithmetic decides, if there is one: for token buckets, leaky buckets and queues.
    #[must_use]
    #[inline]
    pub fn bucket(&self) -> Option<&TokenBucket> {
        each!(&self.quota, quota => quota.bucket())
    }

    /// The same, if the limit denies what does not fit. A queue delays requests instead, so its future depends on the requests that wait.
    #[must_use]
    #[inline]
    pub fn denying_bucket(&self) -> Option<&TokenBucket> {
        each!(&self.quota, quota => quota.bucket().filter(|_| quota.kind() != AlgorithmKind::LeakyQueue))
    }

    /// A bucket that admits no more than this limit, at once and in the long run. `None` if there is no such bucket.
    #[must_use]
    pub fn stricter_bucket(&self) -> Option<TokenBucket> {
        each!(&self.quota, quota => quota.stricter_bucket())
    }

    /// How much memory a state takes.
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

    /// How a store reads the use of the quota from the words of a state.
    #[must_use]
    pub fn usage_scale(&self) -> UsageScale {
        each!(&self.quota, quota => quota.usage_scale())
    }

    /// The same limit, which accepts as much in its state as `other` does, so that both can share it. Limits of different algorithms
    /// share nothing.
    #[must_use]
    pub fn sharing_state_with(self, other: &Self) -> Self {
        let quota = each!(self.quota, quota => match Variant::from_quota(&other.quota) {
            Some(other) => quota.share_state(other).into(),
            None => self.quota,
        });
        Self { quota, ..self }
    }

    /// Whether it can decide on states that `old` has written: both have the same algorithm.
    #[must_use]
    pub fn can_read_state_of(&self, old: &Self) -> bool {
        core::mem::discriminant(&self.quota) == core::mem::discriminant(&old.quota)
    }

    /// Whether states that `old` has written have to be [carried over](Self::carry_over) first.
    #[must_use]
    pub fn has_to_carry_over(&self, old: &Self) -> bool {
        each!(&self.quota, quota => Variant::from_quota(&old.quota).is_some_and(|old| quota.has_to_carry_over(old)))
    }

    /// The edit that converts a state that `old` has written for this limit. `None` if the state stays as it is.
    #[must_use]
    pub fn carry_over(&self, old: &Self, state: &State, now: Timestamp) -> Option<Edit> {
        each!(&self.quota, quota => quota.carry_over(Variant::from_quota(&old.quota)?, state, now))
    }
}
