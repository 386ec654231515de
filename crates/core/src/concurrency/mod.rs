//! Concurrency limit: a number of places at once, each held by a lease that expires if its holder is lost.
//!
//! A request acquires a lease under its own id, renews it while it works, and releases it at the end. If a holder crashes, its place is
//! free again when the lease expires, so a crash costs at most one lease duration. Acquiring again under a held id changes nothing, so a
//! retried call cannot hold two places.
//!
//! Must not know: clocks, keys, stores, guards. A store may release on drop.

mod algorithm;
mod decide;
mod lease_set;
mod quota;

pub use lease_set::{Lease, LeaseEdit, LeaseId, LeaseSet};
pub use quota::{Concurrency, MAX_LEASES};
