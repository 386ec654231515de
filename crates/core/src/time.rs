//! Points and spans of time as whole nanoseconds, with arithmetic that cannot overflow.
//!
//! Must not know: clocks. The caller passes every instant.

use core::fmt;
use core::time::Duration;

/// The longest span a quota's state may reach into the future: 2^62 ns, about 146 years.
pub const MAX_CAPACITY: Nanos = Nanos(1 << 62);

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// A span of time in whole nanoseconds.
///
/// ```
/// use tollgate_core::Nanos;
///
/// let wait = Nanos::from_millis(1_500);
/// assert_eq!(wait.as_nanos(), 1_500_000_000);
/// assert_eq!(wait.as_secs_ceil(), 2, "seconds are rounded up");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nanos(u64);

impl Nanos {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// The longest span, about 584 years.
    pub const MAX: Self = Self(u64::MAX);
    /// One second.
    pub const SECOND: Self = Self(NANOS_PER_SEC);
    /// Sixty seconds.
    pub const MINUTE: Self = Self::from_secs(60);
    /// Sixty minutes.
    pub const HOUR: Self = Self::from_secs(3_600);
    /// Twenty-four hours.
    pub const DAY: Self = Self::from_secs(86_400);
    /// 365 days.
    pub const YEAR: Self = Self::from_secs(31_536_000);

    /// A span of `n` nanoseconds.
    #[must_use]
    pub const fn from_nanos(n: u64) -> Self {
        Self(n)
    }

    /// A span of `n` microseconds, or the longest span if that does not fit.
    #[must_use]
    pub const fn from_micros(n: u64) -> Self {
        Self(n.saturating_mul(1_000))
    }

    /// A span of `n` milliseconds, or the longest span if that does not fit.
    #[must_use]
    pub const fn from_millis(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000))
    }

    /// A span of `n` seconds, or the longest span if that does not fit.
    #[must_use]
    pub const fn from_secs(n: u64) -> Self {
        Self(n.saturating_mul(NANOS_PER_SEC))
    }

    /// This span in nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This span in milliseconds, rounded up, so that a client does not retry too early.
    #[must_use]
    pub const fn as_millis_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    /// This span in seconds, rounded up, so that a client does not retry too early.
    #[must_use]
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(NANOS_PER_SEC)
    }

    /// Whether this span is zero.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The sum of two spans, or the longest span if that does not fit.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// This span less `other`, at least zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Debug for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&Duration::from(*self), f)
    }
}

impl From<Nanos> for Duration {
    fn from(span: Nanos) -> Self {
        Self::from_nanos(span.0)
    }
}

impl From<Duration> for Nanos {
    /// Spans beyond 584 years become the longest span.
    fn from(span: Duration) -> Self {
        Self(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// A point in time: nanoseconds since 1970-01-01T00:00:00Z.
///
/// Points after the year 2262 (2^63 − 1 ns) are clamped to it. So `now + capacity` fits into 64 bits, and no state can wrap around.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// 1970-01-01T00:00:00Z.
    pub const EPOCH: Self = Self(0);
    /// The last point in time, in the year 2262.
    pub const MAX: Self = Self((1 << 63) - 1);

    /// The point `n` nanoseconds after 1970, at most [`Timestamp::MAX`].
    #[must_use]
    pub const fn from_nanos(n: u64) -> Self {
        if n > Self::MAX.0 { Self::MAX } else { Self(n) }
    }

    /// The point `n` seconds after 1970, at most [`Timestamp::MAX`].
    #[must_use]
    pub const fn from_secs(n: u64) -> Self {
        Self::from_nanos(n.saturating_mul(NANOS_PER_SEC))
    }

    /// Nanoseconds since 1970.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The point `span` later, at most [`Timestamp::MAX`].
    #[must_use]
    pub const fn after(self, span: Nanos) -> Self {
        Self::from_nanos(self.0.saturating_add(span.0))
    }

    /// How long ago `earlier` was; zero if it lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ns", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i08_now_plus_the_largest_capacity_fits_in_a_word() {
        let furthest = Timestamp::MAX
            .as_nanos()
            .checked_add(MAX_CAPACITY.as_nanos());
        assert!(furthest.is_some());
    }

    #[test]
    fn spans_round_up_to_seconds_and_milliseconds() {
        assert_eq!(Nanos::from_nanos(1).as_secs_ceil(), 1);
        assert_eq!(Nanos::SECOND.as_secs_ceil(), 1);
        assert_eq!(Nanos::ZERO.as_secs_ceil(), 0);
        assert_eq!(Nanos::MAX.as_secs_ceil(), 18_446_744_074);
        assert_eq!(Nanos::from_nanos(1_000_001).as_millis_ceil(), 2);
    }

    #[test]
    fn constructors_saturate_instead_of_wrapping() {
        assert_eq!(Nanos::from_secs(u64::MAX), Nanos::MAX);
        assert_eq!(Timestamp::from_nanos(u64::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::MAX.after(Nanos::MAX), Timestamp::MAX);
        assert_eq!(Nanos::from(Duration::MAX), Nanos::MAX);
    }
}
