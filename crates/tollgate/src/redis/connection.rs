//! The server as limiters see it: one connection's worth of store, the numbers in use, and what is left to do.
//!
//! Must not know: limits' quotas, what callers ask for.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate_redis::{RedisOptions, RedisStore, ServerWarning};
use tollgate_store::{LimitId, StoreError};

use super::limit_ids::LimitIdRegistry;
use super::release_queue::ReleaseQueue;
use crate::invalid::InvalidLimiter;
use crate::limit_name::LimitName;

/// A Redis or Valkey server, or several: a cluster, shards, or whom sentinels name ([`Options::address`]). Cheap to clone;
/// clones are the same connections.
///
/// Limiters over clones of one can be asked together with [`check_all`](super::check_all).
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
    /// Connects, as far as the server is there. If it is not, this answers all the same, calls fail with
    /// [`Unreachable`](crate::ErrorKind::Unreachable), and connecting is tried again in the background: a service can start
    /// before its store. Must be called within a tokio runtime, which carries the connections from then on.
    ///
    /// # Errors
    /// The address makes no sense.
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

    /// Asks the servers about themselves and says what is unwise: replicas, eviction, old versions. Meant for the start.
    pub async fn inspect(&self) -> Vec<ServerWarning> {
        self.inner.store.inspect().await
    }

    /// Whether any connection is up.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.inner.store.is_connected()
    }

    /// How many states could not be read so far. They were taken for absent and written anew.
    #[must_use]
    pub fn corrupt_states(&self) -> u64 {
        self.inner.store.corrupt_states()
    }

    /// How many places that were given up by dropping a [`Permit`](super::Permit) or a waiting future could not be given
    /// back by a call so far. Time gives them back.
    #[must_use]
    pub fn failed_releases(&self) -> u64 {
        self.inner.releases.failed()
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
        // Not the address: it may hold a password.
        f.debug_struct("Redis")
            .field("is_connected", &self.is_connected())
            .finish_non_exhaustive()
    }
}

/// Numbers that one limiter has for as long as it lives.
pub(super) struct LimitIdClaim {
    pub(super) redis: Redis,
    pub(super) ids: Vec<LimitId>,
}

impl LimitIdClaim {
    /// Takes these numbers instead, or keeps those it has.
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
