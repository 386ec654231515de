//! Tests of `tollgate-core`: published behaviours, test vectors, properties against oracles, and for each checker a wrong variant that it
//! must catch. One binary, so that it links once.

mod fuzz_smoke;
mod properties;
mod published_behaviours;
mod vectors;
