//! Whom a node borrows from, and what it is told: the contract of leased consistency.
//!
//! The accounting is core's ([`Book`](tollgate_core::lending::Book)); this is its face for those who need not know where a
//! book is kept. An errand may be repeated: reports say what was spent in all, and a slice is lent once under its id.
//! Must not know: where a book is kept, how much a node should borrow.

use std::fmt;
use std::sync::Arc;

use crate::contract::IdentifiedLimit;
use crate::key::StoreKey;
use crate::remote::StoreFuture;

pub use tollgate_core::quota_lease::{
    LeaseGrant, LeaseReport, LeaseRequest, LeaseSpec, QuotaLeaseId,
};

/// Somebody who lends parts of quotas.
pub trait Lender: Send + Sync + fmt::Debug {
    /// Runs an errand on one key of one limit. `place` says where the key lies, as for decisions; it must
    /// always be the same.
    ///
    /// The answer comes within the lender's own deadline. Dropping the future does not take back what was sent.
    fn lend<'a>(
        &'a self,
        place: Option<StoreKey<'a>>,
        key: StoreKey<'a>,
        ruled: &'a IdentifiedLimit,
        errand: LeaseRequest<'a>,
    ) -> StoreFuture<'a, LeaseGrant>;
}

/// A lender that several share.
impl<L: Lender + ?Sized> Lender for Arc<L> {
    fn lend<'a>(
        &'a self,
        place: Option<StoreKey<'a>>,
        key: StoreKey<'a>,
        ruled: &'a IdentifiedLimit,
        errand: LeaseRequest<'a>,
    ) -> StoreFuture<'a, LeaseGrant> {
        (**self).lend(place, key, ruled, errand)
    }
}
