//! Tests of the whole way of a policy file, and what several tests share. Compiled only into tests.
//!
//! Must not know: anything that product code could call.

mod any;
mod as_json;
mod corpus;
pub(crate) mod generate;
mod round_trip;
pub(crate) mod sample;
mod shipped;
