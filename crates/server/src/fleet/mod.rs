//! A server as one of a fleet: the store that all nodes share, and what is done about its being away.
//!
//! `start.rs` connects, `tending.rs` looks whether what was away is back, `borrowing.rs` after
//! slices and counts, `membership/` sees the other nodes and shares what
//! operators say. Must not know: command lines, how anything is decided.

mod borrowing;
mod membership;
mod start;
mod tending;

pub use borrowing::Borrowing;
pub use membership::{Fellow, Membership, MembershipSettings, Node, Nodes, Tally, View, What};
pub use start::Shared;
pub use tending::Tending;
