//! So many at once: permits that are given back when they are dropped.
//!
//! Must not know: rates, how state is kept, what the work is.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::concurrency::LeaseId;
use tollgate_core::{Concurrency, MAX_CAPACITY, Nanos};
use tollgate_store as store;
use tollgate_store::{
    Clock, IdentifiedLimit, MemoryStore, Op, QuotaCheck, ReplyNote, StoreReply, SystemClock,
};

use crate::error::{Denial, Error};
use crate::invalid::InvalidLimiter;
use crate::key::{AsKey, OwnedKey};
use crate::limit_name::LimitName;
use crate::limit_table::{DEFAULT_KEYS, LimitTable};

/// Lets so many in at once, for each key. Cheap to clone; clones are the same gate.
///
/// ```
/// use tollgate::ConcurrencyLimiter;
///
/// let gate = ConcurrencyLimiter::of(2).build()?;
/// let first = gate.enter("tenant-7")?;
/// let second = gate.enter("tenant-7")?;
/// assert!(gate.enter("tenant-7").is_err());
/// drop(first);
/// assert!(gate.enter("tenant-7").is_ok());
/// # drop(second);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ConcurrencyLimiter<C = SystemClock> {
    shared: Arc<ConcurrencyLimiterInner<C>>,
}

struct ConcurrencyLimiterInner<C> {
    table: LimitTable<C>,
    name: LimitName,
    identified: IdentifiedLimit,
    has_leases: bool,
}

/// A gate before it is built.
#[must_use = "a builder does nothing until `build` is called"]
pub struct ConcurrencyLimiterBuilder<C = SystemClock> {
    name: LimitName,
    max_permits: u64,
    lease: Option<Duration>,
    keys: usize,
    clock: Box<dyn FnOnce() -> C>,
}

impl ConcurrencyLimiter {
    /// Lets `most` in at once for each key; none at all if it is zero.
    pub fn builder(most: u64) -> ConcurrencyLimiterBuilder {
        ConcurrencyLimiterBuilder {
            name: LimitName::literal("concurrency"),
            max_permits: most,
            lease: None,
            keys: DEFAULT_KEYS,
            clock: Box::new(SystemClock::new),
        }
    }
}

impl<C> ConcurrencyLimiterBuilder<C> {
    /// What the gate is called in denials: `concurrency` unless said otherwise.
    pub fn name(mut self, name: impl Into<LimitName>) -> Self {
        self.name = name.into();
        self
    }

    /// Ends a permit by itself after this long unless it is [renewed](Permit::renew). Without leases a permit is held
    /// until it is dropped, however long that takes, and a denial cannot say when to come back.
    pub const fn lease(mut self, time: Duration) -> Self {
        self.lease = Some(time);
        self
    }

    /// How many keys are in use at the same time: [`DEFAULT_KEYS`] unless said otherwise.
    pub const fn keys(mut self, keys: usize) -> Self {
        self.keys = keys;
        self
    }

    /// Counts leases by another clock than the machine's, so that tests can move time.
    pub fn clock<D: Clock + 'static>(self, clock: D) -> ConcurrencyLimiterBuilder<D> {
        ConcurrencyLimiterBuilder {
            name: self.name,
            max_permits: self.max_permits,
            lease: self.lease,
            keys: self.keys,
            clock: Box::new(move || clock),
        }
    }
}

#[cfg(feature = "redis")]
impl ConcurrencyLimiterBuilder {
    /// Counts in Redis or Valkey, so that many processes have one gate: see [`crate::redis::Gate`].
    pub fn with_redis(
        self,
        redis: &crate::redis::Redis,
    ) -> crate::redis::ConcurrencyLimiterBuilder {
        let misplaced = (self.keys != DEFAULT_KEYS).then_some("keys");
        crate::redis::ConcurrencyLimiterBuilder::new(
            redis,
            self.name,
            self.max_permits,
            self.lease,
            misplaced,
        )
    }
}

