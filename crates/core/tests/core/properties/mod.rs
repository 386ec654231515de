//! Properties of every algorithm, each as a checker. It runs on the real code, where it must hold, and on a wrong variant, which it must
//! catch: a checker that catches nothing proves nothing.
//!
//! [`harness`] runs checkers. [`subject`] is the interface that real and wrong limiters share. [`invariants`] are the checkers that fit
//! any algorithm. Each other file covers one algorithm or one theme. Wrong variants stand beside the checkers that catch them, and say
//! which mistake in the field they copy.
//!
//! Must not know: the internals of an algorithm. Oracles come from the test kit.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may stop at what it did not expect, in its helpers too"
)]

mod harness;
mod invariants;
mod subject;

mod borrowed_shares;
mod builders;
mod clock;
mod clock_controls;
mod compose;
mod concurrency;
mod custom_bucket;
mod extremes;
mod fair_share;
mod fixed_window;
mod leaky_queue;
mod quota_lease;
mod refunds;
mod rescale;
mod reservation;
mod sketch;
mod sliding_counter;
mod sliding_log;
mod tiers;
mod token_bucket;
