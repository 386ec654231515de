//! The server over real sockets, on a clock that the test moves. Nothing here sleeps.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on should say so loudly, helpers included"
)]

mod abandoned_waits;
mod admin;
mod bad_requests;
mod buffer_budget;
mod connections;
mod cross_site;
mod envoy;
mod fleet;
mod forward_auth;
mod gateway;
mod grpc;
mod harness;
mod headers;
mod http1;
mod nginx;
mod openapi;
mod policies;
mod preflights;
mod proxy_protocol;
mod resp;
mod rlqs;
mod rls_json;
mod running_server;
mod single_limit;
mod tickets;
mod tls;
mod wait_queue_full;
