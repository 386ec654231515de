//! What every algorithm answers: the outcome, the state to keep, and the numbers a client is told.
//!
//! Knows nothing of headers, status codes or stores; those translate these values.

use crate::time::{Nanos, Timestamp};

/// The answer of one limit to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Proceed now. The cost has been charged in the next state.
    Allow,
    /// Proceed, but only after this long (never zero). The place in the queue has been charged.
    Wait(Nanos),
    /// Not now. The same cost is admitted after exactly this long (never zero) if nothing else arrives.
    Deny {
        /// Time until the same request would be admitted.
        retry_after: Nanos,
    },
    /// Not ever: the cost is above the most this limit admits at once. Waiting does not help.
    Never,
}

impl Outcome {
    /// Whether the request may proceed, at once or after its wait.
    #[must_use]
    pub const fn is_admitted(self) -> bool {
        matches!(self, Self::Allow | Self::Wait(_))
    }
}

/// What a client may be told about a limit, all from one state at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaStatus {
    /// The most the limit admits at once, in its own units.
    pub limit: u64,
    /// What it would admit right now, rounded down.
    pub remaining: u64,
    /// Time until the limit is as if it had never been used.
    pub reset_after: Nanos,
}

impl QuotaStatus {
    /// Whether a smaller part is left than of the other: `remaining / limit` compared without dividing. A limit of
    /// nothing counts as one of one.
    #[must_use]
    pub fn is_closer_to_limit_than(&self, other: &Self) -> bool {
        let part = |of: &Self, by: &Self| {
            u128::from(of.remaining).saturating_mul(u128::from(by.limit.max(1)))
        };
        part(self, other) < part(other, self)
    }
}

/// Proof of a charge, needed to give it back or to correct it later.
///
/// A refund looks at when the charge was made and what it was made to, so that nothing that time has already
/// given back is given back again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Receipt {
    /// What was charged, in the limit's units. Zero for a peek or a denial.
    pub cost: u64,
    /// When it was charged.
    pub at: Timestamp,
    /// What it was charged to, in the algorithm's own terms: the state after the charge for buckets, the
    /// window for windows. Meaningful only to the algorithm that wrote it.
    pub mark: u64,
}

impl Receipt {
    /// Of a decision at `now` that charged nothing: a peek, a denial, a correction.
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
    /// What to tell the caller.
    pub outcome: Outcome,
    /// The state to store, or `None` where the decision changes nothing. A peek or a denial changes nothing
    /// unless the stored state had to be corrected (a clock that went back), and then only that.
    pub next: Option<S>,
    /// What was charged. Its cost is zero unless the outcome admits, and below the asked cost only where the
    /// caller said that less would do.
    pub receipt: Receipt,
}

impl<S> Transition<S> {
    /// The same transition with its state in another form.
    pub fn map<T>(self, f: impl FnOnce(S) -> T) -> Transition<T> {
        Transition {
            outcome: self.outcome,
            next: self.next.map(f),
            receipt: self.receipt,
        }
    }
}

/// What the numbers of a limit count.
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
    /// The unit's name as people write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Bytes => "bytes",
            Self::Tokens => "tokens",
        }
    }
}
