//! Tests of the layer without a network. Those with real clients are in `tests/clients/`.

mod admission;
mod allocation;
mod attributes;
mod concurrency;
mod grpc_calls;
mod pacing;
mod responses;
mod support;
