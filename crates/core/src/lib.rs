//! Rate limiting algorithms as pure functions of (state, quota, now, cost).
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
#![cfg_attr(test, allow(clippy::arithmetic_side_effects))]

extern crate alloc;

mod error;
mod outcome;
mod rate;
mod time;

pub mod token_bucket;

pub use error::{InvalidQuota, Reason};
pub use outcome::{Outcome, Receipt, Status, Transition, Unit};
pub use rate::Rate;
pub use time::{MAX_CAPACITY, Nanos, Timestamp};
pub use token_bucket::{TokenBucket, TokenBucketBuilder};
