//! Lending in Redis or Valkey: an errand is one round trip to where the key is.
//!
//! Must not know: how books are kept, how connections are.

use tollgate_store::contract::MAX_CHECKS;
use tollgate_store::lending::{Errand, Granted, Lender};
use tollgate_store::{Awaited, ErrorKind, Key, Ruled, StoreError};

use crate::name::Named;
use crate::store::RedisStore;
use crate::wire::{Request, granted};

impl RedisStore {
    /// Runs an errand on one key: see [`Lender`], whose contract this is. A key must have the same tag whenever it is asked
    /// for.
    ///
    /// # Errors
    /// The limit cannot be lent from, or a server did not answer.
    pub async fn lend(
        &self,
        tag: Option<Key<'_>>,
        key: Key<'_>,
        ruled: &Ruled,
        errand: &Errand<'_>,
    ) -> Result<Granted, StoreError> {
        if errand.reports.len() > MAX_CHECKS {
            let detail = "too many reports in one errand";
            return Err(StoreError::new(ErrorKind::BadRequest, detail));
        }
        let named = Named::of(self.secret(), &key, tag.as_ref());
        let request = Request::lending_named(named, ruled, errand, None)?;
        let read = |reply: &[i64]| granted(&ruled.limit, errand, reply);
        self.call(named, &request, read).await
    }
}

impl Lender for RedisStore {
    fn lend<'a>(
        &'a self,
        place: Option<Key<'a>>,
        key: Key<'a>,
        ruled: &'a Ruled,
        errand: Errand<'a>,
    ) -> Awaited<'a, Granted> {
        Box::pin(async move { self.lend(place, key, ruled, &errand).await })
    }
}
