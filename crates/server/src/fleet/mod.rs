//! A server as one of a fleet: the store that all nodes share, and what is done about its being away.
//!
//! `start.rs` connects, `tending.rs` looks whether what was away is back. Must not know: command lines, how anything is
//! decided.

mod start;
mod tending;

pub use start::Shared;
pub use tending::Tending;
