//! Token bucket, stored as one instant (the generic cell rate algorithm, GCRA).
//!
//! A bucket of `burst` tokens refills at a steady rate. Instead of a token count and the time of that count, the state is the single
//! instant at which the bucket is full again: the *theoretical arrival time* (TAT). `TAT − now` is the debt in time. A token costs one
//! emission interval of debt. A request is admitted while the debt stays within `burst` intervals. A past instant means a full bucket, so
//! expired state and absent state are the same.
//!
//! Must not know: clocks, keys, stores.

mod algorithm;
mod decide;
mod quota;

pub use quota::{TokenBucket, TokenBucketBuilder};

/// The state of a token bucket or a leaky bucket: the instant, in nanoseconds since 1970, at which it is as if it had never been used.
/// Zero, like any past instant, is an unused bucket.
pub type Tat = u64;
