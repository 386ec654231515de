//! The beginning of a fleet's node: a store in Redis or Valkey that may not be there yet.
//!
//! Must not know: how it is tended, what is decided without it.

use std::sync::Arc;

use tollgate_core::Timestamp;
use tollgate_fleet::Fleet;
use tollgate_redis::{RedisOptions, RedisRegister, RedisStore};
use tollgate_store::StoreError;
use tollgate_store::register::{FleetName, Register};

/// A store that many share, and this node's view of it.
#[derive(Debug)]
pub struct FleetConnection {
    pub(super) store: Arc<RedisStore>,
    fleet: Arc<Fleet>,
}

impl FleetConnection {
    /// Connects, as far as the servers are there: without them everything works, degraded, and heals by itself once they are.
    /// Must be called within a tokio runtime, whose tasks keep the connections.
    ///
    /// # Errors
    /// The address or a certificate makes no sense.
    pub async fn connect(options: RedisOptions, now: Timestamp) -> Result<Self, StoreError> {
        let store = Arc::new(RedisStore::connect(options).await?);
        let fleet = Fleet::new(Arc::<RedisStore>::clone(&store), now);
        let fleet = Arc::new(fleet.with_lease_broker(Arc::<RedisStore>::clone(&store)));
        Ok(Self { store, fleet })
    }

    /// The fleet, for all who decide in this process.
    #[must_use]
    pub const fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    /// The register of the fleet of this name, over the same connections.
    #[must_use]
    pub fn register(&self, name: &FleetName) -> Arc<dyn Register> {
        Arc::new(RedisRegister::new(&self.store, name))
    }

    /// The store itself.
    #[must_use]
    pub const fn store(&self) -> &Arc<RedisStore> {
        &self.store
    }
}
