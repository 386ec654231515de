//! The contract of leased consistency: how a node leases quota from a shared store.
//!
//! Core does the accounting ([`LeasedBucket`](tollgate_core::quota_lease::LeasedBucket)); this trait hides where it is
//! stored. A request may be repeated: reports carry totals, and each lease id is granted once. Must not know: where
//! leases are stored, how much a node should lease.

use std::fmt;
use std::sync::Arc;

use crate::contract::{IdentifiedLimit, QuotaCheck, StoreReply};
use crate::key::StoreKey;
use crate::remote::StoreFuture;

pub use tollgate_core::quota_lease::{
    LeaseGrant, LeaseReport, LeaseRequest, LeaseSpec, QuotaLeaseId,
};

/// Grants leases on parts of quotas.
pub trait LeaseBroker: Send + Sync + fmt::Debug {
    /// Handles a lease request for one key of one limit. `routing_key` selects where the key is stored, as for
    /// decisions. Always pass the same `routing_key` for the same key.
    ///
    /// The future completes within the broker's own deadline. Dropping it does not recall a request that was sent.
    fn grant_lease<'a>(
        &'a self,
        routing_key: Option<StoreKey<'a>>,
        key: StoreKey<'a>,
        limit: &'a IdentifiedLimit,
        request: LeaseRequest<'a>,
    ) -> StoreFuture<'a, LeaseGrant>;

    /// Decides a spend on a key that has no leases, in one call that costs as little as an exact decision. `None`: nothing
    /// was decided, because the key has leases or the broker has no such call. Then send a request with a direct cost.
    fn spend_unleased<'a>(
        &'a self,
        routing_key: Option<StoreKey<'a>>,
        check: &'a QuotaCheck<'a>,
    ) -> StoreFuture<'a, Option<StoreReply>> {
        let _unsupported = (routing_key, check);
        Box::pin(std::future::ready(Ok(None)))
    }
}

impl<L: LeaseBroker + ?Sized> LeaseBroker for Arc<L> {
    fn grant_lease<'a>(
        &'a self,
        routing_key: Option<StoreKey<'a>>,
        key: StoreKey<'a>,
        limit: &'a IdentifiedLimit,
        request: LeaseRequest<'a>,
    ) -> StoreFuture<'a, LeaseGrant> {
        (**self).grant_lease(routing_key, key, limit, request)
    }

    fn spend_unleased<'a>(
        &'a self,
        routing_key: Option<StoreKey<'a>>,
        check: &'a QuotaCheck<'a>,
    ) -> StoreFuture<'a, Option<StoreReply>> {
        (**self).spend_unleased(routing_key, check)
    }
}
