//! The result of an admitted call: the status of every limit, and the receipt of what was charged.
//!
//! Must not know: stores, keys, how to wait.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Nanos, Outcome, QuotaStatus, QuotaUnit};
use tollgate_store::{Op, StoreReply};

use crate::active_limits::{ActiveLimit, ActiveLimits};
use crate::error::Denial;
use crate::limit_name::LimitName;
use crate::limits::{Limits, MAX_LIMITS};
use crate::rate_limit_fields::{RateLimitFields, StatedQuota};

/// An admitted call: the charge and the status of every limit. A [peek](crate::Limiter::peek) returns it without a charge.
///
/// ```
/// use tollgate::Limiter;
///
/// let limiter = Limiter::per_minute(60).build()?;
/// let admission = limiter.spend("alice", 20)?;
/// let status = admission.tightest();
/// assert_eq!((status.name, status.remaining, status.limit), ("rate", 40, 60));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Admission {
    pub(crate) active_limits: Arc<ActiveLimits>,
    pub(crate) replies: [StoreReply; MAX_LIMITS],
    pub(crate) cost: u64,
}

/// The status of one limit for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitStatus<'a> {
    /// The limit's name.
    pub name: &'a str,
    /// The largest cost that it ever admits at once.
    pub limit: u64,
    /// The units that it would admit now, rounded down.
    pub remaining: u64,
    /// Time until the full quota is available again.
    pub reset_after: Duration,
    /// What its units are.
    pub unit: QuotaUnit,
    /// The units that the call charged, which is the most that a refund returns. Zero for a peek.
    pub charged: u64,
}

impl LimitStatus<'_> {
    /// The numbers alone, for code that writes header fields or problem details.
    #[must_use]
    pub fn status(&self) -> QuotaStatus {
        QuotaStatus {
            limit: self.limit,
            remaining: self.remaining,
            reset_after: self.reset_after.into(),
        }
    }
}

impl Admission {
    /// An admission with an empty reply for every limit.
    pub(crate) fn with_empty_replies(limits: &Arc<ActiveLimits>, cost: u64, op: Op) -> Self {
        Self {
            active_limits: Arc::clone(limits),
            replies: [StoreReply::EMPTY; MAX_LIMITS],
            cost: if matches!(op, Op::Peek(_)) { 0 } else { cost },
        }
    }

    /// The units that were charged on every limit. Zero for a peek. Less than requested only for
    /// [`take_up_to`](crate::Limiter::take_up_to) and [`charge`](crate::Limiter::charge).
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// Time that the caller must wait before it proceeds. Only a queue ([`LeakyBucket::queue`](crate::LeakyBucket::queue))
    /// returns a time above zero.
    #[must_use]
    pub fn wait(&self) -> Duration {
        let waits = self
            .limits_with_replies()
            .map(|(_, reply)| match reply.outcome {
                Outcome::Wait(wait) => wait,
                _ => Nanos::ZERO,
            });
        waits.max().unwrap_or(Nanos::ZERO).into()
    }

    /// The status of every limit, in the order in which the limits were added.
    pub fn limits(&self) -> impl Iterator<Item = LimitStatus<'_>> {
        self.limits_with_replies()
            .map(|(limit, reply)| LimitStatus {
                name: limit.name.as_str(),
                limit: reply.status.limit,
                remaining: reply.status.remaining,
                reset_after: reply.status.reset_after.into(),
                unit: limit.identified.limit.unit(),
                charged: reply.receipt.cost,
            })
    }

    /// The header fields of all limits.
    #[must_use]
    pub fn rate_limit_fields(&self) -> RateLimitFields {
        let limits = self.limits_with_replies().map(|(limit, reply)| {
            let quota = StatedQuota::new(&limit.identified.limit, &reply.status);
            (limit.name.as_str(), quota, reply.outcome, reply.status)
        });
        RateLimitFields::new(Outcome::Allow, limits)
    }

    /// The limit with the smallest fraction of its quota left. Report this one to clients.
    #[must_use]
    pub fn tightest(&self) -> LimitStatus<'_> {
        tightest(self.limits())
    }

    pub(crate) fn limits_with_replies(&self) -> impl Iterator<Item = (&ActiveLimit, &StoreReply)> {
        self.active_limits.list().iter().zip(&self.replies)
    }

    /// Sets `cost` to the largest cost in the receipts.
    pub(crate) fn set_cost_to_receipts(&mut self) {
        let costs = self
            .limits_with_replies()
            .map(|(_, reply)| reply.receipt.cost);
        self.cost = costs.max().unwrap_or(0);
    }

    /// The largest cost that every limit had room for, at most `most` and at least one.
    pub(crate) fn room_for(&self, most: u64) -> u64 {
        let least = self.limits().map(|status| status.remaining).min();
        most.min(least.unwrap_or(0).max(1))
    }

    pub(crate) fn first_status(&self) -> QuotaStatus {
        self.replies
            .first()
            .map_or(StoreReply::EMPTY.status, |reply| reply.status)
    }

    /// This admission as a denial by the limit with the longest wait.
    pub(crate) fn to_denial(&self, cost: u64) -> Denial {
        let longest = self
            .limits_with_replies()
            .max_by_key(|(_, reply)| match reply.outcome {
                Outcome::Wait(wait) => wait,
                _ => Nanos::ZERO,
            });
        denial_by(longest, cost)
    }
}

/// The denial by a limit, if there is one.
pub(crate) fn denial_by(by: Option<(&ActiveLimit, &StoreReply)>, cost: u64) -> Denial {
    let Some((limit, reply)) = by else {
        let (name, reply) = (LimitName::literal(Limits::UNNAMED), StoreReply::EMPTY);
        return Denial::new(name, cost, reply.outcome, reply.status);
    };
    Denial::new(limit.name.clone(), cost, reply.outcome, reply.status)
        .by_limit(&limit.identified.limit)
}

/// The limit with the smallest fraction of its quota left.
pub(crate) fn tightest<'a>(limits: impl Iterator<Item = LimitStatus<'a>>) -> LimitStatus<'a> {
    let nothing = LimitStatus {
        name: Limits::UNNAMED,
        limit: 0,
        remaining: 0,
        reset_after: Duration::ZERO,
        unit: QuotaUnit::Requests,
        charged: 0,
    };
    // Compares fractions by cross-multiplication. A limit of zero has nothing left.
    let part = |s: &LimitStatus<'_>, of: &LimitStatus<'_>| {
        u128::from(s.remaining).saturating_mul(u128::from(of.limit.max(1)))
    };
    limits
        .min_by(|a, b| part(a, b).cmp(&part(b, a)))
        .unwrap_or(nothing)
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allowed")
            .field("cost", &self.cost)
            .field("wait", &self.wait())
            .field("limits", &self.limits().collect::<Vec<_>>())
            .finish()
    }
}
