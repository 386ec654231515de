//! How a request is checked: what it costs, how long it may wait, and whether it is charged, reserved, peeked at or refunded.
//!
//! Must not know: how anything is decided.

use tollgate_core::Nanos;

/// How a request is checked.
///
/// ```
/// use tollgate_engine::{CheckMode, CheckOptions};
///
/// let options = CheckOptions::new(CheckMode::Peek).with_cost(3);
/// assert_eq!(options.cost, Some(3));
/// assert!(!options.mode.charges());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CheckOptions {
    /// The cost, if the caller gives it. `None`: the policy's cost.
    pub cost: Option<u64>,
    /// What happens to the cost.
    pub mode: CheckMode,
    /// The longest wait that the caller accepts. It can only shorten the `wait` of a limit. `None`: the policy's wait.
    pub max_wait: Option<Nanos>,
    /// Which limits decide.
    pub scope: CheckScope,
}

/// Which limits decide on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum CheckScope {
    /// All that match.
    #[default]
    AllLimits,
    /// Those that need no claims. A denial is final: it is counted and penalised. An admission is none yet: nothing is charged, and
    /// the request has to be checked again with its claims.
    BeforeClaims,
}

/// What happens to a request's cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum CheckMode {
    /// The cost is charged if the request is admitted.
    #[default]
    Charge,
    /// The cost is charged as an estimate: the ticket settles every limit that was charged.
    Reserve,
    /// Nothing is charged, penalised or counted.
    Peek,
    /// The cost is credited back, without a receipt.
    Refund,
}

impl CheckOptions {
    /// Options with the policy's cost.
    #[must_use]
    pub const fn new(mode: CheckMode) -> Self {
        Self {
            cost: None,
            mode,
            max_wait: None,
            scope: CheckScope::AllLimits,
        }
    }

    /// Overrides the policy's cost.
    #[must_use]
    pub const fn with_cost(mut self, cost: u64) -> Self {
        self.cost = Some(cost);
        self
    }

    /// Shortens the waits of limits to at most this; zero: the request does not wait.
    #[must_use]
    pub const fn with_max_wait(mut self, max_wait: Nanos) -> Self {
        self.max_wait = Some(max_wait);
        self
    }
}

impl CheckOptions {
    /// The same check, by the limits that need no claims.
    #[must_use]
    pub const fn before_claims(mut self) -> Self {
        self.scope = CheckScope::BeforeClaims;
        self
    }

    pub(crate) const fn is_before_claims(&self) -> bool {
        matches!(self.scope, CheckScope::BeforeClaims)
    }
}

impl CheckMode {
    /// Whether admitted requests are charged, and denied requests penalised and counted.
    #[must_use]
    pub const fn charges(self) -> bool {
        matches!(self, Self::Charge | Self::Reserve)
    }
}
