//! A rate limiter library: exact to the nanosecond, bounded in memory, all or nothing over several limits.
//!
#![doc = include_str!("docs/guide.md")]
#![forbid(unsafe_code)]
#![expect(
    clippy::needless_pass_by_value,
    reason = "callers can pass `\"alice\"` and `key` without a borrow"
)]

// A facade over `tollgate-core` and the stores. It makes no decisions. Must not know: policies, transports.

mod active_limits;
mod admission;
mod batch;
mod batch_admission;
mod builder;
mod concurrency;
mod decide;
mod deprecated;
mod error;
mod invalid;
mod key;
mod limit_name;
mod limit_table;
mod limiter;
mod limits;
mod operations;
mod rate_limit_fields;
#[cfg(feature = "redis")]
pub mod redis;
mod reservation;
mod sleeper;
mod snapshot;
#[cfg(feature = "tokio")]
mod until_ready;
mod wait;

pub use admission::{Admission, LimitStatus};
pub use batch::{CheckItem, check_all, refund_all};
pub use batch_admission::BatchAdmission;
pub use builder::LimiterBuilder;
pub use concurrency::{ConcurrencyLimiter, ConcurrencyLimiterBuilder, Permit};
pub use error::{Denial, Error};
pub use invalid::InvalidLimiter;
pub use key::{AsKey, Key, KeyTooLong, MAX_KEY_LEN};
pub use limit_name::LimitName;
pub use limit_table::DEFAULT_KEYS;
pub use limiter::Limiter;
pub use limits::{IntoLimit, Limits, MAX_LIMITS, TokenBucketLimit, WithUnit};
pub use rate_limit_fields::RateLimitFields;
pub use reservation::Reservation;
pub use sleeper::Sleeper;
pub use snapshot::RestoreError;

/// A layer that limits requests of a tower service by a policy: feature `tower`, with `axum` or `tonic` for their routes and
/// addresses.
#[cfg(feature = "tower")]
pub use tollgate_tower as tower;

/// A client that reads the limits of any server, paces itself and retries within a budget: feature `client`.
#[cfg(feature = "client")]
pub use tollgate_client as client;

/// The Rust code of the page about the layer is compiled as it is printed.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tower.md")]
pub struct TowerPage;

#[expect(deprecated, reason = "the former names are exported for one release")]
pub use deprecated::{
    AllAllowed, Allowed, Ask, Builder, Counting, Denied, ErrorKind, Gate, GateBuilder, Name,
    Simple, Standing, Status, Unit, Usage,
};

pub use tollgate_core::{
    Calendar, CustomBucket, FixedWindow, InvalidQuota, LeakyBucket, Nanos, Outcome, QuotaStatus,
    QuotaUnit, Rate, SlidingCounter, SlidingLog, Timestamp, TokenBucket, UtcOffset, Window,
};
pub use tollgate_store::{
    Clock, InvalidSize, ManualClock, SnapshotError, StoreError, StoreErrorKind, StoreUsage,
    SystemClock,
};
