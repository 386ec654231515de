//! The Redis or Valkey store that the nodes of a fleet share, and its recovery after an outage.
//!
//! `connect.rs` connects; `store_monitor.rs` probes a store that is unavailable. [`tollgate_service::fleet`] does everything
//! else. Must not know: command lines, how requests are decided.

mod connect;
mod store_monitor;

pub use connect::FleetConnection;
pub use store_monitor::StoreMonitor;
pub use tollgate_service::fleet::{
    FleetMaintenance, FleetNode, FleetSize, FleetView, LocalNode, Membership, MembershipSettings,
    Mismatch, NodeTotals,
};

/// The name of [`FleetNode`] before version 0.2.
#[deprecated(since = "0.2.0", note = "renamed to `FleetNode`")]
pub type Fellow = FleetNode;

/// The name of [`FleetView`] before version 0.2.
#[deprecated(since = "0.2.0", note = "renamed to `FleetView`")]
pub type View = FleetView;

/// The name of [`Mismatch`] before version 0.2.
#[deprecated(since = "0.2.0", note = "renamed to `Mismatch`")]
pub type What = Mismatch;

/// The name of [`NodeTotals`] before version 0.2.
#[deprecated(since = "0.2.0", note = "renamed to `NodeTotals`")]
pub type Tally = NodeTotals;
