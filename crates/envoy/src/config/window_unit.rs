//! The units of time of the format, and their fixed windows.
//!
//! Must not know: files, descriptors.

use tollgate_core::limit::Limit;
use tollgate_core::{FixedWindow, InvalidQuota, Nanos, Timestamp, Window};

/// The largest count, as in envoyproxy/ratelimit.
const MAX_COUNT: u64 = u64::MAX >> 1;

/// The length of a window. Windows begin at multiples of their length since 1970, so a week begins on a Thursday. Months have
/// 30 days and years 365 days, whatever the calendar says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WindowUnit {
    /// One second.
    Second,
    /// Sixty seconds.
    Minute,
    /// Sixty minutes.
    Hour,
    /// 24 hours.
    Day,
    /// Seven days.
    Week,
    /// Thirty days.
    Month,
    /// 365 days.
    Year,
}

impl WindowUnit {
    /// All units, shortest first.
    pub const ALL: [Self; 7] = [
        Self::Second,
        Self::Minute,
        Self::Hour,
        Self::Day,
        Self::Week,
        Self::Month,
        Self::Year,
    ];

    /// The unit of a name, case-insensitive.
    ///
    /// ```
    /// use tollgate_envoy::config::WindowUnit;
    ///
    /// assert_eq!(WindowUnit::from_name("MINUTE"), Some(WindowUnit::Minute));
    /// assert_eq!(WindowUnit::from_name("unknown"), None);
    /// ```
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|unit| unit.name().eq_ignore_ascii_case(name))
    }

    /// The name in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }

    /// The unit of a number in Envoy's messages. Zero is unknown, and a week was added last.
    #[must_use]
    pub const fn from_number(number: i32) -> Option<Self> {
        Some(match number {
            1 => Self::Second,
            2 => Self::Minute,
            3 => Self::Hour,
            4 => Self::Day,
            5 => Self::Month,
            6 => Self::Year,
            7 => Self::Week,
            _ => return None,
        })
    }

    /// The number in Envoy's messages.
    #[must_use]
    pub const fn number(self) -> i32 {
        match self {
            Self::Second => 1,
            Self::Minute => 2,
            Self::Hour => 3,
            Self::Day => 4,
            Self::Month => 5,
            Self::Year => 6,
            Self::Week => 7,
        }
    }

    /// The length of the unit.
    #[must_use]
    pub const fn length(self) -> Nanos {
        let seconds = match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
            Self::Week => 7 * 86_400,
            Self::Month => 30 * 86_400,
            Self::Year => 365 * 86_400,
        };
        Nanos::from_secs(seconds)
    }

    /// Whole seconds until the window of `now` ends, at least one.
    #[must_use]
    pub fn until_reset(self, now: Timestamp) -> u64 {
        let length = self.length().as_nanos();
        let begun = now.as_nanos().checked_rem(length).unwrap_or(0);
        whole_seconds(length.saturating_sub(begun))
    }

    /// The counter of a limit of `requests` in each window.
    ///
    /// envoyproxy/ratelimit counts denied requests too, and denies a request if the count becomes larger than the limit. A status
    /// of `tollgate-core` has a remaining quota of at least zero. So the counter's limit is one more than the rule's, and the rule
    /// is exceeded exactly when nothing remains. The overdraft lets counting continue, so that a raised limit finds the whole
    /// count.
    pub(super) const fn counter(self, requests: u32) -> Result<FixedWindow, InvalidQuota> {
        let limit = requests as u64 + 1;
        FixedWindow::builder(limit, Window::Epoch(self.length()))
            .overdraft(MAX_COUNT - limit)
            .build()
    }

    /// The same as a [`Limit`].
    pub(super) fn limit(self, requests: u32) -> Result<Limit, InvalidQuota> {
        self.counter(requests).map(Limit::new)
    }
}

/// Nanoseconds in whole seconds, rounded up.
pub(super) const fn whole_seconds(nanos: u64) -> u64 {
    nanos.div_ceil(1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_found_by_its_name_and_number_and_has_a_counter() {
        for unit in WindowUnit::ALL {
            assert_eq!(
                WindowUnit::from_name(&unit.name().to_uppercase()),
                Some(unit)
            );
            assert_eq!(WindowUnit::from_number(unit.number()), Some(unit));
            for requests in [0, 1, u32::MAX] {
                let counter = unit.counter(requests).unwrap();
                assert_eq!(counter.limit(), u64::from(requests) + 1);
                assert_eq!(counter.saturation(), MAX_COUNT);
            }
        }
        assert_eq!(WindowUnit::from_number(0), None);
        assert_eq!(WindowUnit::from_name(""), None);
    }

    #[test]
    fn the_reset_is_in_whole_seconds_and_never_zero() {
        let at = |ns| WindowUnit::Minute.until_reset(Timestamp::from_nanos(ns));
        assert_eq!(at(0), 60);
        assert_eq!(at(1), 60);
        assert_eq!(at(59_400_000_000), 1);
        assert_eq!(at(59_999_999_999), 1);
        assert_eq!(at(60_000_000_000), 60);
    }
}
