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
    /// What the caller says that the request costs. `None`: the policy says it.
    pub cost: Option<u64>,
    /// What becomes of the cost.
    pub mode: CheckMode,
}

/// What becomes of a request's cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum CheckMode {
    /// It is charged if the request is admitted.
    #[default]
    Charge,
    /// The same, at an estimate: the ticket settles every limit that was charged.
    Reserve,
    /// Nothing is charged, punished or counted.
    Peek,
    /// It is given back, without a receipt.
    Refund,
}

impl CheckOptions {
    /// With the cost that the policy says.
    #[must_use]
    pub const fn new(mode: CheckMode) -> Self {
        Self { cost: None, mode }
    }

    /// The same at a cost that the caller knows better than the policy.
    #[must_use]
    pub const fn with_cost(mut self, cost: u64) -> Self {
        self.cost = Some(cost);
        self
    }
}

impl CheckMode {
    /// Whether admitted requests are charged and refused ones are punished and counted.
    #[must_use]
    pub const fn charges(self) -> bool {
        matches!(self, Self::Charge | Self::Reserve)
    }
}
