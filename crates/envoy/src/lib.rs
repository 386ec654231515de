//! Compatibility with envoyproxy/ratelimit: its files and their exact counting, Envoy's rate limit service (RLS) and rate limit
//! quota service (RLQS).
//!
//! [`EnvoyService`] serves Envoy over a [`RateLimitService`](tollgate_service::RateLimitService): [`rls`] decides on descriptors by
//! a policy or by files, [`rlqs`] assigns quotas. [`config`] reads the files and plans charges, [`engine`] charges the counters,
//! [`protobuf`] reads and writes messages. Must not know: gRPC, sockets, HTTP libraries.
#![forbid(unsafe_code)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod config;
pub mod engine;
pub mod protobuf;
pub mod rlqs;
pub mod rls;
mod service;

pub use service::{EnvoyOptions, EnvoyService};
