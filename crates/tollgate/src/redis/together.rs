//! Several limiters over one server, each with its own key and cost, decided by one script call.
//!
//! Must not know: how calls are made, how to wait.

use tollgate_store as store;
use tollgate_store::contract::MAX_CHECKS;
use tollgate_store::{Answer, ErrorKind, StoreError};

use super::limiter::Limiter;
use crate::denied::Error;
use crate::key::{AsKey, KeyTooLong};
use crate::together::Batch;

/// One limiter's part in [`check_all`].
#[derive(Clone, Copy, Debug)]
#[must_use = "it is only asked by `check_all`"]
pub struct Ask<'a> {
    limiter: &'a Limiter,
    key: Result<store::Key<'a>, KeyTooLong>,
    cost: u64,
}

impl Limiter {
    /// This limiter's part in [`check_all`]: one unit on this key, unless [`cost`](Ask::cost) says otherwise.
    pub fn ask<'a>(&'a self, key: &'a (impl AsKey + ?Sized)) -> Ask<'a> {
        Ask {
            limiter: self,
            key: key.as_key(),
            cost: 1,
        }
    }
}

impl Ask<'_> {
    /// Asks for so many units.
    pub const fn cost(mut self, units: u64) -> Self {
        self.cost = units;
        self
    }
}

/// Asks several limiters at one instant, in one call. If all admit, all are charged; if one denies, none is, and the
/// denial names it.
///
/// The limiters must be over one [`Redis`](super::Redis) or its clones. Together they may have 32 limits. A place in a
/// queue that would have to be waited for counts as admitted; use plain buckets here.
///
/// # Errors
/// A limit denies, a key is too long, the call makes no sense (limiters over different servers, the same key twice on one
/// limiter, more than 32 limits), or the server did not decide.
pub async fn check_all(asks: &[Ask<'_>]) -> Result<(), Error> {
    let Some(first) = asks.first() else {
        return Ok(());
    };
    let redis = first.limiter.shared.redis();
    let mut parts = Vec::with_capacity(asks.len());
    for ask in asks {
        let shared = &ask.limiter.shared;
        if !shared.redis().is_same(redis) {
            let detail = "the limiters do not share a connection: build them over one";
            return Err(StoreError::new(ErrorKind::BadRequest, detail).into());
        }
        parts.push((ask.key?, ask.cost, shared.rules()));
    }
    let batch = Batch { parts };
    let checks = batch.checks()?;
    let mut answers = [Answer::EMPTY; MAX_CHECKS];
    let Some(room) = answers.get_mut(..checks.len()) else {
        return Ok(());
    };
    let verdict = redis.store().decide(&checks, room).await?;
    batch.conclude(&verdict, &answers)
}
