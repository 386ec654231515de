//! Leases of parts of one token bucket, so that nodes can decide locally.
//!
//! A node takes a *lease* of units and spends them without asking again. The bucket subtracts leased units from its capacity. So what the
//! bucket admits and what all leases hold never exceed the quota together, even if messages are lost, late or repeated, or nodes crash.
//! The price: units of a lease that are not spent are admitted nowhere. [`LeasedBucket`] is the broker's side, stored where the bucket
//! is. [`LocalLease`] is the node's side. A node sends a [`LeaseRequest`] and gets a [`LeaseGrant`].
//!
//! - A grant changes only the outstanding units.
//! - A report carries the total units spent from a lease, and the least time since the last of them was spent. The broker moves units
//!   that are new to it from the outstanding units to the debt of the bucket, as if spent at that time. Repeating a report changes
//!   nothing, so a node simply repeats a report that may be lost.
//! - The last report of a lease also returns its unspent units.
//! - A lease that expires counts as spent at its expiry, because the node may have spent it and crashed.
//!
//! The node counts the duration of its lease from before it first sent the request, less a margin for clocks that run at different
//! speeds. So it always stops before the broker charges the lease as expired. Reports carry spans of time and no instants, so clocks need
//! not agree.
//!
//! Must not know: networks, Redis, clocks, how many units a node should request (see [`fair_share`](crate::fair_share)).

mod lease_request;
mod leased_bucket;
mod local_lease;

pub use lease_request::{LeaseGrant, LeaseReport, LeaseRequest, LeaseSpec, QuotaLeaseId};
pub use leased_bucket::{LeasedBucket, MAX_QUOTA_LEASES, QuotaLease, status_from_parts};
pub use local_lease::LocalLease;
