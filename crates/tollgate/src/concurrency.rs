//! The concurrency limiter: permits that are released on drop.
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

/// Limits how many permits each key holds at the same time. Cheap to clone; clones share their state.
///
/// ```
/// use tollgate::ConcurrencyLimiter;
///
/// let limiter = ConcurrencyLimiter::builder(2).build()?;
/// let first = limiter.acquire("tenant-7")?;
/// let second = limiter.acquire("tenant-7")?;
/// assert!(limiter.acquire("tenant-7").is_err());
/// drop(first);
/// assert!(limiter.acquire("tenant-7").is_ok());
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

/// Builds a [`ConcurrencyLimiter`]. Created by [`ConcurrencyLimiter::builder`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct ConcurrencyLimiterBuilder<C = SystemClock> {
    name: LimitName,
    max_permits: u64,
    lease: Option<Duration>,
    keys: usize,
    clock: Box<dyn FnOnce() -> C>,
}

impl ConcurrencyLimiter {
    /// Starts a limiter with this many permits for each key. Zero denies everything.
    pub fn builder(max_permits: u64) -> ConcurrencyLimiterBuilder {
        ConcurrencyLimiterBuilder {
            name: LimitName::literal("concurrency"),
            max_permits,
            lease: None,
            keys: DEFAULT_KEYS,
            clock: Box::new(SystemClock::new),
        }
    }
}

impl<C> ConcurrencyLimiterBuilder<C> {
    /// The name of the limit in denials. Defaults to `concurrency`.
    pub fn name(mut self, name: impl Into<LimitName>) -> Self {
        self.name = name.into();
        self
    }

    /// A permit expires after this time unless it is [renewed](Permit::renew). Without a lease a permit is held until it is
    /// dropped, and a denial has no `retry_after`.
    pub const fn lease(mut self, time: Duration) -> Self {
        self.lease = Some(time);
        self
    }

    /// The number of keys that the table holds. Defaults to [`DEFAULT_KEYS`].
    pub const fn keys(mut self, keys: usize) -> Self {
        self.keys = keys;
        self
    }

    /// Uses another clock than the system clock for leases, so that tests can control time.
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
    /// Keeps permits in Redis or Valkey, so that many processes share one limit: see [`crate::redis::ConcurrencyLimiter`].
    pub fn with_redis(
        self,
        redis: &crate::redis::Redis,
    ) -> crate::redis::ConcurrencyLimiterBuilder {
        let memory_only_setting = (self.keys != DEFAULT_KEYS).then_some("keys");
        crate::redis::ConcurrencyLimiterBuilder::new(
            redis,
            self.name,
            self.max_permits,
            self.lease,
            memory_only_setting,
        )
    }
}

impl<C: Clock> ConcurrencyLimiterBuilder<C> {
    /// Validates all settings and builds the limiter.
    ///
    /// # Errors
    /// More than 65,536 permits, a lease of zero, or a table that cannot be created.
    pub fn build(self) -> Result<ConcurrencyLimiter<C>, InvalidLimiter> {
        let name = self.name;
        let lease = self.lease.map_or(MAX_CAPACITY, Nanos::from);
        let quota = match Concurrency::new(self.max_permits, lease) {
            Ok(quota) => quota,
            Err(cause) => return Err(InvalidLimiter::Quota { name, cause }),
        };
        let table = LimitTable::with_capacity(self.keys, (self.clock)())?;
        let limit = IdentifiedLimit {
            id: table.allocate_limit_id()?,
            limit: quota.into(),
        };
        table.register_limits([&limit]);
        Ok(ConcurrencyLimiter {
            shared: Arc::new(ConcurrencyLimiterInner {
                table,
                name,
                identified: limit,
                has_leases: self.lease.is_some(),
            }),
        })
    }
}

impl<C: Clock> ConcurrencyLimiter<C> {
    /// Acquires one permit. It is released on drop.
    ///
    /// # Errors
    /// All permits are held, or the key is too long.
    pub fn acquire(&self, key: impl AsKey) -> Result<Permit<C>, Error> {
        self.acquire_n(key, 1)
    }

    /// Acquires several permits as one [`Permit`].
    ///
    /// # Errors
    /// Not enough permits are free, the limit is below `permits`, or the key is too long.
    pub fn acquire_n(&self, key: impl AsKey, permits: u64) -> Result<Permit<C>, Error> {
        let key = key.as_key()?;
        let id = LeaseId(self.shared.table.allocate_lease_id());
        let weight = permits;
        let reply = self.shared.decide(&key, Op::Acquire { id, weight })?;
        if reply.outcome.is_admitted() {
            let shared = Arc::clone(&self.shared);
            let key = OwnedKey::from_key(&key);
            return Ok(Permit { shared, key, id });
        }
        let name = self.shared.name.clone();
        let denial = Denial::new(name, permits, reply.outcome, reply.status)
            .by_limit(&self.shared.identified.limit);
        Err(Error::Denied(if self.shared.has_leases {
            denial
        } else {
            denial.with_unknown_retry_time()
        }))
    }

    /// The number of free permits of this key.
    ///
    /// # Errors
    /// The key is too long.
    pub fn available_permits(&self, key: impl AsKey) -> Result<u64, Error> {
        // Acquiring zero permits reads the status without a change.
        let peek = Op::Acquire {
            id: LeaseId(u128::MAX),
            weight: 0,
        };
        Ok(self.shared.decide(&key.as_key()?, peek)?.status.remaining)
    }
}

impl<C: Clock> ConcurrencyLimiterInner<C> {
    fn decide(&self, key: &store::StoreKey<'_>, op: Op) -> Result<StoreReply, Error> {
        let check = QuotaCheck {
            key: *key,
            limit: &self.identified,
            op,
        };
        let (_, [reply]) = MemoryStore::decide_array(&self.table.memory, [check])?;
        Ok(reply)
    }
}

/// One or several permits of a key. Released on drop: at the end of a scope, by a panic, or by a cancelled task.
#[must_use = "a permit that is dropped at once limits nothing"]
pub struct Permit<C: Clock = SystemClock> {
    shared: Arc<ConcurrencyLimiterInner<C>>,
    key: OwnedKey,
    id: LeaseId,
}

impl<C: Clock> Permit<C> {
    /// Restarts the lease. Returns false if the lease has expired; then another caller may hold the permit, and it is not
    /// acquired again. Without a lease it returns true.
    ///
    /// # Errors
    /// None in memory. The signature allows for stores that can be unreachable.
    pub fn renew(&self) -> Result<bool, Error> {
        let reply = self.decide(Op::Renew(self.id))?;
        Ok(reply.note != ReplyNote::LeaseNotHeld)
    }

    fn decide(&self, op: Op) -> Result<StoreReply, Error> {
        self.key.with_key(|key| self.shared.decide(&key, op))
    }
}

impl<C: Clock> Drop for Permit<C> {
    fn drop(&mut self) {
        // A release in memory does not fail, and `drop` cannot return an error.
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
        f.debug_tuple("ConcurrencyLimiter")
            .field(&self.shared.name)
            .finish()
    }
}

impl<C> fmt::Debug for ConcurrencyLimiterBuilder<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyLimiterBuilder")
            .field("name", &self.name)
            .field("max_permits", &self.max_permits)
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
