//! The concurrency limiter over Redis: permits are leases, which expire if their process is gone.
//!
//! Must not know: rates, how calls are made, what the work is.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::concurrency::LeaseId;
use tollgate_core::{Concurrency, Nanos};
use tollgate_store as store;
use tollgate_store::{IdentifiedLimit, Op, QuotaCheck, ReplyNote, StoreError, StoreReply};

use super::connection::{LimitIdClaim, Redis};
use super::release_queue::BackgroundRelease;
use super::{limit_ids, random};
use crate::error::{Denial, Error};
use crate::invalid::InvalidLimiter;
use crate::key::{AsKey, OwnedKey};
use crate::limit_name::LimitName;

/// Limits how many permits each key holds at the same time, over all processes. Cheap to clone; clones share their state.
///
/// ```no_run
/// use std::time::Duration;
/// use tollgate::ConcurrencyLimiter;
///
/// # async fn example(redis: &tollgate::redis::Redis) -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = ConcurrencyLimiter::builder(2).lease(Duration::from_secs(30)).with_redis(redis).build()?;
/// let permit = limiter.acquire("tenant-7").await?;
/// // … work; if it takes longer than the lease, call `permit.renew()` …
/// permit.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// A lease is required: without one, a process that crashes would hold its permits forever.
#[derive(Clone)]
pub struct ConcurrencyLimiter {
    shared: Arc<RedisConcurrencyLimiterInner>,
}

struct RedisConcurrencyLimiterInner {
    claim: LimitIdClaim,
    name: LimitName,
    identified: IdentifiedLimit,
}

/// Builds a [`ConcurrencyLimiter`] over Redis. Created by [`with_redis`](crate::ConcurrencyLimiterBuilder::with_redis).
#[derive(Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct ConcurrencyLimiterBuilder {
    redis: Redis,
    name: LimitName,
    max_permits: u64,
    lease: Option<Duration>,
    memory_only_setting: Option<&'static str>,
    id: Option<u16>,
}

impl ConcurrencyLimiterBuilder {
    pub(crate) fn new(
        redis: &Redis,
        name: LimitName,
        max_permits: u64,
        lease: Option<Duration>,
        misplaced: Option<&'static str>,
    ) -> Self {
        Self {
            redis: redis.clone(),
            name,
            max_permits,
            lease,
            memory_only_setting: misplaced,
            id: None,
        }
    }

    /// Sets the id of this limiter in Redis, instead of the id derived from its name. Concurrency limiters and rate limits
    /// share one set of ids; see [which state a limit uses](super#which-state-a-limit-uses).
    pub const fn id(mut self, id: u16) -> Self {
        self.id = Some(id);
        self
    }

    /// Validates all settings and builds the limiter. Makes no call to Redis.
    ///
    /// # Errors
    /// More than 65,536 permits, no lease or a lease of zero, a setting that only a limiter in memory has, or an id that
    /// another limit over this connection has.
    pub fn build(self) -> Result<ConcurrencyLimiter, InvalidLimiter> {
        let name = self.name;
        if let Some(choice) = self.memory_only_setting {
            return Err(InvalidLimiter::OnlyInMemory { choice });
        }
        let Some(lease) = self.lease else {
            return Err(InvalidLimiter::NoLease { name });
        };
        let quota = match Concurrency::new(self.max_permits, Nanos::from(lease)) {
            Ok(quota) => quota,
            Err(cause) => return Err(InvalidLimiter::Quota { name, cause }),
        };
        let id = match self.id {
            Some(id) => limit_ids::checked_limit_id(&name, id)?,
            None => limit_ids::limit_id_from_name(name.as_str()),
        };
        Ok(ConcurrencyLimiter {
            shared: Arc::new(RedisConcurrencyLimiterInner {
                claim: self.redis.claim(&[(name.clone(), id)])?,
                name,
                identified: IdentifiedLimit {
                    id,
                    limit: quota.into(),
                },
            }),
        })
    }
}

impl ConcurrencyLimiter {
    /// Acquires one permit. It is held until it is released or dropped, or until its lease expires.
    ///
    /// # Errors
    /// All permits are held, the key is too long, or the server did not decide.
    pub async fn acquire(&self, key: impl AsKey) -> Result<Permit, Error> {
        self.acquire_n(key, 1).await
    }

