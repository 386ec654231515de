//! Limiters over Redis or Valkey, for many processes that share one limit. Every operation is async.
//!
//! ```no_run
//! use tollgate::redis::{KeyHashSecret, Redis, RedisOptions};
//! use tollgate::{Error, Limiter};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let secret = KeyHashSecret::new(*b"drawn at random.");
//! let redis = Redis::connect(RedisOptions::new("redis://127.0.0.1", secret)).await?;
//! let limiter = Limiter::per_second(10).burst(20).name("per-user").with_redis(&redis).build()?;
//!
//! match limiter.check("user:42").await {
//!     Ok(()) => println!("admitted"),
//!     Err(Error::Denied(denial)) => println!("retry after {:?}", denial.retry_after()),
//!     Err(Error::Store(error)) if error.may_have_charged() => println!("not decided, may have charged: {error}"),
//!     Err(error) => println!("not decided, not charged: {error}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The builder is that of the [limiter in memory](crate::Limiter), with `with_redis(&redis)` before `build`. Limits,
//! admissions, denials and errors are the same types. An operation makes one script call for all limits of a limiter. Only
//! [`take_up_to`](Limiter::take_up_to) with several limits, a `check` that a queue delays, and waiting make more calls.
//!
//! # Which state a limit uses
//!
//! Redis identifies a limit by an id from 1 to 65,535, and a state by that id and the key. **By default the id is a hash of
//! the limit's name.** The hash function never changes. So:
//!
//! - You can reorder, add and remove limits while old and new processes run side by side.
//! - A limit with a new rate or burst keeps its state. Debt above the new burst is reduced to it. So while you roll out a
//!   smaller burst, a key that old and new processes serve in turn may get the difference again each time. To avoid that,
//!   use a new name for the smaller burst, or [`replace`](Limiter::replace), which knows both.
//! - A sliding counter with a new window length continues with the estimate of the old window. While processes with
//!   different lengths serve a key in turn, its usage decays as slowly as the longer window says. No units are gained.
//! - A renamed limit starts empty. To keep its state, set its [`id`](LimiterBuilder::id) to the old id.
//! - A limit with another algorithm should get another name. Neither algorithm can read the state of the other and treats it
//!   as absent, so while both run, each resets the other.
//! - Two limits over one connection cannot have the same id: `build` refuses. Different names have the same hash for one in
//!   65,535 pairs.
//! - Limiters in *different* programs that use one server and one secret are not checked: the same name and key mean the same
//!   state. Give each program its own secret, or set all ids.
//!
//! # When Redis does not answer
//!
//! Every call ends within [`RedisOptions::deadline`] with [`Error::Store`](crate::Error::Store), never with a denial. The
//! caller decides whether to admit the work. [`Error::may_have_charged`](crate::Error::may_have_charged) says whether the
//! charge may have been made nevertheless. No call is retried automatically.
//!
//! # When a future is dropped
//!
//! A call that was sent cannot be recalled. If a timeout, a `select!` or a cancelled task drops the future of
//! [`check`](Limiter::check), [`spend`](Limiter::spend), [`take_up_to`](Limiter::take_up_to), [`charge`](Limiter::charge) or
//! [`check_all`], the charge may have been made, and there is no receipt to refund it. The limit then admits up to one call
//! less until the quota refills. A dropped `refund` may or may not have been made. So:
//!
//! - Let [`RedisOptions::deadline`] end calls instead of a timeout of your own: its error says whether the charge may have
//!   been made.
//! - If a charge must not be lost, use [`reserve_as`](Limiter::reserve_as): the caller knows the id before the call and can
//!   [cancel](Limiter::cancel) or repeat it.
//! - A [`Permit`] of a dropped call expires with its lease. A caller that is dropped while it sleeps in
//!   [`wait`](Limiter::wait) or [`until_ready`](Limiter::until_ready) is not charged: a slot in a queue is released.

// Wires limits to an async store. Must not know: how scripts are called, policies, transports.

mod batch;
mod builder;
mod concurrency;
mod connection;
mod deprecated;
#[cfg(feature = "tower")]
mod layer;
mod limit_ids;
mod limiter;
mod operations;
mod random;
mod release_queue;
mod reservation;
mod wait;

pub use batch::{CheckItem, check_all, refund_all};
pub use builder::LimiterBuilder;
pub use concurrency::{ConcurrencyLimiter, ConcurrencyLimiterBuilder, Permit};
pub use connection::Redis;
#[cfg(feature = "tower")]
pub use layer::{BuildOverRedis, InvalidSharedLayer, SharedLayerOptions};
pub use limiter::Limiter;
pub use reservation::{Reservation, SettlementOutcome};

#[expect(deprecated, reason = "the former names are exported for one release")]
pub use deprecated::{
    Ask, Builder, Closing, Finding, Gate, GateBuilder, Identity, Options, Remembering, Secret, Tls,
    Unwise,
};
pub use tollgate_core::reservation::ReservationId;

pub use tollgate_redis::{
    ClientIdentity, Credentials, CredentialsProvider, KeyHashSecret, PasswordFile, RedisOptions,
    RedisTls, ReservationRetention, ServerWarning, ServerWarningKind,
};
