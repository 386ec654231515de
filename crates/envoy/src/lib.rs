//! Everything of envoyproxy/ratelimit: its files and their exact counting, Envoy's rate limit service and quota service.
//!
//! [`EnvoyService`] answers what Envoy asks, over a [`RateLimitService`](tollgate_service::RateLimitService): [`rls`] decides
//! on descriptors by a policy or by files, [`rlqs`] assigns quotas. [`config`] reads the files and says which counters a
//! request charges, [`engine`] charges them, [`protobuf`] reads and writes messages. Must not know: gRPC, sockets, HTTP
//! libraries.
#![forbid(unsafe_code)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod config;
pub mod engine;
pub mod protobuf;
pub mod rlqs;
pub mod rls;
mod service;

pub use service::EnvoyService;
