//! A token bucket that refills in steps, or whose new keys do not start full.
//!
//! The arithmetic is the token bucket's; only two inputs change. *Steps*: the decision sees the clock rounded down to the last step, so all
//! tokens of a step arrive together, at multiples of the step since 1970. *Initial tokens*: a key without a state begins with the debt of
//! the tokens that it lacks. A full token bucket needs no state, so a key that is only idle would look new. Therefore a state counts for
//! `remember` longer than its debt; only a key that was full and idle for that long is new again. It never gains by that, because it starts
//! with at most what it had.
//!
//! Must not know: clocks, keys, stores.

mod algorithm;
mod decide;
mod quota;

pub use quota::{CustomBucket, CustomBucketBuilder};
