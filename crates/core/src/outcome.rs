//! What a decision returns: the outcome, the next state, the receipt of the charge, and the numbers for the client.
//!
//! Must not know: headers, status codes, stores. Those translate these values.

use crate::time::{Nanos, Timestamp};

/// The decision of one limit on one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Proceed now. The next state contains the charge.
    Allow,
    /// Proceed, but only after this long (never zero). The next state contains the charge.
    Wait(Nanos),
    /// Denied. The same cost is admitted after exactly this long (never zero) if nothing else arrives.
    Deny {
        /// Time until the same request would be admitted.
        retry_after: Nanos,
    },
    /// Denied for ever: the cost is above the capacity of this limit. Waiting does not help.
    Never,
}

impl Outcome {
    /// Whether the request may proceed, now or after a wait.
    #[must_use]
    pub const fn is_admitted(self) -> bool {
        matches!(self, Self::Allow | Self::Wait(_))
    }
}

/// The numbers of one limit that a client sees, all from one state at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaStatus {
    /// The most units that the limit admits at once.
    pub limit: u64,
    /// The units that it would admit now, rounded down.
    pub remaining: u64,
    /// Time until the limit is as if it had never been used.
    pub reset_after: Nanos,
}

impl QuotaStatus {
    /// Whether a smaller fraction is left than of `other`. It compares `remaining / limit` without dividing. A limit of zero counts as a
    /// limit of one.
    #[must_use]
    pub fn is_closer_to_limit_than(&self, other: &Self) -> bool {
        let part = |of: &Self, by: &Self| {
            u128::from(of.remaining).saturating_mul(u128::from(by.limit.max(1)))
        };
        part(self, other) < part(other, self)
    }
}

/// Proof of a charge, needed to refund or settle it later.
///
/// A refund depends on when the charge was made and what was charged, so that it never returns units that refill has already returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Receipt {
    /// The units charged. Zero for a peek or a denial.
    pub cost: u64,
    /// When it was charged.
    pub at: Timestamp,
    /// What was charged, in the algorithm's own terms: for buckets the state after the charge, for windows the window. Only the algorithm
    /// that wrote it can read it.
    pub mark: u64,
}

impl Receipt {
    /// The receipt of a decision at `now` that charged nothing: a peek, a denial, a correction.
    #[must_use]
    pub const fn empty(now: Timestamp) -> Self {
        Self {
            cost: 0,
            at: now,
            mark: 0,
        }
    }
}

/// The outcome of a decision and the state that follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a transition changes nothing until its state is stored"]
pub struct Transition<S> {
    /// The outcome for the caller.
    pub outcome: Outcome,
    /// The state to store, or `None` if the decision changes nothing. A peek or a denial stores at most a correction: of a state that
    /// lies too far ahead because the clock went back.
    pub next: Option<S>,
    /// What was charged. The cost is zero unless the outcome admits. It is below the requested cost only if the caller accepts less.
    pub receipt: Receipt,
}

impl<S> Transition<S> {
    /// The same transition with its state converted by `f`.
    pub fn map<T>(self, f: impl FnOnce(S) -> T) -> Transition<T> {
        Transition {
            outcome: self.outcome,
            next: self.next.map(f),
            receipt: self.receipt,
        }
    }
}

/// The unit that a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum QuotaUnit {
    /// Requests, whatever their size.
    #[default]
    Requests,
    /// Bytes of content.
    Bytes,
    /// Tokens of a language model, or points of any other price list.
    Tokens,
}

impl QuotaUnit {
    /// The name of the unit, in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Bytes => "bytes",
            Self::Tokens => "tokens",
        }
    }
}
