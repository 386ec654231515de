//! The server over real sockets, on a clock that the test moves. Nothing here sleeps.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on should say so loudly, helpers included"
)]

mod admin;
mod connections;
mod crowded;
mod envoy;
mod envoy_json;
mod fleet;
mod gateways;
mod grpc;
mod harness;
mod http1;
mod inputs;
mod limit;
mod nginx;
mod openapi;
mod policy;
mod resp;
mod rlqs;
mod running;
mod tickets;
mod tls;
mod words;
