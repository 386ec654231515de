//! The store against real servers: step by step against core, under faults, and measured.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on should say so loudly, helpers included"
)]

mod batches;
mod clock;
mod differential;
mod fake;
mod faults;
mod hostile;
mod inherited;
mod large;
mod lending;
mod measured;
mod model;
mod register;
mod scenarios;
mod server_time;
mod shared_trips;
mod topology;
mod trace;
mod vectors;
mod versions;

use tollgate_redis::KeyHashSecret;

/// The secret that all tests name keys with.
const SECRET: KeyHashSecret = KeyHashSecret::new(*b"tests of a fleet");
