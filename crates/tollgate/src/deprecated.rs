//! The former names of renamed public items. The next release removes them.
//!
//! Must not know: anything but the new names.

use tollgate_core::{QuotaStatus, QuotaUnit, Rate};
use tollgate_store::{Clock, StoreErrorKind, StoreUsage, SystemClock};

use crate::admission::{Admission, LimitStatus};
use crate::batch::CheckItem;
use crate::batch_admission::BatchAdmission;
use crate::builder::LimiterBuilder;
use crate::concurrency::{ConcurrencyLimiter, ConcurrencyLimiterBuilder, Permit};
use crate::error::{Denial, Error};
use crate::key::{AsKey, Key, KeyTooLong};
use crate::limit_name::LimitName;
use crate::limiter::Limiter;
use crate::limits::{IntoLimit, Limits, TokenBucketLimit, WithUnit};
use crate::reservation::Reservation;

/// Renamed to [`LimitStatus`].
#[deprecated(since = "0.2.0", note = "renamed to `LimitStatus`")]
pub type Standing<'a> = LimitStatus<'a>;
/// Renamed to [`QuotaStatus`].
#[deprecated(since = "0.2.0", note = "renamed to `QuotaStatus`")]
pub type Status = QuotaStatus;
/// Renamed to [`QuotaUnit`].
#[deprecated(since = "0.2.0", note = "renamed to `QuotaUnit`")]
pub type Unit = QuotaUnit;
/// Renamed to [`CheckItem`].
#[deprecated(since = "0.2.0", note = "renamed to `CheckItem`")]
pub type Ask<'a, C = SystemClock> = CheckItem<'a, C>;
/// Renamed to [`BatchAdmission`].
#[deprecated(since = "0.2.0", note = "renamed to `BatchAdmission`")]
pub type AllAllowed = BatchAdmission;
/// Renamed to [`Admission`].
#[deprecated(since = "0.2.0", note = "renamed to `Admission`")]
pub type Allowed = Admission;
/// Renamed to [`LimiterBuilder`].
#[deprecated(since = "0.2.0", note = "renamed to `LimiterBuilder`")]
pub type Builder<L, C = SystemClock> = LimiterBuilder<L, C>;
/// Renamed to [`ConcurrencyLimiter`].
#[deprecated(since = "0.2.0", note = "renamed to `ConcurrencyLimiter`")]
pub type Gate<C = SystemClock> = ConcurrencyLimiter<C>;
/// Renamed to [`ConcurrencyLimiterBuilder`].
#[deprecated(since = "0.2.0", note = "renamed to `ConcurrencyLimiterBuilder`")]
pub type GateBuilder<C = SystemClock> = ConcurrencyLimiterBuilder<C>;
/// Renamed to [`Denial`].
#[deprecated(since = "0.2.0", note = "renamed to `Denial`")]
pub type Denied = Denial;
/// Renamed to [`LimitName`].
#[deprecated(since = "0.2.0", note = "renamed to `LimitName`")]
pub type Name = LimitName;
/// Renamed to [`WithUnit`].
#[deprecated(since = "0.2.0", note = "renamed to `WithUnit`")]
pub type Counting<L> = WithUnit<L>;
/// Renamed to [`TokenBucketLimit`].
#[deprecated(since = "0.2.0", note = "renamed to `TokenBucketLimit`")]
pub type Simple = TokenBucketLimit;
/// Renamed to [`StoreErrorKind`].
#[deprecated(since = "0.2.0", note = "renamed to `StoreErrorKind`")]
pub type ErrorKind = StoreErrorKind;
/// Renamed to [`StoreUsage`].
#[deprecated(since = "0.2.0", note = "renamed to `StoreUsage`")]
pub type Usage = StoreUsage;

impl Limiter {
    /// Renamed to [`from_rate`](Self::from_rate).
    #[deprecated(since = "0.2.0", note = "renamed to `from_rate`")]
    pub fn at(rate: Rate) -> LimiterBuilder<TokenBucketLimit> {
        Self::from_rate(rate)
    }
}

impl<C: Clock> Limiter<C> {
    /// Renamed to [`reset`](Self::reset).
    #[deprecated(since = "0.2.0", note = "renamed to `reset`")]
    #[expect(clippy::missing_errors_doc, reason = "the new name documents them")]
    pub fn forget(&self, key: impl AsKey) -> Result<bool, Error> {
        self.reset(key)
    }

