//! How much: rates as people write them, by which algorithm, by which tier, computed or overridden.
//!
//! Must not know: core's compiled quotas; `compile` makes those.

use tollgate_core::{Nanos, QuotaUnit};

use crate::algorithm::Algorithm;
use crate::attributes::Attribute;
use crate::source::Located;

/// One quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaSpec {
    /// By which rule it is counted.
    pub algorithm: Algorithm,
    /// How much.
    pub amount: Amount,
    /// The most at once, where it is not the rate's own number.
    pub burst: Option<Located<Burst>>,
    /// What is counted.
    pub unit: QuotaUnit,
    /// The offset from UTC at which calendar windows turn, in minutes.
    pub utc_offset_minutes: i16,
}

/// How much a quota grants.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Amount {
    /// One rate, or several that all hold.
    Rates(Vec<Located<RateSpec>>),
    /// So many at once, each held at most this long without being renewed.
    Concurrency {
        /// How many.
        permits: u64,
        /// How long a place is held.
        lease: Nanos,
    },
    /// A rate that attributes of the request add to.
    Computed(ComputedRate),
    /// No limit at all (a tier or an override may say so).
    Unlimited,
}

/// So many per period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RateSpec {
    /// How many. Zero denies everything.
    pub units: u64,
    /// In how long.
    pub period: Period,
}

/// The time that a rate's number is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Period {
    /// A length of time. A day is 24 hours, a week seven days.
    Span(Nanos),
    /// `month`: from the first to the first for a fixed window, 30 days for every other algorithm.
    Month,
    /// `year`: from January to January for a fixed window, 365 days for every other algorithm.
    Year,
}

impl Period {
    /// How long it is where no calendar counts: a month is 30 days, a year 365.
    pub(crate) const fn fixed_length(self) -> Nanos {
        match self {
            Self::Span(length) => length,
            Self::Month => Nanos::from_secs(30 * 86_400),
            Self::Year => Nanos::YEAR,
        }
    }
}

/// The most that a bucket admits at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Burst {
    /// So many.
    Units(u64),
    /// Ten seconds' worth, at least one.
    Auto,
}

/// `5000/h + 50/h × claim.repos, at most 12500/h`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComputedRate {
    /// What everyone gets.
    pub base: Located<RateSpec>,
    /// What each unit of the attribute adds, over the same period as the base.
    pub each: Located<RateSpec>,
    /// The attribute whose number is multiplied. Where it is absent or no number, it is zero.
    pub times: Attribute,
    /// The most that anyone gets, over the same period.
    pub at_most: Located<RateSpec>,
}

/// Quotas by the value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tiers {
    /// Whose value names the tier.
    pub by: Located<Attribute>,
    /// The tiers. A value that names none gets the limit's own quota.
    pub tiers: Vec<(Located<Box<str>>, Located<QuotaSpec>)>,
}

/// Another quota for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaOverride {
    /// The values of the key's attributes, in the order of the key's parts.
    pub key: Located<Vec<Box<str>>>,
    /// Its quota.
    pub quota: Located<QuotaSpec>,
}
