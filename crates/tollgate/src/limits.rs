//! The limits of a limiter before they are validated.
//!
//! Must not know: stores, keys, clocks.

use tollgate_core::custom_bucket::CustomBucketBuilder;
use tollgate_core::fixed_window::FixedWindowBuilder;
use tollgate_core::leaky_bucket::LeakyBucketBuilder;
use tollgate_core::limit::Limit;
use tollgate_core::sliding_counter::SlidingCounterBuilder;
use tollgate_core::sliding_log::SlidingLogBuilder;
use tollgate_core::token_bucket::TokenBucketBuilder;
use tollgate_core::{
    CustomBucket, FixedWindow, InvalidQuota, LeakyBucket, QuotaUnit, Rate, SlidingCounter,
    SlidingLog, TokenBucket,
};

use crate::invalid::InvalidLimiter;
use crate::limit_name::LimitName;

/// The largest number of limits of one limiter.
pub const MAX_LIMITS: usize = 8;

/// A type that can become a limit: a [`Rate`], a quota, or the builder of a quota. Errors of a quota's builder are returned
/// when the limiter is built. For concurrency use [`ConcurrencyLimiter`](crate::ConcurrencyLimiter).
pub trait IntoLimit: sealed::Sealed {
    /// Validates and returns the limit.
    ///
    /// # Errors
    /// A value that cannot be enforced exactly.
    #[doc(hidden)]
    fn into_limit(self) -> Result<Limit, InvalidQuota>;

    /// The same limit with another unit than requests. The unit is reported to clients and does not affect decisions.
    ///
    /// ```
    /// use tollgate::{IntoLimit, Limiter, Rate, QuotaUnit};
    ///
    /// let tokens = Rate::per_minute(90_000).counting(QuotaUnit::Tokens);
    /// let limiter = Limiter::builder().limit("tokens", tokens).build()?;
    /// assert_eq!(limiter.peek("team-7")?.tightest().unit, QuotaUnit::Tokens);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn with_unit(self, unit: QuotaUnit) -> WithUnit<Self>
    where
        Self: Sized,
    {
        WithUnit { limit: self, unit }
    }

    /// Renamed to [`with_unit`](Self::with_unit).
    #[deprecated(since = "0.2.0", note = "renamed to `with_unit`")]
    fn counting(self, unit: QuotaUnit) -> WithUnit<Self>
    where
        Self: Sized,
    {
        self.with_unit(unit)
    }
}

/// A limit with another unit than requests. Created by [`IntoLimit::with_unit`].
#[derive(Clone, Copy, Debug)]
#[must_use = "limits do nothing until a limiter has them"]
pub struct WithUnit<L> {
    limit: L,
    unit: QuotaUnit,
}

impl<L: IntoLimit> IntoLimit for WithUnit<L> {
    fn into_limit(self) -> Result<Limit, InvalidQuota> {
        Ok(self.limit.into_limit()?.with_unit(self.unit))
    }
}

impl IntoLimit for Rate {
    fn into_limit(self) -> Result<Limit, InvalidQuota> {
        TokenBucket::builder(self).into_limit()
    }
}

macro_rules! into_limit {
    ($($built:ty, $builder:ty);*) => {$(
        impl IntoLimit for $built {
            fn into_limit(self) -> Result<Limit, InvalidQuota> {
                Ok(self.into())
            }
        }
        impl IntoLimit for $builder {
            fn into_limit(self) -> Result<Limit, InvalidQuota> {
                self.build().map(Limit::from)
            }
        }
        impl sealed::Sealed for $built {}
        impl sealed::Sealed for $builder {}
    )*};
}
into_limit!(
    TokenBucket, TokenBucketBuilder;
    LeakyBucket, LeakyBucketBuilder;
    CustomBucket, CustomBucketBuilder;
    FixedWindow, FixedWindowBuilder;
    SlidingLog, SlidingLogBuilder;
    SlidingCounter, SlidingCounterBuilder
);

/// Seals [`IntoLimit`], so that no concurrency limit can be used where units are spent.
mod sealed {
    pub trait Sealed {}
    impl Sealed for tollgate_core::Rate {}
    impl<L: Sealed> Sealed for super::WithUnit<L> {}
}

/// Named limits that all apply to the same key. The argument of [`Limiter::replace`](crate::Limiter::replace).
///
/// ```
/// use tollgate::{Limits, Rate, TokenBucket};
///
/// let one = Limits::from_limit(TokenBucket::builder(Rate::per_second(10)).burst(20));
/// let several = Limits::new()
///     .limit("per-second", Rate::per_second(10))
///     .limit("per-day", Rate::per_day(10_000));
/// # let _ = (one, several);
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "limits do nothing until a limiter has them"]
pub struct Limits {
    pub(crate) list: Vec<(LimitName, Result<Limit, InvalidQuota>)>,
}

impl Limits {
    /// The default name of a limit.
    pub const UNNAMED: &'static str = "rate";

    /// An empty list of limits.
    pub const fn new() -> Self {
        Self { list: Vec::new() }
    }

    /// One limit with the name [`UNNAMED`](Self::UNNAMED), as in `Limiter::per_second`.
    pub fn from_limit(limit: impl IntoLimit) -> Self {
        Self::new().limit(Self::UNNAMED, limit)
    }

    /// Adds a limit. The name identifies it: a replacement with the same name and algorithm keeps its state.
    pub fn limit(mut self, name: impl Into<LimitName>, limit: impl IntoLimit) -> Self {
        self.list.push((name.into(), limit.into_limit()));
        self
    }

    /// Validates every limit.
    pub(crate) fn validate(self) -> Result<Vec<(LimitName, Limit)>, InvalidLimiter> {
        let count = self.list.len();
        if count == 0 {
            return Err(InvalidLimiter::NoLimits);
        }
        if count > MAX_LIMITS {
            return Err(InvalidLimiter::TooManyLimits { count });
        }
        let mut checked: Vec<(LimitName, Limit)> = Vec::with_capacity(count);
        for (name, limit) in self.list {
            if checked.iter().any(|(other, _)| *other == name) {
                return Err(InvalidLimiter::SameName { name });
            }
            match limit {
                Ok(limit) => checked.push((name, limit)),
                Err(cause) => return Err(InvalidLimiter::Quota { name, cause }),
            }
        }
        Ok(checked)
    }
}

/// The single token bucket of `Limiter::per_second`, `Limiter::from_rate` and so on.
#[derive(Clone, Debug)]
#[must_use = "a rate does nothing until a limiter has it"]
pub struct TokenBucketLimit {
    pub(crate) name: LimitName,
    pub(crate) bucket: TokenBucketBuilder,
}

impl From<TokenBucketLimit> for Limits {
    fn from(simple: TokenBucketLimit) -> Self {
        Self::new().limit(simple.name, simple.bucket)
    }
}
