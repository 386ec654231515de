//! A service as a node of a fleet: the other nodes, what operators say on all of them, and the upkeep of this node's part.
//!
//! `membership/` sees the other nodes and shares what operators say, `maintenance.rs` renews, reconciles and cancels. Must
//! not know: Redis, command lines, how anything is decided.

mod maintenance;
mod membership;

pub use maintenance::FleetMaintenance;
pub use membership::{
    FleetNode, FleetSize, FleetView, LocalNode, Membership, MembershipSettings, Mismatch,
    NodeTotals,
};
