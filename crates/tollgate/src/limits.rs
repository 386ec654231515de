//! The limits of a limiter as they are written down, before they are checked.
//!
//! Must not know: stores, keys, clocks.

use tollgate_core::fixed_window::FixedWindowBuilder;
use tollgate_core::leaky_bucket::LeakyBucketBuilder;
use tollgate_core::limit::Limit;
use tollgate_core::sliding_counter::SlidingCounterBuilder;
use tollgate_core::sliding_log::SlidingLogBuilder;
use tollgate_core::token_bucket::TokenBucketBuilder;
use tollgate_core::{
    FixedWindow, InvalidQuota, LeakyBucket, QuotaUnit, Rate, SlidingCounter, SlidingLog,
    TokenBucket,
};

use crate::invalid::InvalidLimiter;
use crate::limit_name::LimitName;

/// The most limits of one limiter. Limiters [beside](crate::Builder::beside) each other add up.
pub const MAX_LIMITS: usize = 8;

/// What a limit can be made from: a [`Rate`], any quota but concurrency (that is a [`Gate`](crate::Gate)), or a quota's
/// builder, whose errors come out when the limiter is built.
pub trait IntoLimit: sealed::Sealed {
    /// The limit, checked.
    ///
    /// # Errors
    /// A value that cannot be honoured.
    #[doc(hidden)]
    fn into_limit(self) -> Result<Limit, InvalidQuota>;

    /// The same limit, counting something else than requests. Nothing is decided by it; it is there to be told.
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
}

/// A limit that counts something else than requests. Made by [`IntoLimit::counting`].
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
    FixedWindow, FixedWindowBuilder;
    SlidingLog, SlidingLogBuilder;
    SlidingCounter, SlidingCounterBuilder
);

/// Closed to others, so that a concurrency limit cannot come in by a back door and be spent from.
mod sealed {
    pub trait Sealed {}
    impl Sealed for tollgate_core::Rate {}
    impl<L: Sealed> Sealed for super::WithUnit<L> {}
}

/// Named limits that all apply to the same key: what [`Limiter::replace`](crate::Limiter::replace) takes.
///
/// ```
/// use tollgate::{Limits, Rate, TokenBucket};
///
/// let one = Limits::of(TokenBucket::at(Rate::per_second(10)).burst(20));
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
    /// The name of a limit that nobody named.
    pub const UNNAMED: &'static str = "rate";

    /// No limits yet.
    pub const fn new() -> Self {
        Self { list: Vec::new() }
    }

    /// One limit, under the name that the short constructors give it: [`UNNAMED`](Self::UNNAMED).
    pub fn from_limit(limit: impl IntoLimit) -> Self {
        Self::new().limit(Self::UNNAMED, limit)
    }

    /// Adds a limit. Its name is its identity: a replacement of the same name and algorithm goes on with its state.
    pub fn limit(mut self, name: impl Into<LimitName>, limit: impl IntoLimit) -> Self {
        self.list.push((name.into(), limit.into_limit()));
        self
    }

    /// Every limit, checked.
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

/// One token bucket, as the short constructors write it down.
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
