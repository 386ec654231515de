//! Measurements of Tollgate that do not depend on how fast or busy a machine is.
//!
//! `bin/probe.rs` runs one case of [`cases`] for the instruction counter; `cargo xtask bench` drives it. Nothing in the
//! product depends on this crate, and nothing here asserts a time.

pub mod cases;
pub mod measure;
pub mod overload;
