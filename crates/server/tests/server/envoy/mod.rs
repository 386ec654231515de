//! A real Envoy in front, configured as `examples/envoy` says: what it asks, what it makes of the answers, and what its
//! clients see.

mod afterwards;
mod answers;
mod files;
mod hits;
mod policies;
mod rig;
mod versions;
