//! State and time: what decisions are made on.
//!
//! [`Clock`] says when it is; [`Buckets`] holds a first, bounded state in memory. Must not know: names of limits,
//! HTTP, what a key means.
#![forbid(unsafe_code)]

mod buckets;
mod clock;
mod error;
mod fingerprint;
mod group;

pub use buckets::{Buckets, Decision, MAX_KEY_LEN, MAX_KEYS};
pub use clock::{Clock, ManualClock, SystemClock};
pub use error::{InvalidSize, KeyTooLong};
