//! Leaky bucket: a meter that denies what overflows, or a queue that says how long to wait.
//!
//! Requests fill the bucket, which leaks at a steady rate. The arithmetic is the token bucket's seen from the other side, so the state is
//! the same single instant. The parameters are NGINX's. `burst` is the number of units that may stand in the bucket beside the request
//! being served, so `burst = 20` admits 21 at once. `delay = n` admits the first n of them without waiting; `nodelay` admits them all,
//! which makes a meter. Unlike NGINX it truncates nothing, so one request a year leaks as exactly as a thousand a second.
//!
//! Must not know: clocks, keys, stores, sleeping. A wait is a number; the caller waits.

mod algorithm;
mod decide;
mod quota;

pub use quota::{LeakyBucket, LeakyBucketBuilder};
