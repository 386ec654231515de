//! What happens when a limit has decided, and when it could not.
//!
//! Must not know: how any of it is carried out.

use tollgate_core::Nanos;

/// Whether a limit's word counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Mode {
    /// It decides.
    #[default]
    Enforce,
    /// It is counted and reported, never enforced.
    Shadow,
    /// It is not asked.
    Off,
}

/// What a denial costs the one who was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Penalty {
    /// Nothing: refused is free.
    #[default]
    None,
    /// The refused request counts too.
    Count,
    /// Everything under the same key is refused for this long.
    Block(Nanos),
}

/// What a limit decides while its shared store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnStoreFailure {
    /// Its local share: half of the quota divided by the nodes.
    #[default]
    Local,
    /// Admit.
    Open,
    /// Refuse with 503.
    Closed,
}

/// How exactly a fleet shares one quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Consistency {
    /// One round trip a decision, no over-admission.
    #[default]
    Exact,
    /// Slices taken in advance; no over-admission, some under-admission.
    Leased,
    /// Counted locally and reconciled this often; over-admission within a printed bound.
    Async(Nanos),
}

/// A share in hundredths of a percent, 0 to 10,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Percent(u16);

impl Percent {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// Everything.
    pub const ALL: Self = Self(10_000);

    /// So many hundredths of a percent; more than everything is everything.
    #[must_use]
    pub const fn from_hundredths(hundredths: u16) -> Self {
        Self(if hundredths > 10_000 {
            10_000
        } else {
            hundredths
        })
    }

    /// In hundredths of a percent.
    #[must_use]
    pub const fn hundredths(self) -> u16 {
        self.0
    }
}

impl Default for Percent {
    /// Everything.
    fn default() -> Self {
        Self::ALL
    }
}

impl std::fmt::Display for Percent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, rest) = (self.0 / 100, self.0 % 100);
        match (rest, rest % 10) {
            (0, _) => write!(f, "{whole}%"),
            (_, 0) => write!(f, "{whole}.{}%", rest / 10),
            _ => write!(f, "{whole}.{rest:02}%"),
        }
    }
}
