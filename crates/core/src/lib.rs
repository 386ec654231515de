//! Rate limiting algorithms as pure functions: state, quota, now and cost in; outcome and next state out.
//!
//! This crate has no clock, no lock, no await, no float and no dependency. The caller stores the state and passes the current time. The
//! same functions decide in memory, specify the scripts that decide in Redis, and run under simulated time.
//!
//! ```
//! use tollgate_core::{Nanos, Outcome, Rate, Timestamp, TokenBucket};
//!
//! // 100 at once, then 10 a second.
//! let quota = TokenBucket::builder(Rate::per_second(10)).burst(100).build()?;
//! let mut state = 0;
//! let now = Timestamp::from_secs(1_700_000_000);
//! for _ in 0..100 {
//!     let transition = quota.decide(state, now, 1);
//!     assert_eq!(transition.outcome, Outcome::Allow);
//!     state = transition.next.unwrap();
//! }
//! let denied = quota.decide(state, now, 1);
//! assert_eq!(denied.outcome, Outcome::Deny { retry_after: Nanos::from_millis(100) });
//! let later = now.after(Nanos::from_millis(100));
//! assert_eq!(quota.decide(state, later, 1).outcome, Outcome::Allow);
//! # Ok::<(), tollgate_core::InvalidQuota>(())
//! ```
//!
//! # Choosing an algorithm
//!
//! | algorithm | admits | state | choose it for |
//! |---|---|---|---|
//! | [`token_bucket`] | a burst at once, then a steady rate; never more than burst + rate × time | 8 bytes | almost everything |
//! | [`leaky_bucket`] | the same as a queue: delays a request instead of denying it | 8 bytes | protecting something fragile |
//! | [`custom_bucket`] | the same as a token bucket, with refill in steps or fewer tokens for new keys | 8 bytes | migrating from such a limiter |
//! | [`fixed_window`] | a count per hour, day or month; twice that across a boundary | 16 bytes | billing periods |
//! | [`sliding_log`] | exactly a count in any window | an entry per request | small limits that must be exact |
//! | [`sliding_counter`] | about a count in any window | 16 bytes | large limits "per minute" |
//! | [`concurrency`] | a number of requests at once | a lease per holder | slow work |
//! | [`sketch`] | a token bucket for any number of identities | fixed | floods of identities |
//!
//! [`quota_lease`] and [`fair_share`] split one quota over many nodes. [`reservation`] charges an estimate and settles it later.
//! [`compose`] combines the outcomes of several limits. [`limit`] puts every algorithm behind one interface.
//!
//! # What holds for all algorithms
//!
//! - A cost of zero is a peek. Peeks and denials do not change the state, with two exceptions: they correct a state that lies too far
//!   ahead because the clock went back, and the denial of a new key of a [`custom_bucket`] records that the key was seen.
//! - A cost above the capacity of a limit is [`Outcome::Never`]: waiting does not help.
//! - After exactly `retry_after` the same cost is admitted if nothing else arrives. A nanosecond earlier it is not.
//! - A clock that goes back never adds quota, and each jump ahead adds at most one burst. There is one exception, because a state of one
//!   word does not show it: a refund after a step back may return up to the length of the step more than refill has left, but never more
//!   than was charged.
//! - A limit of zero denies everything.
//! - No input panics or overflows.

#![no_std]
#![forbid(unsafe_code)]
#![deny(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::float_arithmetic,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]
#![cfg_attr(
    test,
    allow(
        clippy::arithmetic_side_effects,
        reason = "a test that overflows should fail"
    )
)]

extern crate alloc;

mod error;
mod outcome;
mod rate;
mod time;

pub mod compose;
pub mod concurrency;
pub mod custom_bucket;
pub mod fair_share;
pub mod fixed_window;
pub mod leaky_bucket;
pub mod limit;
pub mod quota_lease;
pub mod reservation;
pub mod sketch;
pub mod sliding_counter;
pub mod sliding_log;
pub mod token_bucket;

pub use concurrency::Concurrency;
pub use custom_bucket::CustomBucket;
pub use error::{InvalidQuota, InvalidReason};
pub use fixed_window::{Calendar, FixedWindow, UtcOffset, Window, WindowState};
pub use leaky_bucket::LeakyBucket;
pub use outcome::{Outcome, QuotaStatus, QuotaUnit, Receipt, Transition};
pub use rate::Rate;
pub use sliding_counter::{CounterState, SlidingCounter};
pub use sliding_log::SlidingLog;
pub use time::{MAX_CAPACITY, Nanos, Timestamp};
pub use token_bucket::TokenBucket;
