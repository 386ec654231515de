//! A rate: units per period.

use crate::time::Nanos;

/// Units per period. Any pair is a rate; building a quota from it checks whether the rate can be enforced exactly.
///
/// ```
/// use tollgate_core::{Nanos, Rate};
///
/// assert_eq!(Rate::per_minute(900), Rate::new(900, Nanos::MINUTE));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Units in each period. A rate of zero admits nothing.
    pub units: u64,
    /// The period.
    pub period: Nanos,
}

impl Rate {
    /// `units` per `period`.
    #[must_use]
    pub const fn new(units: u64, period: Nanos) -> Self {
        Self { units, period }
    }

    /// `units` per second.
    #[must_use]
    pub const fn per_second(units: u64) -> Self {
        Self::new(units, Nanos::SECOND)
    }

    /// `units` per minute.
    #[must_use]
    pub const fn per_minute(units: u64) -> Self {
        Self::new(units, Nanos::MINUTE)
    }

    /// `units` per hour.
    #[must_use]
    pub const fn per_hour(units: u64) -> Self {
        Self::new(units, Nanos::HOUR)
    }

    /// `units` per day of 24 hours.
    #[must_use]
    pub const fn per_day(units: u64) -> Self {
        Self::new(units, Nanos::DAY)
    }

    /// `units` per year of 365 days.
    #[must_use]
    pub const fn per_year(units: u64) -> Self {
        Self::new(units, Nanos::YEAR)
    }
}
