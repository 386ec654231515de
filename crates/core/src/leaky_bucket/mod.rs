//! Leaky bucket: as a meter that refuses what overflows, and as a queue that says how long to wait.
//!
//! Requests fill the bucket, which leaks at a steady rate. The arithmetic is the token bucket's seen from the other
//! side, so the state is the same single instant. The words are NGINX's: `burst` is what may stand in the bucket
//! beside the request being served, so `burst = 20` admits 21 at once; `delay = n` lets the first n of them through
//! without waiting; `nodelay` lets them all, which makes a meter. Unlike NGINX nothing is truncated, so one request
//! a year leaks as exactly as a thousand a second.
//!
//! Must not know: clocks, keys, stores, sleeping. A wait is a number; the caller waits.

mod algorithm;
mod decide;
mod quota;

pub use quota::{LeakyBucket, LeakyBucketBuilder};
