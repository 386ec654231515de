//! What a policy says about overload: priority classes, and which mechanisms shed.
//!
//! Must not know: how load is measured.

use super::{Located, Match, Mode, Percent};

/// A priority class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriorityClassSpec {
    /// The name in metrics and refusals.
    pub name: Located<Box<str>>,
    /// Which requests belong to it. `None`: all that no other class matches.
    pub matching: Option<Match>,
}

impl PriorityClassSpec {
    /// The most classes of a policy.
    pub const MAX: usize = 8;
}

/// `overload`: the mechanisms that shed requests, each with its own mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverloadSpec {
    /// The adaptive concurrency limit with its queue.
    pub adaptive_concurrency: Mode,
    /// Sheds classes from the lowest while the process nears saturation.
    pub utilization: Mode,
    /// Keeps a share of the capacity for the first class.
    pub reserve: Mode,
    /// The share that `reserve` keeps.
    pub reserved_share: Percent,
}

impl OverloadSpec {
    /// The default of `reserved_share`: 20 %, the share that Stripe names.
    pub const RESERVED_SHARE: Percent = Percent::from_hundredths(2_000);

    /// Whether nothing is switched on.
    #[must_use]
    pub const fn is_off(&self) -> bool {
        matches!(
            (self.adaptive_concurrency, self.utilization, self.reserve),
            (Mode::Off, Mode::Off, Mode::Off)
        )
    }
}

impl Default for OverloadSpec {
    /// Everything is off.
    fn default() -> Self {
        Self {
            adaptive_concurrency: Mode::Off,
            utilization: Mode::Off,
            reserve: Mode::Off,
            reserved_share: Self::RESERVED_SHARE,
        }
    }
}
