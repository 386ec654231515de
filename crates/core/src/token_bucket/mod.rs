//! Token bucket, kept as one instant (the generic cell rate algorithm).
//!
//! A bucket of `burst` tokens refills at a steady rate. Instead of a token count and the time it was taken, the
//! state is the single instant at which the bucket will be full again: the *theoretical arrival time*. `TAT − now`
//! is the debt in time; a token costs one emission interval of debt; a request is admitted while the debt stays
//! within `burst` intervals. An instant that has passed means a full bucket, so expired state and absent state are
//! the same thing.
//!
//! Must not know: clocks, keys, stores.

mod algorithm;
mod decide;
mod quota;

pub use quota::{TokenBucket, TokenBucketBuilder};

/// The state of a token bucket or a leaky bucket: the instant, in nanoseconds since 1970, at which it is as if it
/// had never been used. Zero, like any instant that has passed, is a bucket nobody has used.
pub type Tat = u64;