    /// Acquires several permits as one [`Permit`].
    ///
    /// # Errors
    /// Not enough permits are free, the limit is below `permits`, the key is too long, or the server did not decide. A permit
    /// that the server may have granted nevertheless is released in the background.
    pub async fn acquire_n(&self, key: impl AsKey, permits: u64) -> Result<Permit, Error> {
        let key = key.as_key()?;
        let id = LeaseId(random::random_id());
        // Created before the call: if the reply is lost or the future is dropped, dropping the permit releases it. The release
        // uses the same connection as the acquisition, so the server runs it afterwards. If that connection breaks and the
        // order changes, the lease expires.
        let mut permit = Permit {
            shared: Arc::clone(&self.shared),
            key: OwnedKey::from_key(&key),
            id,
            is_held: true,
        };
        let weight = permits;
        let reply = self.shared.decide(&key, Op::Acquire { id, weight }).await;
        let reply = reply.inspect_err(|error| permit.is_held = error.may_have_charged())?;
        if reply.outcome.is_admitted() {
            return Ok(permit);
        }
        permit.is_held = false;
        let name = self.shared.name.clone();
        let denial = Denial::new(name, permits, reply.outcome, reply.status);
        Err(denial.by_limit(&self.shared.identified.limit).into())
    }

    /// The number of free permits of this key.
    ///
    /// # Errors
    /// The key is too long, or the server did not answer.
    pub async fn available_permits(&self, key: impl AsKey) -> Result<u64, Error> {
        // Acquiring zero permits reads the status without a change.
        let peek = Op::Acquire {
            id: LeaseId(u128::MAX),
            weight: 0,
        };
        let reply = self.shared.decide(&key.as_key()?, peek).await?;
        Ok(reply.status.remaining)
    }
}

impl RedisConcurrencyLimiterInner {
    async fn decide(&self, key: &store::StoreKey<'_>, op: Op) -> Result<StoreReply, StoreError> {
        let check = QuotaCheck {
            key: *key,
            limit: &self.identified,
            op,
        };
        let mut replies = [StoreReply::EMPTY];
        let store = self.claim.redis.store();
        let _verdict = store.decide(&[check], &mut replies).await?;
        let [reply] = replies;
        Ok(reply)
    }
}

/// One or several permits of a key, held until they are released or dropped, or until the lease expires.
///
/// `drop` cannot await the server, so a background task makes the release, and errors are not reported. If the release fails,
/// or the process or its runtime ends first, the permit becomes free when the lease expires. [`release`](Self::release)
/// awaits the server and returns errors.
#[must_use = "a permit that is dropped at once limits nothing"]
pub struct Permit {
    shared: Arc<RedisConcurrencyLimiterInner>,
    key: OwnedKey,
    id: LeaseId,
    is_held: bool,
}

impl Permit {
    /// Restarts the lease. Returns false if the lease has expired; then another caller may hold the permit, and it is not
    /// acquired again.
    ///
    /// # Errors
    /// The server did not decide. The lease was restarted or not; it is safe to retry.
    pub async fn renew(&self) -> Result<bool, Error> {
        let reply = self.decide(Op::Renew(self.id)).await?;
        Ok(reply.note != ReplyNote::LeaseNotHeld)
    }

    /// Releases the permit. If the lease has already expired, this does nothing and returns `Ok`; [`renew`](Self::renew) says
    /// whether it has expired.
    ///
    /// # Errors
    /// The server did not decide. Then the background task retries once; if that fails too, the lease expires.
    pub async fn release(mut self) -> Result<(), Error> {
        self.decide(Op::Release(self.id)).await?;
        self.is_held = false;
        Ok(())
    }

    async fn decide(&self, op: Op) -> Result<StoreReply, Error> {
        let parts = self.key.parts();
        Ok(self
            .shared
            .decide(&store::StoreKey::from_parts(&parts)?, op)
            .await?)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.is_held {
            self.shared
                .claim
                .redis
                .releases()
                .enqueue(BackgroundRelease {
                    key: self.key.clone(),
                    ops: vec![(self.shared.identified, Op::Release(self.id))],
                });
        }
    }
}

impl fmt::Debug for ConcurrencyLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ConcurrencyLimiter")
            .field(&self.shared.name)
            .finish()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Permit").field(&self.shared.name).finish()
    }
}
