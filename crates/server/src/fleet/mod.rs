//! The store in Redis or Valkey that the nodes of a fleet share, and what is done about its being away.
//!
//! `start.rs` connects, `tending.rs` looks whether what was away is back. [`tollgate_service::fleet`] does everything else.
//! Must not know: command lines, how anything is decided.

mod start;
mod tending;

pub use start::Shared;
pub use tending::Tending;
pub use tollgate_service::fleet::{
    Fellow, FleetMaintenance, Membership, MembershipSettings, Node, Nodes, Tally, View, What,
};
