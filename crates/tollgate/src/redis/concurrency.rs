//! So many at once, over many processes: permits that end by themselves when their holder is gone.
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

/// Lets so many in at once, for each key, in all processes together. Cheap to clone; clones are the same gate.
///
/// ```no_run
/// use std::time::Duration;
/// use tollgate::ConcurrencyLimiter;
///
/// # async fn example(redis: &tollgate::redis::Redis) -> Result<(), Box<dyn std::error::Error>> {
/// let gate = ConcurrencyLimiter::of(2).lease(Duration::from_secs(30)).over(redis).build()?;
/// let permit = gate.enter("tenant-7").await?;
/// // … work; if it takes longer than the lease, renew in between …
/// permit.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// Leases are required here: without them a process that ends without a word would keep its places for ever.
#[derive(Clone)]
pub struct ConcurrencyLimiter {
    shared: Arc<RedisConcurrencyLimiterInner>,
}

struct RedisConcurrencyLimiterInner {
    claim: LimitIdClaim,
    name: LimitName,
    identified: IdentifiedLimit,
}

/// A gate over Redis before it is built. Made by [`over`](crate::GateBuilder::over).
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
        most: u64,
        lease: Option<Duration>,
        misplaced: Option<&'static str>,
    ) -> Self {
        Self {
            redis: redis.clone(),
            name,
            max_permits: most,
            lease,
            memory_only_setting: misplaced,
            id: None,
        }
    }

    /// Chooses the number by which the server knows this gate, instead of the one that follows from its name. Gates and
    /// limits have one set of numbers; see [which state a limit finds](super#which-state-a-limit-finds).
    pub const fn id(mut self, id: u16) -> Self {
        self.id = Some(id);
        self
    }

    /// Checks everything and makes the gate. Asks the server nothing.
    ///
    /// # Errors
    /// More than 65,536 at once, no lease or one of no time, a choice that only a table in memory has, or a number that
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
    /// Takes one place, and holds it until the permit is released or dropped, or its lease ends.
    ///
    /// # Errors
    /// All places are taken, the key is too long, or the server did not decide.
    pub async fn acquire(&self, key: impl AsKey) -> Result<Permit, Error> {
        self.acquire_n(key, 1).await
    }

    /// Takes `places` places for one permit.
    ///
    /// # Errors
    /// There are not so many free, or not so many at all, the key is too long, or the server did not decide. A place that
    /// may have been taken all the same is given back in the background.
    pub async fn acquire_n(&self, key: impl AsKey, places: u64) -> Result<Permit, Error> {
        let key = key.as_key()?;
        let id = LeaseId(random::random_id());
        // Made before the call: if the answer is lost, or nobody waits for it, dropping this gives the place back. The
        // release takes the connection of the acquisition and so comes after it; should that one break in between and the
        // order turn, the lease ends by itself.
        let mut permit = Permit {
            shared: Arc::clone(&self.shared),
            key: OwnedKey::from_key(&key),
            id,
            is_held: true,
        };
        let weight = places;
        let answer = self.shared.decide(&key, Op::Acquire { id, weight }).await;
        let answer = answer.inspect_err(|error| permit.is_held = error.may_have_charged())?;
        if answer.outcome.is_admitted() {
            return Ok(permit);
        }
        permit.is_held = false;
        let name = self.shared.name.clone();
        Err(Denial::new(name, places, answer.outcome, answer.status).into())
    }

    /// How many places are free for this key.
    ///
    /// # Errors
    /// The key is too long, or the server did not answer.
    pub async fn available_permits(&self, key: impl AsKey) -> Result<u64, Error> {
        // Holding no place at all is a look.
        let look = Op::Acquire {
            id: LeaseId(u128::MAX),
            weight: 0,
        };
        let answer = self.shared.decide(&key.as_key()?, look).await?;
        Ok(answer.status.remaining)
    }
}

impl RedisConcurrencyLimiterInner {
    async fn decide(&self, key: &store::StoreKey<'_>, op: Op) -> Result<StoreReply, StoreError> {
        let check = QuotaCheck {
            key: *key,
            limit: &self.identified,
            op,
        };
        let mut answers = [StoreReply::EMPTY];
        let store = self.claim.redis.store();
        let _verdict = store.decide(&[check], &mut answers).await?;
        let [answer] = answers;
        Ok(answer)
    }
}

/// A place, or several, held until it is released or dropped, or its lease ends.
///
/// Dropping it, by the end of a scope, a panic or a cancelled task, cannot wait for the server: the release is left to a task
/// in the background, at once but unseen. If that fails, or the process or its runtime ends first, the place is free when
/// the lease ends. [`release`](Self::release) waits, and tells.
#[must_use = "a permit that is dropped at once limits nothing"]
pub struct Permit {
    shared: Arc<RedisConcurrencyLimiterInner>,
    key: OwnedKey,
    id: LeaseId,
    is_held: bool,
}

impl Permit {
    /// Starts the lease anew. Answers false if it has ended and somebody else may be inside; it is not taken again.
    ///
    /// # Errors
    /// The server did not decide. The lease goes on as it was, or anew; it is safe to try again.
    pub async fn renew(&self) -> Result<bool, Error> {
        let answer = self.decide(Op::Renew(self.id)).await?;
        Ok(answer.note != ReplyNote::LeaseNotHeld)
    }

    /// Gives the place back. If the lease has ended before, there is nothing to give back, and that is well too; whether
    /// it has is what [`renew`](Self::renew) tells.
    ///
    /// # Errors
    /// The server did not decide. Then it is tried once more in the background, and otherwise the lease ends by itself.
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
        f.debug_tuple("Gate").field(&self.shared.name).finish()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Permit").field(&self.shared.name).finish()
    }
}
