//! Quota leases in Redis or Valkey: one lease request is one round trip to the key's server.
//!
//! Must not know: how leases are stored, how connections are made.

use tollgate_store::contract::MAX_CHECKS;
use tollgate_store::quota_lease::{LeaseGrant, LeaseRequest, Lender};
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
    pub async fn lend(
        &self,
        tag: Option<StoreKey<'_>>,
        key: StoreKey<'_>,
        ruled: &IdentifiedLimit,
        errand: &LeaseRequest<'_>,
    ) -> Result<LeaseGrant, StoreError> {
        if errand.reports.len() > MAX_CHECKS {
            let detail = "too many reports in one lease request";
            return Err(StoreError::new(StoreErrorKind::BadRequest, detail));
        }
        let named = KeyName::new(self.secret(), &key, tag.as_ref());
        let request = ScriptCall::for_named_lease(named, ruled, errand, None)?;
        let read = |reply: &[i64]| decode_lease_grant(&ruled.limit, errand, reply);
        self.call(named, &request, read).await
    }
}

impl Lender for RedisStore {
    fn lend<'a>(
        &'a self,
        place: Option<StoreKey<'a>>,
        key: StoreKey<'a>,
        ruled: &'a IdentifiedLimit,
        errand: LeaseRequest<'a>,
    ) -> StoreFuture<'a, LeaseGrant> {
        Box::pin(async move { self.lend(place, key, ruled, &errand).await })
    }
}
