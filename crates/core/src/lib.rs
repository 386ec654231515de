//! Rate limiting algorithms as pure functions: state, quota, now and cost in; outcome and next state out.
//!
//! No clock, no lock, no await, no float, no dependency. Whoever keeps the state decides how it is kept; whoever
//! holds the clock says what time it is. The same functions decide in memory, specify the scripts that decide in
//! Redis, and run under simulated time.
//!
//! ```
//! use tollgate_core::{Nanos, Outcome, Rate, Timestamp, TokenBucket};
//!
//! // 100 at once, then 10 a second.
//! let quota = TokenBucket::at(Rate::per_second(10)).burst(100).build()?;
//! let mut state = 0;
//! let now = Timestamp::from_secs(1_700_000_000);
//! for _ in 0..100 {
//!     let answer = quota.decide(state, now, 1);
//!     assert_eq!(answer.outcome, Outcome::Allow);
//!     state = answer.next.unwrap();
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
//! | [`leaky_bucket`] | the same seen as a queue: asks to wait instead of refusing | 8 bytes | protecting something fragile |
//! | [`fixed_window`] | a count per hour, day or month; twice that across a boundary | 16 bytes | billing periods |
//! | [`sliding_log`] | exactly a count in any window | an entry per request | small limits that must be exact |
//! | [`sliding_counter`] | about a count in any window | 16 bytes | large limits "per minute" |
//! | [`concurrency`] | so many at once | a lease per holder | slow work |
//! | [`sketch`] | a token bucket for any number of identities | fixed | floods of identities |
//!
//! [`lending`] and [`share`] split one quota over many nodes; [`reservation`] charges now what is known later;
//! [`compose`] decides on several limits at once; [`limit`] puts every algorithm behind one face.
//!
//! # What holds for all of them
//!
//! - A cost of zero is a peek. Peeks and denials change nothing, except that state which a clock gone back has left
//!   in the future is corrected.
//! - A cost above the most a limit ever admits is [`Outcome::Never`], which no waiting cures.
//! - After exactly `retry_after` the same cost is admitted if nothing else arrives, and a nanosecond earlier it is not.
//! - Time that goes back never mints, and each jump ahead mints at most one burst. One thing a single word cannot see: a
//!   refund after a step back may give back up to what the clock stepped back since the charge, never more than was charged.
//! - A limit of zero denies everything.
//! - Nothing panics and nothing overflows, whatever the input.

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
pub use error::{InvalidQuota, InvalidReason};
pub use fixed_window::{Calendar, FixedWindow, UtcOffset, Window, WindowState};
pub use leaky_bucket::LeakyBucket;
pub use outcome::{Outcome, QuotaStatus, QuotaUnit, Receipt, Transition};
pub use rate::Rate;
pub use sliding_counter::{CounterState, SlidingCounter};
pub use sliding_log::SlidingLog;
pub use time::{MAX_CAPACITY, Nanos, Timestamp};
pub use token_bucket::TokenBucket;
