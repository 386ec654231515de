//! The store against real servers: step by step against core, under faults, and measured.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on should say so loudly, helpers included"
)]

mod any_reply;
mod batches;
mod borrowed_shares;
mod clock;
mod differential;
mod fake_server;
mod faults;
mod full_log;
mod invalid_replies;
mod model;
mod pipelining;
mod quota_leases;
mod register;
mod saturation;
mod scenarios;
mod server_cost;
mod server_time;
mod topology;
mod trace;
mod vectors;
mod versions;
mod window_length_change;

use tollgate_redis::KeyHashSecret;

/// The secret of all tests.
const SECRET: KeyHashSecret = KeyHashSecret::new(*b"tests of a fleet");
