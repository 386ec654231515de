//! Quota leases in Redis or Valkey: one lease request is one round trip to the key's server.
//!
//! Must not know: how leases are stored, how connections are made.

use tollgate_store::contract::MAX_CHECKS;
use tollgate_store::quota_lease::{LeaseBroker, LeaseGrant, LeaseRequest};
use tollgate_store::{IdentifiedLimit, StoreError, StoreErrorKind, StoreFuture, StoreKey};

use crate::key_name::KeyName;
use crate::store::RedisStore;
use crate::wire::{ScriptCall, decode_lease_grant};

impl RedisStore {
    /// Handles a lease request for one key; see [`LeaseBroker`] for the contract. Always pass the same tag for the same
    /// key.
    ///
    /// # Errors
    /// The limit cannot be leased from, or a server did not reply.
    pub async fn grant_lease(
        &self,
        tag: Option<StoreKey<'_>>,
        key: StoreKey<'_>,
        limit: &IdentifiedLimit,
        request: &LeaseRequest<'_>,
    ) -> Result<LeaseGrant, StoreError> {
        if request.reports.len() > MAX_CHECKS {
            let detail = "too many reports in one lease request";
            return Err(StoreError::new(StoreErrorKind::BadRequest, detail));
        }
        let key_name = KeyName::new(self.secret(), &key, tag.as_ref());
        let call = ScriptCall::for_named_lease(key_name, limit, request, None)?;
        let read = |reply: &[i64]| decode_lease_grant(&limit.limit, request, reply);
        self.call(key_name, &call, read).await
    }
}

impl LeaseBroker for RedisStore {
    fn grant_lease<'a>(
        &'a self,
        tag: Option<StoreKey<'a>>,
        key: StoreKey<'a>,
        limit: &'a IdentifiedLimit,
        request: LeaseRequest<'a>,
    ) -> StoreFuture<'a, LeaseGrant> {
        Box::pin(async move { self.grant_lease(tag, key, limit, &request).await })
    }
}
