//! A rate limiter to embed: exact to the nanosecond, bounded in memory, all or nothing over several limits.
//!
#![doc = include_str!("docs/guide.md")]
#![forbid(unsafe_code)]
#![expect(
    clippy::needless_pass_by_value,
    reason = "keys are taken by value so that `check(\"alice\")` and `check(key)` need no borrow"
)]

// The facade wires what core decides to what the store keeps, and decides nothing itself. Must not know: policies, transports.

mod all_allowed;
mod allowed;
mod ask;
mod builder;
mod denied;
mod gate;
mod invalid;
mod key;
mod limiter;
mod limits;
mod name;
mod pause;
#[cfg(feature = "tokio")]
mod ready;
#[cfg(feature = "redis")]
pub mod redis;
mod reservation;
mod rules;
mod table;
mod together;
mod verbs;
mod wait;

pub use all_allowed::AllAllowed;
pub use allowed::{Allowed, LimitStatus};
pub use builder::Builder;
pub use denied::{Denied, Error};
pub use gate::{Gate, GateBuilder, Permit};
pub use invalid::InvalidLimiter;
pub use key::{AsKey, Key, KeyTooLong, MAX_KEY_LEN};
pub use limiter::Limiter;
pub use limits::{Counting, IntoLimit, Limits, MAX_LIMITS, Simple};
pub use name::Name;
pub use pause::Sleeper;
pub use reservation::Reservation;
pub use table::DEFAULT_KEYS;
pub use together::{Ask, check_all, refund_all};

/// The former name of [`LimitStatus`]. It goes with the next release.
#[deprecated(since = "0.1.0", note = "call it `LimitStatus`")]
pub type Standing<'a> = LimitStatus<'a>;
/// The former name of [`QuotaStatus`]. It goes with the next release.
#[deprecated(since = "0.1.0", note = "call it `QuotaStatus`")]
pub type Status = QuotaStatus;
/// The former name of [`QuotaUnit`]. It goes with the next release.
#[deprecated(since = "0.1.0", note = "call it `QuotaUnit`")]
pub type Unit = QuotaUnit;

pub use tollgate_core::{
    Calendar, FixedWindow, InvalidQuota, LeakyBucket, Nanos, Outcome, QuotaStatus, QuotaUnit, Rate,
    SlidingCounter, SlidingLog, Timestamp, TokenBucket, UtcOffset, Window,
};
pub use tollgate_store::{
    Clock, ErrorKind, InvalidSize, ManualClock, StoreError, SystemClock, Usage,
};
