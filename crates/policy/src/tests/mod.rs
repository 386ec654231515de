//! Tests of the whole way of a policy file, and what several tests share. Compiled only into tests.
//!
//! Must not know: anything that product code could call.

pub(crate) mod arbitrary;
mod arbitrary_valid;
mod corpus;
pub(crate) mod fixtures;
mod round_trip;
mod shipped_policies;
mod write_json;
