//! What a limit does on a denial, and while its store is unavailable.
//!
//! Must not know: how the engine carries it out.

use tollgate_core::Nanos;

/// Whether a limit is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Mode {
    /// It is enforced.
    #[default]
    Enforce,
    /// It counts and reports, but never denies.
    Shadow,
    /// It is ignored.
    Off,
}

/// What a denial costs the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Penalty {
    /// Nothing.
    #[default]
    None,
    /// The denied request is charged too.
    Count,
    /// The key is blocked for this long.
    Block(Nanos),
    /// The key is blocked for longer with each offence.
    Escalate(BlockSteps),
}

/// Blocks that grow with each offence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSteps {
    lengths: [Nanos; Self::MAX],
    count: u8,
    /// One offence is forgotten in this time.
    pub forget: Nanos,
}

impl BlockSteps {
    /// The maximum number of steps.
    pub const MAX: usize = 8;
    /// The length of a block that lasts until an operator lifts it.
    pub const UNTIL_LIFTED: Nanos = Nanos::from_secs(100 * 365 * 86_400);

    /// Blocks of these lengths: for the first offence, the second, and so on. `None` if there are none or too many, or if one is not longer
    /// than the one before.
    #[must_use]
    pub fn new(lengths: &[Nanos], forget: Nanos) -> Option<Self> {
        let count = u8::try_from(lengths.len())
            .ok()
            .filter(|count| *count > 0)?;
        let grows = lengths.windows(2).all(|pair| pair.first() < pair.last());
        let mut steps = [Nanos::ZERO; Self::MAX];
        steps
            .get_mut(..lengths.len())
            .filter(|_| grows)?
            .copy_from_slice(lengths);
        Some(Self {
            lengths: steps,
            count,
            forget,
        })
    }

    /// The lengths of the blocks.
    #[must_use]
    pub fn lengths(&self) -> &[Nanos] {
        self.lengths
            .get(..usize::from(self.count))
            .unwrap_or_default()
    }
}

/// What a limit decides while its shared store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnStoreFailure {
    /// A local fallback quota: half of the quota divided by the number of nodes.
    #[default]
    Local,
    /// Admit the request.
    Open,
    /// Refuse with 503.
    Closed,
}

/// How exactly a fleet shares one quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Consistency {
    /// One round trip per decision, no over-admission.
    #[default]
    Exact,
    /// Nodes lease parts of the quota in advance; no over-admission, some under-admission.
    Leased,
    /// Nodes count locally and reconcile at this interval. `explain` prints the over-admission bound.
    Async(Nanos),
}

/// A percentage in hundredths of a percent, 0 to 10,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Percent(u16);

impl Percent {
    /// 0 %.
    pub const ZERO: Self = Self(0);
    /// 100 %.
    pub const ALL: Self = Self(10_000);

    /// A percentage from hundredths of a percent; more than 10,000 becomes 10,000.
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
    /// 100 %.
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
