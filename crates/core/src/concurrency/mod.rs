//! Concurrency: so many at once, each held by a lease that ends by itself if its holder is lost.
//!
//! A request takes a lease under an id of its own, renews it while it works, and releases it when done. A holder
//! that dies without releasing gives its place back when the lease expires, so a crash costs at most one lease's
//! length. Acquiring again under a live id changes nothing, so a retried call cannot take two places.
//!
//! Must not know: clocks, keys, stores, guards. Releasing on drop is the store's business.

mod algorithm;
mod decide;
mod lease_set;
mod quota;

pub use lease_set::{Lease, LeaseEdit, LeaseId, LeaseSet};
pub use quota::{Concurrency, MAX_LEASES};
