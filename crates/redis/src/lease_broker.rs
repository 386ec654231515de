//! Quota leases in Redis or Valkey: one lease request is one round trip to the key's server.
//!
//! Must not know: how leases are stored, how connections are made.

use tollgate_store::contract::MAX_CHECKS;
use tollgate_store::quota_lease::{LeaseBroker, LeaseGrant, LeaseRequest};
use tollgate_store::{
    IdentifiedLimit, QuotaCheck, StoreError, StoreErrorKind, StoreFuture, StoreKey, StoreReply,
};

use crate::key_name::KeyName;
use crate::store::RedisStore;
use crate::wire::{ScriptCall, decode, decode_lease_grant, has_leases};

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

    fn spend_unleased<'a>(
        &'a self,
        tag: Option<StoreKey<'a>>,
        check: &'a QuotaCheck<'a>,
    ) -> StoreFuture<'a, Option<StoreReply>> {
        Box::pin(async move {
            let key_name = KeyName::new(self.secret(), &check.key, tag.as_ref());
            let Some(call) = ScriptCall::for_named_unleased_spend(key_name, check, None) else {
                return Ok(None);
            };
            let read = |reply: &[i64]| {
                if has_leases(reply) {
                    return Ok((None, 0));
                }
                let mut answer = [StoreReply::EMPTY];
                let batch = decode(std::slice::from_ref(check), reply, &mut answer)?;
                let [answer] = answer;
                Ok((Some(answer), batch.corrupt))
            };
            self.call(key_name, &call, read).await
        })
    }
}