impl<C: Clock> ConcurrencyLimiterBuilder<C> {
    /// Checks everything and makes the gate.
    ///
    /// # Errors
    /// More than 65,536 at once, a lease of no time, or a table that cannot be made.
    pub fn build(self) -> Result<ConcurrencyLimiter<C>, InvalidLimiter> {
        let name = self.name;
        let lease = self.lease.map_or(MAX_CAPACITY, Nanos::from);
        let quota = match Concurrency::new(self.max_permits, lease) {
            Ok(quota) => quota,
            Err(cause) => return Err(InvalidLimiter::Quota { name, cause }),
        };
        let table = LimitTable::with_capacity(self.keys, (self.clock)())?;
        let ruled = IdentifiedLimit {
            id: table.allocate_limit_id()?,
            limit: quota.into(),
        };
        table.register_limits([&ruled]);
        Ok(ConcurrencyLimiter {
            shared: Arc::new(ConcurrencyLimiterInner {
                table,
                name,
                identified: ruled,
                has_leases: self.lease.is_some(),
            }),
        })
    }
}

impl<C: Clock> ConcurrencyLimiter<C> {
    /// Takes one place, and holds it until the permit is dropped.
    ///
    /// # Errors
    /// All places are taken, or the key is too long.
    pub fn acquire(&self, key: impl AsKey) -> Result<Permit<C>, Error> {
        self.acquire_n(key, 1)
    }

    /// Takes `places` places for one permit.
    ///
    /// # Errors
    /// There are not so many free, or not so many at all, or the key is too long.
    pub fn acquire_n(&self, key: impl AsKey, places: u64) -> Result<Permit<C>, Error> {
        let key = key.as_key()?;
        let id = LeaseId(self.shared.table.allocate_lease_id());
        let weight = places;
        let answer = self.shared.decide(&key, Op::Acquire { id, weight })?;
        if answer.outcome.is_admitted() {
            let shared = Arc::clone(&self.shared);
            let key = OwnedKey::from_key(&key);
            return Ok(Permit { shared, key, id });
        }
        let name = self.shared.name.clone();
        let denied = Denial::new(name, places, answer.outcome, answer.status);
        Err(Error::Denied(if self.shared.has_leases {
            denied
        } else {
            denied.with_unknown_retry_time()
        }))
    }

    /// How many places are free for this key.
    ///
    /// # Errors
    /// The key is too long.
    pub fn available_permits(&self, key: impl AsKey) -> Result<u64, Error> {
        // Holding no place at all is a look.
        let look = Op::Acquire {
            id: LeaseId(u128::MAX),
            weight: 0,
        };
        Ok(self.shared.decide(&key.as_key()?, look)?.status.remaining)
    }
}

impl<C: Clock> ConcurrencyLimiterInner<C> {
    fn decide(&self, key: &store::StoreKey<'_>, op: Op) -> Result<StoreReply, Error> {
        let check = QuotaCheck {
            key: *key,
            limit: &self.identified,
            op,
        };
        let (_, [answer]) = MemoryStore::decide_array(&self.table.memory, [check])?;
        Ok(answer)
    }
}

/// A place, or several, held until it is dropped: by the end of a scope, a panic, or a cancelled task.
#[must_use = "a permit that is dropped at once limits nothing"]
pub struct Permit<C: Clock = SystemClock> {
    shared: Arc<ConcurrencyLimiterInner<C>>,
    key: OwnedKey,
    id: LeaseId,
}

impl<C: Clock> Permit<C> {
    /// Starts the lease anew. Answers false if it has ended and somebody else may be inside; it is not taken again.
    /// Without leases there is nothing to renew, and the answer is true.
    ///
    /// # Errors
    /// Never in memory. The type leaves room for stores that can be out of reach.
    pub fn renew(&self) -> Result<bool, Error> {
        let answer = self.decide(Op::Renew(self.id))?;
        Ok(answer.note != ReplyNote::LeaseNotHeld)
    }

    fn decide(&self, op: Op) -> Result<StoreReply, Error> {
        self.key.with_key(|key| self.shared.decide(&key, op))
    }
}

impl<C: Clock> Drop for Permit<C> {
    fn drop(&mut self) {
        // In memory a release cannot fail; nobody is there to be told if it did.
        let _released = self.decide(Op::Release(self.id)).is_ok();
    }
}

impl<C> Clone for ConcurrencyLimiter<C> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<C> fmt::Debug for ConcurrencyLimiter<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gate").field(&self.shared.name).finish()
    }
}

impl<C> fmt::Debug for ConcurrencyLimiterBuilder<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GateBuilder")
            .field("name", &self.name)
            .field("most", &self.max_permits)
            .field("lease", &self.lease)
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}

impl<C: Clock> fmt::Debug for Permit<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Permit").field(&self.shared.name).finish()
    }
}
