//! Quotas as policies write them: rates, algorithms, tiers, computed rates and overrides.
//!
//! Must not know: core's compiled quotas; `compile` builds those.

use tollgate_core::{Nanos, QuotaUnit};

use super::action::Percent;
use crate::algorithm::Algorithm;
use crate::attributes::Attribute;
use crate::source::Located;

/// One quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaSpec {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// How much.
    pub amount: Amount,
    /// The burst, if it is not the number of the rate.
    pub burst: Option<Located<Burst>>,
    /// What is counted.
    pub unit: QuotaUnit,
    /// The UTC offset of calendar windows, in minutes.
    pub utc_offset_minutes: i16,
    /// Where windows begin, how a bucket refills, and what new keys start with.
    pub details: QuotaDetails,
}

impl QuotaSpec {
    /// Whether two quotas count in the same way. Buckets that share a state may have different bursts, because a burst only says how much
    /// of the state's debt is admitted.
    #[must_use]
    pub fn is_same_but_burst(&self, other: &Self) -> bool {
        let may_differ = matches!(self.amount, Amount::Rates(_)) && self.algorithm.has_burst();
        let burst = if may_differ { self.burst } else { other.burst };
        *self
            == Self {
                burst,
                ..other.clone()
            }
    }
}

/// Where windows begin, how a bucket refills, and what new keys start with. `None`: the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct QuotaDetails {
    /// Where fixed windows begin.
    pub window: Option<Located<WindowStart>>,
    /// How a token bucket refills.
    pub refill: Option<Located<RefillMode>>,
    /// The units of a new key in a token bucket. Default: a full bucket.
    pub initial: Option<Located<u64>>,
    /// How long a key is remembered after its bucket is full.
    pub remember: Option<Located<Nanos>>,
}

impl QuotaDetails {
    /// The default of `remember`.
    pub const REMEMBER: Nanos = Nanos::DAY;

    /// Whether windows begin with the first request.
    #[must_use]
    pub fn is_first_hit(&self) -> bool {
        self.window
            .is_some_and(|window| window.value == WindowStart::FirstHit)
    }

    /// Whether a token bucket refills in steps.
    #[must_use]
    pub fn is_stepped(&self) -> bool {
        self.refill
            .is_some_and(|refill| refill.value == RefillMode::Interval)
    }

    /// The details that differ from those of the limit that they inherit from.
    pub(crate) fn without_inherited(&self, limits: &Self) -> Self {
        fn own<T: Copy>(own: Option<Located<T>>, of: Option<Located<T>>) -> Option<Located<T>> {
            own.filter(|own| of.is_none_or(|of| of.location != own.location))
        }
        Self {
            window: own(self.window, limits.window),
            refill: own(self.refill, limits.refill),
            initial: own(self.initial, limits.initial),
            remember: own(self.remember, limits.remember),
        }
    }
}

/// Where fixed windows begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WindowStart {
    /// `aligned`: at multiples of their length since 1970, or with the calendar; the same for every key.
    #[default]
    Aligned,
    /// `first_hit`: with the first request of a key that finds no open window.
    FirstHit,
}

/// How a token bucket refills.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RefillMode {
    /// `continuous`: one unit after another.
    #[default]
    Continuous,
    /// `interval`: all units of the rate together, at the end of each period.
    Interval,
}

/// The amount of a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Amount {
    /// One or more rates, all of which must admit.
    Rates(Vec<Located<RateSpec>>),
    /// A number of permits. A permit that is not renewed expires after its lease.
    Concurrency {
        /// How many.
        permits: u64,
        /// The lease of a permit.
        lease: Nanos,
    },
    /// A rate that an attribute of the request adds to.
    Computed(ComputedRate),
    /// No limit; only for tiers and overrides.
    Unlimited,
}

/// An amount per period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RateSpec {
    /// The number of units. Zero denies everything.
    pub units: u64,
    /// The period.
    pub period: Period,
}

/// The period of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Period {
    /// A duration. A day is 24 hours, a week seven days.
    Span(Nanos),
    /// `month`: a calendar month for a fixed window, 30 days for every other algorithm.
    Month,
    /// `year`: a calendar year for a fixed window, 365 days for every other algorithm.
    Year,
}

impl Period {
    /// The length without a calendar: a month is 30 days, a year 365 days.
    pub(crate) const fn fixed_length(self) -> Nanos {
        match self {
            Self::Span(length) => length,
            Self::Month => Nanos::from_secs(30 * 86_400),
            Self::Year => Nanos::YEAR,
        }
    }
}

/// The maximum that a bucket admits at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Burst {
    /// A number of units.
    Units(u64),
    /// The units of ten seconds, at least one.
    Auto,
}

/// `5000/h + 50/h × claim.repos, at most 12500/h`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComputedRate {
    /// What everyone gets.
    pub base: Located<RateSpec>,
    /// The addition per unit of the attribute, over the same period as the base.
    pub each: Located<RateSpec>,
    /// The attribute with the factor. If it is absent or not a number, the factor is zero.
    pub times: Attribute,
    /// The maximum for anyone, over the same period.
    pub at_most: Located<RateSpec>,
}

/// Quotas by the value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tiers {
    /// The attribute whose value selects the tier.
    pub by: Located<Attribute>,
    /// The tiers. Any other value gets the limit's own quota.
    pub tiers: Vec<(Located<Box<str>>, Located<QuotaSpec>)>,
}

/// Guaranteed parts of one quota, by the value of an attribute. What nobody uses is lent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    /// The attribute whose value selects the share.
    pub by: Located<Attribute>,
    /// The shares. A request with any other value only borrows.
    pub shares: Vec<(Located<Box<str>>, Located<Percent>)>,
}

/// Another quota for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaOverride {
    /// The values of the key's attributes, in the order of the key's parts.
    pub key: Located<Vec<Box<str>>>,
    /// Its quota.
    pub quota: Located<QuotaSpec>,
}
