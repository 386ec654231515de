//! What tests share: oracles that decide by other means than the code under test, and vectors that every store
//! must pass.
//!
//! Must not know: how any store or algorithm works inside. It sees what a user sees.

pub mod allocation;
pub mod beside;
pub mod certificates;
pub mod envoy;
pub mod explore;
pub mod fuzzing;
pub mod nginx;
pub mod oracle;
pub mod peers;
pub mod process;
pub mod redis;
pub mod register;
pub mod vectors;
