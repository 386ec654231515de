//! Connects a node of a fleet to its Redis or Valkey store, which may be down at the start.
//!
//! Must not know: how the store is monitored, what is decided without it.

use std::sync::Arc;

use tollgate_core::Timestamp;
use tollgate_fleet::Fleet;
use tollgate_redis::{RedisOptions, RedisRegister, RedisStore};
use tollgate_store::StoreError;
use tollgate_store::register::{FleetName, Register};

/// The shared store and the fleet that decides with it.
#[derive(Debug)]
pub struct FleetConnection {
    pub(super) store: Arc<RedisStore>,
    fleet: Arc<Fleet>,
}

impl FleetConnection {
    /// Connects to the servers. If they are down, the node starts degraded and recovers when they are up. Call it within a
    /// tokio runtime, which runs the connections.
    ///
    /// The address or a certificate is invalid.
    pub async fn connect(options: RedisOptions, now: Timestamp) -> Result<Self, StoreError> {
        let store = Arc::new(RedisStore::connect(options).await?);
        let fleet = Fleet::new(Arc::<RedisStore>::clone(&store), now);
        let fleet = Arc::new(fleet.with_lease_broker(Arc::<RedisStore>::clone(&store)));
        Ok(Self { store, fleet })
    }

    /// The fleet, for everything in this process that decides.
    #[must_use]
    pub const fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    /// The register of the fleet with this name, over the same connections.
    #[must_use]
    pub fn register(&self, name: &FleetName) -> Arc<dyn Register> {
        Arc::new(RedisRegister::new(&self.store, name))
    }

    /// The store.
    #[must_use]
    pub const fn store(&self) -> &Arc<RedisStore> {
        &self.store
    }
}
