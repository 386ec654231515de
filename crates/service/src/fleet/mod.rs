//! A service as one of a fleet: which other nodes there are, what operators say on all of them, and slices and counts that
//! this node borrows.
//!
//! `membership/` sees the other nodes and shares what operators say, `borrowing.rs` looks after slices and counts. Must not
//! know: Redis, command lines, how anything is decided.

mod borrowing;
mod membership;

pub use borrowing::Borrowing;
pub use membership::{Fellow, Membership, MembershipSettings, Node, Nodes, Tally, View, What};
