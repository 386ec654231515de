//! The former names of renamed public items over Redis. The next release removes them.
//!
//! Must not know: anything but the new names.

use tollgate_redis::{
    ClientIdentity, KeyHashSecret, RedisOptions, RedisTls, ReservationRetention, ServerWarning,
    ServerWarningKind,
};

use super::batch::CheckItem;
use super::builder::LimiterBuilder;
use super::concurrency::{ConcurrencyLimiter, ConcurrencyLimiterBuilder, Permit};
use super::connection::Redis;
use super::limiter::Limiter;
use super::reservation::{Reservation, SettlementOutcome};
use crate::admission::Admission;
use crate::error::Error;
use crate::key::AsKey;

/// Renamed to [`CheckItem`].
#[deprecated(since = "0.2.0", note = "renamed to `CheckItem`")]
pub type Ask<'a> = CheckItem<'a>;
/// Renamed to [`LimiterBuilder`].
#[deprecated(since = "0.2.0", note = "renamed to `LimiterBuilder`")]
pub type Builder = LimiterBuilder;
/// Renamed to [`ConcurrencyLimiter`].
#[deprecated(since = "0.2.0", note = "renamed to `ConcurrencyLimiter`")]
pub type Gate = ConcurrencyLimiter;
/// Renamed to [`ConcurrencyLimiterBuilder`].
#[deprecated(since = "0.2.0", note = "renamed to `ConcurrencyLimiterBuilder`")]
pub type GateBuilder = ConcurrencyLimiterBuilder;
/// Renamed to [`SettlementOutcome`].
#[deprecated(since = "0.2.0", note = "renamed to `SettlementOutcome`")]
pub type Closing = SettlementOutcome;
/// Renamed to [`KeyHashSecret`].
#[deprecated(since = "0.2.0", note = "renamed to `KeyHashSecret`")]
pub type Secret = KeyHashSecret;
/// Renamed to [`RedisOptions`].
#[deprecated(since = "0.2.0", note = "renamed to `RedisOptions`")]
pub type Options = RedisOptions;
/// Renamed to [`RedisTls`].
#[deprecated(since = "0.2.0", note = "renamed to `RedisTls`")]
pub type Tls = RedisTls;
/// Renamed to [`ClientIdentity`].
#[deprecated(since = "0.2.0", note = "renamed to `ClientIdentity`")]
pub type Identity = ClientIdentity;
/// Renamed to [`ReservationRetention`].
#[deprecated(since = "0.2.0", note = "renamed to `ReservationRetention`")]
pub type Remembering = ReservationRetention;
/// Renamed to [`ServerWarning`].
#[deprecated(since = "0.2.0", note = "renamed to `ServerWarning`")]
pub type Finding = ServerWarning;
/// Renamed to [`ServerWarningKind`].
#[deprecated(since = "0.2.0", note = "renamed to `ServerWarningKind`")]
pub type Unwise = ServerWarningKind;

impl Limiter {
    /// Renamed to [`for_key`](Self::for_key).
    #[deprecated(since = "0.2.0", note = "renamed to `for_key`")]
    pub fn ask<'a>(&'a self, key: &'a (impl AsKey + ?Sized)) -> CheckItem<'a> {
        self.for_key(key)
    }
}

impl Redis {
    /// Renamed to [`failed_releases`](Self::failed_releases).
    #[deprecated(since = "0.2.0", note = "renamed to `failed_releases`")]
    #[must_use]
    pub fn left_to_time(&self) -> u64 {
        self.failed_releases()
    }
}

impl Reservation {
    /// Renamed to [`admission`](Self::admission).
    #[deprecated(since = "0.2.0", note = "renamed to `admission`")]
    pub const fn allowed(&self) -> &Admission {
        self.admission()
    }
}

#[expect(non_upper_case_globals, reason = "it was a variant")]
impl SettlementOutcome {
    /// Renamed to [`AlreadyClosed`](Self::AlreadyClosed).
    #[deprecated(since = "0.2.0", note = "renamed to `AlreadyClosed`")]
    pub const Before: Self = Self::AlreadyClosed;
}

#[expect(clippy::missing_errors_doc, reason = "the new names document them")]
impl ConcurrencyLimiter {
    /// Renamed to [`acquire`](Self::acquire).
    #[deprecated(since = "0.2.0", note = "renamed to `acquire`")]
    pub async fn enter(&self, key: impl AsKey) -> Result<Permit, Error> {
        self.acquire(key).await
    }

    /// Renamed to [`acquire_n`](Self::acquire_n).
    #[deprecated(since = "0.2.0", note = "renamed to `acquire_n`")]
    pub async fn enter_n(&self, key: impl AsKey, permits: u64) -> Result<Permit, Error> {
        self.acquire_n(key, permits).await
    }

    /// Renamed to [`available_permits`](Self::available_permits).
    #[deprecated(since = "0.2.0", note = "renamed to `available_permits`")]
    pub async fn free(&self, key: impl AsKey) -> Result<u64, Error> {
        self.available_permits(key).await
    }
}
