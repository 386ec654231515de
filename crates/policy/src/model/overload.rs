//! What a policy says about overload: priority classes, and which mechanisms shed.
//!
//! Must not know: how load is measured.

use super::{Located, Match, Mode, Percent};
use crate::attributes::Attribute;

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

/// What keeps requests away from an overloaded service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShedMechanism {
    /// The adaptive concurrency limit and its queue.
    Concurrency,
    /// The worker utilization shedder.
    Utilization,
    /// The reserve of the first class.
    Reserve,
    /// The retry budget.
    Retries,
    /// Credits: responses say how much a client may send. They shed nothing themselves.
    Credits,
}

impl ShedMechanism {
    /// All of them, in the order of the metrics page.
    pub const ALL: [Self; 5] = [
        Self::Concurrency,
        Self::Utilization,
        Self::Reserve,
        Self::Retries,
        Self::Credits,
    ];

    /// The field of `overload` that switches it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Concurrency => "adaptive_concurrency",
            Self::Utilization => "utilization",
            Self::Reserve => "reserve",
            Self::Retries => "retries",
            Self::Credits => "credits",
        }
    }

    /// The name of its operator switch. No limit can have this name, because names have no colon.
    #[must_use]
    pub const fn switch_name(self) -> &'static str {
        match self {
            Self::Concurrency => "overload:adaptive_concurrency",
            Self::Utilization => "overload:utilization",
            Self::Reserve => "overload:reserve",
            Self::Retries => "overload:retries",
            Self::Credits => "overload:credits",
        }
    }

    /// Its place in [`ALL`](Self::ALL).
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Concurrency => 0,
            Self::Utilization => 1,
            Self::Reserve => 2,
            Self::Retries => 3,
            Self::Credits => 4,
        }
    }
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
    /// Sheds retries above a share of the first tries.
    pub retries: Mode,
    /// That share.
    pub retry_share: Percent,
    /// Tells clients how much they may send.
    pub credits: Mode,
}

impl OverloadSpec {
    /// The default of `reserved_share`: 20 %, the share that Stripe names.
    pub const RESERVED_SHARE: Percent = Percent::from_hundredths(2_000);

    /// The default of `retry_share`: 10 %, the share of Google's clients.
    pub const RETRY_SHARE: Percent = Percent::from_hundredths(1_000);

    /// The mode of a mechanism.
    #[must_use]
    pub const fn mode(&self, mechanism: ShedMechanism) -> Mode {
        match mechanism {
            ShedMechanism::Concurrency => self.adaptive_concurrency,
            ShedMechanism::Utilization => self.utilization,
            ShedMechanism::Reserve => self.reserve,
            ShedMechanism::Retries => self.retries,
            ShedMechanism::Credits => self.credits,
        }
    }

    /// The same with modes that are at most as strict as these.
    #[must_use]
    pub fn weakened(self, most: impl Fn(ShedMechanism) -> Mode) -> Self {
        let weaker = |mechanism| self.mode(mechanism).max(most(mechanism));
        Self {
            adaptive_concurrency: weaker(ShedMechanism::Concurrency),
            utilization: weaker(ShedMechanism::Utilization),
            reserve: weaker(ShedMechanism::Reserve),
            retries: weaker(ShedMechanism::Retries),
            credits: weaker(ShedMechanism::Credits),
            ..self
        }
    }

    /// Whether nothing is switched on.
    #[must_use]
    pub const fn is_off(&self) -> bool {
        matches!(
            (
                self.adaptive_concurrency,
                self.utilization,
                self.reserve,
                self.retries,
                self.credits
            ),
            (Mode::Off, Mode::Off, Mode::Off, Mode::Off, Mode::Off)
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
            retries: Mode::Off,
            retry_share: Self::RETRY_SHARE,
            credits: Mode::Off,
        }
    }
}

/// How retries are recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetrySource {
    /// The header with the number of the attempt: more than 1 is a retry.
    pub header: Attribute,
    /// What an authenticated client has. The header of any other client is not read.
    pub client: Option<Located<Attribute>>,
}

impl RetrySource {
    /// The default of `retry_header`.
    pub const HEADER: &str = "x-envoy-attempt-count";
}

impl Default for RetrySource {
    fn default() -> Self {
        Self {
            header: Attribute::Header(Self::HEADER.into()),
            client: None,
        }
    }
}
