//! Tests of the program through its command line.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests and their helpers should panic on errors"
)]
#![cfg(unix)]

mod alerts;
mod all_commands;
mod call;
mod check;
mod claims;
mod clients;
mod documentation;
mod envoy;
mod examples;
mod explain;
mod fleet;
mod harness;
mod load;
mod operators;
mod packaging;
mod policy_tests;
mod proxy_protocol;
mod running;
mod scenarios;
mod serve;
mod shipped_policies;
mod soak;
mod tls;
mod unfinished_bodies;
mod unread_output;
mod with_peers;
