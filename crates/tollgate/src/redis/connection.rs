//! The connection that limiters share: the store, the limit ids in use, and the queue of background releases.
//!
//! Must not know: quotas, which operations callers use.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate_redis::{RedisOptions, RedisStore, ServerWarning};
use tollgate_store::{LimitId, StoreError};

use super::limit_ids::LimitIdRegistry;
use super::release_queue::ReleaseQueue;
use crate::invalid::InvalidLimiter;
use crate::limit_name::LimitName;

/// A connection to Redis or Valkey: one server, a cluster, shards, or the primary that Sentinel names
/// ([`RedisOptions::address`]). Cheap to clone; clones share the connections.
///
/// Limiters over clones of one connection can be passed to [`check_all`](super::check_all) together.
#[derive(Clone)]
pub struct Redis {
    inner: Arc<RedisInner>,
}

struct RedisInner {
    store: Arc<RedisStore>,
    releases: ReleaseQueue,
    limit_ids: Mutex<LimitIdRegistry>,
}

impl Redis {
    /// Connects. If the server is unreachable, this returns `Ok` nevertheless and reconnects in the background, so a service
    /// can start before its Redis. Until then calls fail with [`Unreachable`](crate::StoreErrorKind::Unreachable). Must be
    /// called within a tokio runtime, which then drives the connections.
    ///
    /// # Errors
    /// The address is not valid.
    pub async fn connect(options: RedisOptions) -> Result<Self, StoreError> {
        let store = Arc::new(RedisStore::connect(options).await?);
        Ok(Self {
            inner: Arc::new(RedisInner {
                releases: ReleaseQueue::start(Arc::clone(&store)),
                store,
                limit_ids: Mutex::default(),
            }),
        })
    }

    /// Checks the configuration of the servers and returns warnings: replicas, eviction, old versions. Call it at startup.
    pub async fn inspect(&self) -> Vec<ServerWarning> {
        self.inner.store.inspect().await
    }

    /// Whether at least one connection is established.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.inner.store.is_connected()
    }

    /// How many states could not be decoded so far. They were treated as absent and overwritten.
    #[must_use]
    pub fn corrupt_states(&self) -> u64 {
        self.inner.store.corrupt_states()
    }

    /// How many background releases failed so far, of dropped [`Permit`](super::Permit)s and dropped waits. Such permits and
    /// slots become free when they expire.
    #[must_use]
    pub fn failed_releases(&self) -> u64 {
        self.inner.releases.failed()
    }

    /// The store through which processes share what an API reports about its limits: for
    /// [`SharedPacer::with_store`](crate::client::SharedPacer::with_store).
    #[cfg(feature = "client")]
    #[must_use]
    pub fn shared_quotas(&self) -> Arc<dyn tollgate_store::SharedQuotaStore> {
        Arc::<RedisStore>::clone(&self.inner.store)
    }

    pub(super) fn store(&self) -> &RedisStore {
        &self.inner.store
    }

    pub(super) fn releases(&self) -> &ReleaseQueue {
        &self.inner.releases
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(super) fn claim(
        &self,
        wanted: &[(LimitName, LimitId)],
    ) -> Result<LimitIdClaim, InvalidLimiter> {
        self.limit_ids().claim(wanted)?;
        Ok(LimitIdClaim {
            redis: self.clone(),
            ids: wanted.iter().map(|(_, id)| *id).collect(),
        })
    }

    fn limit_ids(&self) -> MutexGuard<'_, LimitIdRegistry> {
        let numbers = self.inner.limit_ids.lock();
        numbers.unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address is left out because it may contain a password.
        f.debug_struct("Redis")
            .field("is_connected", &self.is_connected())
            .finish_non_exhaustive()
    }
}

/// The limit ids of one limiter, claimed until it is dropped.
pub(super) struct LimitIdClaim {
    pub(super) redis: Redis,
    pub(super) ids: Vec<LimitId>,
}

impl LimitIdClaim {
    /// Claims these ids instead, or keeps the current ones.
    pub(super) fn replace(
        &mut self,
        wanted: &[(LimitName, LimitId)],
    ) -> Result<(), InvalidLimiter> {
        let mut numbers = self.redis.limit_ids();
        numbers.replace(&self.ids, wanted)?;
        self.ids = wanted.iter().map(|(_, id)| *id).collect();
        Ok(())
    }
}

impl Drop for LimitIdClaim {
    fn drop(&mut self) {
        let mut numbers = self.redis.limit_ids();
        numbers.release(&self.ids);
    }
}
