//! Tests of the whole path of a policy file, and shared test helpers. Only compiled for tests.
//!
//! Must not know: anything that product code could call.

pub(crate) mod arbitrary;
mod arbitrary_valid;
mod corpus;
pub(crate) mod fixtures;
mod round_trip;
mod shipped_policies;
mod write_json;
