//! What a limiter says when it says yes: where every limit stands, and proof of what was charged.
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

/// A charge that was made, or for a [peek](crate::Limiter::peek) one that would have been.
///
/// ```
/// use tollgate::Limiter;
///
/// let limiter = Limiter::per_minute(60).build()?;
/// let allowed = limiter.spend("alice", 20)?;
/// let standing = allowed.tightest();
/// assert_eq!((standing.name, standing.remaining, standing.limit), ("rate", 40, 60));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Admission {
    pub(crate) active_limits: Arc<ActiveLimits>,
    pub(crate) replies: [StoreReply; MAX_LIMITS],
    pub(crate) cost: u64,
}

/// Where one limit stands for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitStatus<'a> {
    /// The limit's name.
    pub name: &'a str,
    /// The most it admits at once.
    pub limit: u64,
    /// What it would admit now, rounded down.
    pub remaining: u64,
    /// Time until it is as if this key had never used it.
    pub reset_after: Duration,
    /// What its numbers count.
    pub unit: QuotaUnit,
    /// What the call charged on it, the most that a refund gives back. Nothing for a peek.
    pub charged: u64,
}

impl LimitStatus<'_> {
    /// The numbers by themselves, for those who word them: headers, problem details.
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
    /// An admission with room for every limit's answer.
    pub(crate) fn with_empty_replies(rules: &Arc<ActiveLimits>, cost: u64, op: Op) -> Self {
        Self {
            active_limits: Arc::clone(rules),
            replies: [StoreReply::EMPTY; MAX_LIMITS],
            cost: if matches!(op, Op::Peek(_)) { 0 } else { cost },
        }
    }

    /// What was charged on every limit. Nothing for a peek; less than asked only by
    /// [`take_up_to`](crate::Limiter::take_up_to) and [`charge`](crate::Limiter::charge).
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// Time to wait before going ahead. Only a queue ([`LeakyBucket::queue`](crate::LeakyBucket::queue)) asks for any.
    #[must_use]
    pub fn wait(&self) -> Duration {
        let waits = self
            .limits_with_replies()
            .map(|(_, answer)| match answer.outcome {
                Outcome::Wait(wait) => wait,
                _ => Nanos::ZERO,
            });
        waits.max().unwrap_or(Nanos::ZERO).into()
    }

    /// Every limit, in the order they were written down.
    pub fn limits(&self) -> impl Iterator<Item = LimitStatus<'_>> {
        self.limits_with_replies()
            .map(|(rule, answer)| LimitStatus {
                name: rule.name.as_str(),
                limit: answer.status.limit,
                remaining: answer.status.remaining,
                reset_after: answer.status.reset_after.into(),
                unit: rule.identified.limit.unit(),
                charged: answer.receipt.cost,
            })
    }

    /// The limit with the smallest part of its quota left: the one worth telling a client about.
    #[must_use]
    pub fn tightest(&self) -> LimitStatus<'_> {
        tightest(self.limits())
    }

    pub(crate) fn limits_with_replies(&self) -> impl Iterator<Item = (&ActiveLimit, &StoreReply)> {
        self.active_limits.list().iter().zip(&self.replies)
    }

    /// Says that as much was charged as the receipts show, on the limit that was charged most.
    pub(crate) fn set_cost_to_receipts(&mut self) {
        let costs = self
            .limits_with_replies()
            .map(|(_, answer)| answer.receipt.cost);
        self.cost = costs.max().unwrap_or(0);
    }

    /// The largest cost that every limit had room for when it answered, up to `most` and at least one.
    pub(crate) fn room_for(&self, most: u64) -> u64 {
        let least = self.limits().map(|standing| standing.remaining).min();
        most.min(least.unwrap_or(0).max(1))
    }

    pub(crate) fn first_status(&self) -> QuotaStatus {
        self.replies
            .first()
            .map_or(StoreReply::EMPTY.status, |answer| answer.status)
    }

    /// This admission as a denial by the limit that has to be waited for.
    pub(crate) fn to_denial(&self, cost: u64) -> Denial {
        let longest = self
            .limits_with_replies()
            .max_by_key(|(_, answer)| match answer.outcome {
                Outcome::Wait(wait) => wait,
                _ => Nanos::ZERO,
            });
        let (name, answer) = longest.map_or(
            (LimitName::literal(Limits::UNNAMED), &StoreReply::EMPTY),
            |(rule, answer)| (rule.name.clone(), answer),
        );
        Denial::new(name, cost, answer.outcome, answer.status)
    }
}

/// The limit with the smallest part of its quota left.
pub(crate) fn tightest<'a>(limits: impl Iterator<Item = LimitStatus<'a>>) -> LimitStatus<'a> {
    let nothing = LimitStatus {
        name: Limits::UNNAMED,
        limit: 0,
        remaining: 0,
        reset_after: Duration::ZERO,
        unit: QuotaUnit::Requests,
        charged: 0,
    };
    // Fractions are compared by multiplying crosswise; a limit of zero has nothing left.
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
