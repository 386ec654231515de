//! The program as people run it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on should say so loudly, helpers included"
)]
#![cfg(unix)]

mod all_commands;
mod check;
mod documentation;
mod envoy;
mod examples;
mod explain;
mod fleet;
mod harness;
mod operators;
mod packaging;
mod policy_tests;
mod running;
mod scenarios;
mod serve;
mod shipped_policies;
mod tls;
mod unread_output;
mod with_peers;
