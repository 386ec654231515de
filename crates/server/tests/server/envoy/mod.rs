//! A real Envoy, configured as in `examples/envoy`: its calls, its interpretation of replies, and the responses that its
//! clients get.

mod files;
mod harness;
mod hits_addend;
mod policies;
mod response_cost;
mod responses;
mod versions;
