//! A real Envoy in front, configured as `examples/envoy` says: what it asks, what it makes of the answers, and what its
//! clients see.

mod files;
mod harness;
mod hits_addend;
mod policies;
mod response_cost;
mod responses;
mod versions;
