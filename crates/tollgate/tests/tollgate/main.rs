//! The facade as its users see it. Time is handed in, and nobody sleeps.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests, which clippy does not see as tests themselves"
)]

mod exact;
mod gates;
mod ready;
mod redis;
mod replaced;
mod several;
mod shape;
mod verbs;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use tollgate::{Denied, Error, ManualClock, Nanos, Timestamp};

/// A clock that a test and its limiter share.
fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(Timestamp::from_secs(1_700_000_000)))
}

/// The denial, where nothing else will do.
fn denied<T: std::fmt::Debug>(answer: Result<T, Error>) -> Denied {
    match answer {
        Err(Error::Denied(denied)) => denied,
        other => panic!("expected a denial, and got {other:?}"),
    }
}

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

const fn millis(n: u64) -> Nanos {
    Nanos::from_millis(n)
}
