//! The same limiter over Redis or Valkey, for many processes that share one limit. Every verb is awaited.
//!
//! ```no_run
//! use tollgate::redis::{KeyHashSecret, Options, Redis};
//! use tollgate::{Error, Limiter};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let secret = KeyHashSecret::new(*b"drawn at random.");
//! let redis = Redis::connect(Options::new("redis://127.0.0.1", secret)).await?;
//! let limiter = Limiter::per_second(10).burst(20).name("per-user").over(&redis).build()?;
//!
//! match limiter.check("user:42").await {
//!     Ok(()) => println!("go ahead"),
//!     Err(Error::Denied(denied)) => println!("come back after {:?}", denied.retry_after()),
//!     Err(Error::Store(error)) if error.may_have_charged() => println!("nobody knows: {error}"),
//!     Err(error) => println!("not decided, not charged: {error}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The chain is that of the [limiter in memory](crate::Limiter) with `over(&redis)` before `build`, and limits,
//! answers, denials and errors are the same types. One call of a verb is one script call, whatever the number of limits;
//! only [`take_up_to`](Limiter::take_up_to) with several limits, refused places in queues, and waiting take more.
//!
//! # Which state a limit finds
//!
//! In the server a limit is known by a number from 1 to 65,535, and a state by that number and the key. **By default the
//! number follows from the limit's name**, by a function that never changes. So:
//!
//! - Limits can be reordered, added and removed while old and new processes run side by side: each finds its own state.
//! - A limit that changes its numbers goes on with its state, under the new numbers. Debt beyond what the new ones ever
//!   lend is brought down to that. So while a smaller burst is being rolled out, a key that meets old and new processes in
//!   turn gets up to the difference more each time: make a burst smaller under a new name, in a quiet hour, or with
//!   [`replace`](Limiter::replace), which knows both.
//! - A sliding counter whose window gets another length goes on with what the old window estimates. While processes with
//!   different lengths ask in turn, what a key has used fades as slowly as the longer window lets it: nothing is minted.
//! - A limit that is renamed starts afresh. To keep its state, keep its number: [`id`](Builder::id).
//! - A limit that changes its algorithm should change its name too. Neither algorithm can read the other's state: what
//!   it cannot read it takes for absent, so while both run each starts the other afresh.
//! - Two limits over one connection cannot have one number: `build` refuses, whether they have the same name or, once in
//!   65,535 pairs, names that meet. Limiters in *different* programs that use one server with one secret are not seen:
//!   same name and same keys mean the same state, on purpose or not. Give each program its own secret, or number all.
//!
//! # When the server does not answer
//!
//! Every call ends within [`Options::deadline`], as [`Error::Store`](crate::Error::Store) and never as a denial. Whether to
//! let work through then is the caller's decision. [`Error::may_have_charged`](crate::Error::may_have_charged) tells
//! whether the charge may have been made all the same; nothing is repeated behind the caller's back.
//!
//! # When a future is dropped
//!
//! A call that was sent cannot be taken back. Whoever drops the future of [`check`](Limiter::check),
//! [`spend`](Limiter::spend), [`take_up_to`](Limiter::take_up_to), [`charge`](Limiter::charge) or [`check_all`] in the middle
//! of it, by a timeout, a `select!` or a cancelled task, may have been charged and has no proof of it to give back: the limit
//! errs towards what was promised, by one call, until time has given it back. A `refund` that is dropped may or may not have
//! been made. So:
//!
//! - Let [`Options::deadline`] end calls, not a timeout of your own around them: its error says whether something
//!   may have been charged.
//! - Where a charge must not be lost, use [`reserve_as`](Limiter::reserve_as): the caller knows the id before the call, and
//!   can [cancel](Limiter::cancel) or repeat it whatever became of the future.
//! - A [`Permit`] of a dropped call ends with its lease. Whoever only waits, in [`wait`](Limiter::wait) or
//!   [`until_ready`](Limiter::until_ready) and between two calls, loses nothing: a place in a queue is given back.

// Wires limits to a store that is awaited. Must not know: how scripts are called, policies, transports.

mod batch;
mod builder;
mod concurrency;
mod connection;
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
pub use limiter::Limiter;
pub use reservation::{Reservation, SettlementOutcome};

pub use tollgate_core::reservation::ReservationId;
/// The former name of [`KeyHashSecret`]. It goes with the next release.
#[deprecated(since = "0.1.0", note = "call it `KeyHashSecret`")]
pub type Secret = KeyHashSecret;

pub use tollgate_redis::{
    ClientIdentity, Credentials, CredentialsProvider, KeyHashSecret, PasswordFile, RedisOptions,
    RedisTls, ReservationRetention, ServerWarning, ServerWarningKind,
};
