//! Tests of the layer: most without a network, those with real clients in `real_clients.rs` and in the examples.

mod admission;
mod allocation;
mod attributes;
mod browser;
mod concurrency;
mod grpc_calls;
mod overload;
mod pacing;
mod permit_model;
mod real_clients;
mod responses;
mod stripe_policy;
mod support;
mod tokens;
mod upgrades;
