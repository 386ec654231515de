//! Lending parts of one token bucket to nodes that then decide by themselves.
//!
//! A node takes a *slice* in advance and spends it without asking. What is out on loan is taken off the bucket's
//! capacity, so what the bucket itself admits and what all slices hold never exceed the quota together, whatever is
//! lost, late, repeated or dead; the price is that a slice nobody spends admits less. [`Book`] is the lender's side, kept
//! where the bucket is kept. [`Slice`] is the borrower's. An [`Errand`] is what one of them sends to the other.
//!
//! - A grant changes only what is outstanding.
//! - A report says how much of a slice has been spent in all, and how long ago at least; what the lender had not yet heard
//!   of moves from what is outstanding to the bucket's debt, as if spent then. Saying it again changes nothing, so a report
//!   that may have been lost is simply repeated.
//! - The last report of a slice also gives its rest back.
//! - A slice that expires counts as spent at its expiry, for its holder may have spent it and died.
//!
//! The borrower counts its slice's life from before it first asked, less a margin for clocks that run at different speeds,
//! so it always stops before the lender has written the slice off. Reports carry spans of time and never instants, so it
//! does not matter what time it is anywhere.
//!
//! Must not know: networks, Redis, clocks, how much a node should ask for (see [`share`](crate::share)).

mod lease_request;
mod leased_bucket;
mod local_lease;

pub use lease_request::{LeaseGrant, LeaseReport, LeaseRequest, LeaseSpec, QuotaLeaseId};
pub use leased_bucket::{LeasedBucket, MAX_QUOTA_LEASES, QuotaLease, status_from_parts};
pub use local_lease::LocalLease;
