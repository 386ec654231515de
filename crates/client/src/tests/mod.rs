//! Tests of the pacer and the layer as their users see them.
//!
//! Must not know: how the pacer decides.

mod cancellation;
mod layer;
mod memory;
mod pacing;
mod partitions;
mod recorded_refusals;
mod refusal_bodies;
mod retries;
mod support;
mod waits;