    /// Renamed to [`for_key`](Self::for_key).
    #[deprecated(since = "0.2.0", note = "renamed to `for_key`")]
    pub fn ask<'a>(&'a self, key: &'a (impl AsKey + ?Sized)) -> CheckItem<'a, C> {
        self.for_key(key)
    }
}

impl<L, C> LimiterBuilder<L, C> {
    /// Renamed to [`share_table_with`](Self::share_table_with).
    #[deprecated(since = "0.2.0", note = "renamed to `share_table_with`")]
    pub fn beside<D>(self, other: &Limiter<D>) -> LimiterBuilder<L, D> {
        self.share_table_with(other)
    }

    /// Renamed to [`max_waiting`](Self::max_waiting).
    #[deprecated(since = "0.2.0", note = "renamed to `max_waiting`")]
    #[cfg(feature = "tokio")]
    pub fn most_waiting(self, callers: usize) -> Self {
        self.max_waiting(callers)
    }
}

#[cfg(feature = "redis")]
impl<L: Into<Limits>> LimiterBuilder<L> {
    /// Renamed to [`with_redis`](Self::with_redis).
    #[deprecated(since = "0.2.0", note = "renamed to `with_redis`")]
    pub fn over(self, redis: &crate::redis::Redis) -> crate::redis::LimiterBuilder {
        self.with_redis(redis)
    }
}

impl Limits {
    /// Renamed to [`from_limit`](Self::from_limit).
    #[deprecated(since = "0.2.0", note = "renamed to `from_limit`")]
    pub fn of(limit: impl IntoLimit) -> Self {
        Self::from_limit(limit)
    }
}

impl<'a> Key<'a> {
    /// Renamed to [`from_parts`](Self::from_parts).
    #[deprecated(since = "0.2.0", note = "renamed to `from_parts`")]
    #[expect(clippy::missing_errors_doc, reason = "the new name documents them")]
    pub fn of_parts(parts: &'a [&'a [u8]]) -> Result<Self, KeyTooLong> {
        Self::from_parts(parts)
    }
}

impl Denial {
    /// Renamed to [`max_cost`](Self::max_cost).
    #[deprecated(since = "0.2.0", note = "renamed to `max_cost`")]
    #[must_use]
    pub const fn most(&self) -> u64 {
        self.max_cost()
    }
}

impl Error {
    /// Renamed to [`denial`](Self::denial).
    #[deprecated(since = "0.2.0", note = "renamed to `denial`")]
    #[must_use]
    pub const fn denied(&self) -> Option<&Denial> {
        self.denial()
    }
}

impl<C: Clock> Reservation<C> {
    /// Renamed to [`admission`](Self::admission).
    #[deprecated(since = "0.2.0", note = "renamed to `admission`")]
    pub const fn allowed(&self) -> &Admission {
        self.admission()
    }
}

impl ConcurrencyLimiter {
    /// Renamed to [`builder`](Self::builder).
    #[deprecated(since = "0.2.0", note = "renamed to `builder`")]
    pub fn of(max_permits: u64) -> ConcurrencyLimiterBuilder {
        Self::builder(max_permits)
    }
}

#[expect(clippy::missing_errors_doc, reason = "the new names document them")]
impl<C: Clock> ConcurrencyLimiter<C> {
    /// Renamed to [`acquire`](Self::acquire).
    #[deprecated(since = "0.2.0", note = "renamed to `acquire`")]
    pub fn enter(&self, key: impl AsKey) -> Result<Permit<C>, Error> {
        self.acquire(key)
    }

    /// Renamed to [`acquire_n`](Self::acquire_n).
    #[deprecated(since = "0.2.0", note = "renamed to `acquire_n`")]
    pub fn enter_n(&self, key: impl AsKey, permits: u64) -> Result<Permit<C>, Error> {
        self.acquire_n(key, permits)
    }

    /// Renamed to [`available_permits`](Self::available_permits).
    #[deprecated(since = "0.2.0", note = "renamed to `available_permits`")]
    pub fn free(&self, key: impl AsKey) -> Result<u64, Error> {
        self.available_permits(key)
    }
}

#[cfg(feature = "redis")]
impl ConcurrencyLimiterBuilder {
    /// Renamed to [`with_redis`](Self::with_redis).
    #[deprecated(since = "0.2.0", note = "renamed to `with_redis`")]
    pub fn over(self, redis: &crate::redis::Redis) -> crate::redis::ConcurrencyLimiterBuilder {
        self.with_redis(redis)
    }
}
