//! The server as limiters see it: one connection's worth of store, the numbers in use, and what is left to do.
//!
//! Must not know: limits' quotas, what callers ask for.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate_redis::{Finding, Options, RedisStore};
use tollgate_store::{LimitId, StoreError};

use super::errands::Errands;
use super::number::Numbers;
use crate::invalid::InvalidLimiter;
use crate::name::Name;

/// A Redis or Valkey server, or several: a cluster, shards, or whom sentinels name ([`Options::address`]). Cheap to clone;
/// clones are the same connections.
///
/// Limiters over clones of one can be asked together with [`check_all`](super::check_all).
#[derive(Clone)]
pub struct Redis {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<RedisStore>,
    errands: Errands,
    numbers: Mutex<Numbers>,
}

impl Redis {
    /// Connects, as far as the server is there. If it is not, this answers all the same, calls fail with
    /// [`Unreachable`](crate::ErrorKind::Unreachable), and connecting is tried again in the background: a service can start
    /// before its store. Must be called within a tokio runtime, which carries the connections from then on.
    ///
    /// # Errors
    /// The address makes no sense.
    pub async fn connect(options: Options) -> Result<Self, StoreError> {
        let store = Arc::new(RedisStore::connect(options).await?);
        Ok(Self {
            inner: Arc::new(Inner {
                errands: Errands::start(Arc::clone(&store)),
                store,
                numbers: Mutex::default(),
            }),
        })
    }

    /// Asks the servers about themselves and says what is unwise: replicas, eviction, old versions. Meant for the start.
    pub async fn inspect(&self) -> Vec<Finding> {
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
    pub fn left_to_time(&self) -> u64 {
        self.inner.errands.undone()
    }

    pub(super) fn store(&self) -> &RedisStore {
        &self.inner.store
    }

    pub(super) fn errands(&self) -> &Errands {
        &self.inner.errands
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(super) fn claim(&self, wanted: &[(Name, LimitId)]) -> Result<Claim, InvalidLimiter> {
        self.numbers().claim(wanted)?;
        Ok(Claim {
            redis: self.clone(),
            ids: wanted.iter().map(|(_, id)| *id).collect(),
        })
    }

    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        let numbers = self.inner.numbers.lock();
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
pub(super) struct Claim {
    pub(super) redis: Redis,
    pub(super) ids: Vec<LimitId>,
}

impl Claim {
    /// Takes these numbers instead, or keeps those it has.
    pub(super) fn change(&mut self, wanted: &[(Name, LimitId)]) -> Result<(), InvalidLimiter> {
        let mut numbers = self.redis.numbers();
        numbers.exchange(&self.ids, wanted)?;
        self.ids = wanted.iter().map(|(_, id)| *id).collect();
        Ok(())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut numbers = self.redis.numbers();
        numbers.give_back(&self.ids);
    }
}
