//! How a request is checked: what it costs, and whether it is charged, reserved, peeked at or refunded.
//!
//! Must not know: how anything is decided.

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
        Self { cost: None, mode }
    }

    /// Overrides the policy's cost.
    #[must_use]
    pub const fn with_cost(mut self, cost: u64) -> Self {
        self.cost = Some(cost);
        self
    }
}

impl CheckMode {
    /// Whether admitted requests are charged, and denied requests penalised and counted.
    #[must_use]
    pub const fn charges(self) -> bool {
        matches!(self, Self::Charge | Self::Reserve)
    }
}
