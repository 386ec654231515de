//! The library through its public interface. Tests control the clock and do not sleep.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests, which clippy does not see as tests themselves"
)]

mod api_shape;
mod batch;
mod concurrency;
mod edge_cases;
mod operations;
mod rate_limit_fields;
mod redis;
mod replace;
mod reqwest;
mod restore;
mod until_ready;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use tollgate::{Denial, Error, ManualClock, Nanos, Timestamp};

/// A clock that a test shares with its limiter.
fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(Timestamp::from_secs(1_700_000_000)))
}

/// The denial of a result; panics on anything else.
fn denied<T: std::fmt::Debug>(answer: Result<T, Error>) -> Denial {
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
