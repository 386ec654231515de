//! A service as a node of a fleet: the other nodes, the operators' changes, and background work.
//!
//! `membership/` tracks the other nodes and shares operators' changes, `maintenance.rs` renews slices, reconciles counts and
//! cancels tickets. Must not know: Redis, command lines, how requests are decided.

mod maintenance;
mod membership;

pub use maintenance::FleetMaintenance;
pub use membership::{
    FleetNode, FleetSize, FleetView, LocalNode, Membership, MembershipSettings, Mismatch,
    NodeTotals,
};
