//! A compiled limit: one of the algorithms, and what its numbers count.

use super::op::{Op, Refused};
use super::state::{Edit, State};
use crate::concurrency::Concurrency;
use crate::fixed_window::FixedWindow;
use crate::leaky_bucket::LeakyBucket;
use crate::outcome::{Receipt, Status, Transition, Unit};
use crate::sliding_counter::SlidingCounter;
use crate::sliding_log::SlidingLog;
use crate::time::Timestamp;
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

macro_rules! from_quota {
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
    )*};
}
from_quota!(
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
/// use tollgate_core::{Outcome, Rate, Timestamp, TokenBucket, Unit};
///
/// let limit = Limit::new(TokenBucket::at(Rate::per_minute(60_000)).build()?).counting(Unit::Bytes);
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
    unit: Unit,
}

impl Limit {
    /// A limit on requests.
    #[must_use]
    pub fn new(quota: impl Into<Quota>) -> Self {
        Self {
            quota: quota.into(),
            unit: Unit::default(),
        }
    }

    /// The same limit on another unit.
    #[must_use]
    pub const fn counting(mut self, unit: Unit) -> Self {
        self.unit = unit;
        self
    }

    /// What the limit's numbers count.
    #[must_use]
    pub const fn unit(&self) -> Unit {
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
    ) -> Result<Transition<Edit>, Refused> {
        match &self.quota {
            Quota::TokenBucket(quota) => on_bucket(quota, state, now, op),
            Quota::LeakyBucket(quota) => on_leaky(quota, state, now, op),
            Quota::FixedWindow(quota) => on_window(quota, state, now, op),
            Quota::SlidingLog(quota) => on_log(quota, state, now, op),
            Quota::SlidingCounter(quota) => on_counter(quota, state, now, op),
            Quota::Concurrency(quota) => on_leases(quota, state, now, op),
        }
    }

    /// What a client may be told about this state.
    #[must_use]
    pub fn status(&self, state: &State, now: Timestamp) -> Status {
        match &self.quota {
            Quota::TokenBucket(quota) => quota.status(state.tat(), now),
            Quota::LeakyBucket(quota) => quota.status(state.tat(), now),
            Quota::FixedWindow(quota) => quota.status(state.window(), now),
            Quota::SlidingLog(quota) => quota.status(state.log(), now),
            Quota::SlidingCounter(quota) => quota.status(state.counter(), now),
            Quota::Concurrency(quota) => quota.status(state.leases(), now),
        }
    }
}

/// The operations that every algorithm but concurrency has, called alike on each.
macro_rules! on_charges {
    ($name:ident, $quota:ty, $state:ident, $edit:ident) => {
        fn $name(
            quota: &$quota,
            state: &State,
            now: Timestamp,
            op: Op,
        ) -> Result<Transition<Edit>, Refused> {
            let state = state.$state();
            let transition = match op {
                Op::Spend(cost) => quota.decide(state, now, cost),
                Op::SpendUpTo(most) => quota.decide_up_to(state, now, most),
                Op::ChargeAlways(cost) => quota.charge_always(state, now, cost),
                Op::Settle { receipt, actual } => quota.settle(state, now, &receipt, actual),
                Op::Credit(amount) => quota.credit(state, now, amount),
                Op::Peek(cost) => peeked(quota.decide(state, now, cost)),
                Op::Reserve { .. }
                | Op::SettleReserved { .. }
                | Op::CancelReserved(_)
                | Op::Acquire { .. }
                | Op::Renew(_)
                | Op::Release(_) => return Err(Refused::Unsupported),
            };
            Ok(transition.map(Edit::$edit))
        }
    };
}
on_charges!(on_bucket, TokenBucket, tat, Bucket);
on_charges!(on_leaky, LeakyBucket, tat, Bucket);
on_charges!(on_window, FixedWindow, window, Window);
on_charges!(on_counter, SlidingCounter, counter, Counter);
on_charges!(on_log, SlidingLog, log, Log);

fn on_leases(
    quota: &Concurrency,
    state: &State,
    now: Timestamp,
    op: Op,
) -> Result<Transition<Edit>, Refused> {
    let leases = state.leases();
    let transition = match op {
        Op::Acquire { id, weight } => quota.acquire(leases, now, id, weight),
        Op::Renew(id) => quota.renew(leases, now, id).ok_or(Refused::NotHeld)?,
        Op::Release(id) => quota.release(leases, now, id),
        _ => return Err(Refused::Unsupported),
    };
    Ok(transition.map(Edit::Leases))
}

/// The transition of a spend that is only looked at.
const fn peeked<S: Copy>(transition: Transition<S>) -> Transition<S> {
    let receipt = Receipt {
        cost: 0,
        ..transition.receipt
    };
    Transition {
        outcome: transition.outcome,
        next: None,
        receipt,
    }
}
