//! The background task of a fleet node.
//!
//! It renews slices of leased limits and leases of permits, reconciles counts of `async` limits, and settles tickets that nobody
//! waits for. It renews a nearly exhausted slice at once and does everything else every 20 ms. It skips
//! parts of the store that are unavailable. Must not know: how slices and counts are accounted for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;
use tollgate_fleet::Fleet;
use tollgate_store::Clock;

use crate::panic_guard::catch_panic;
use crate::service::RateLimitService;

/// The time between two rounds.
const ROUND_INTERVAL: Duration = Duration::from_millis(20);

/// Runs the background work of a fleet node. Call [`run`](Self::run) once in a process.
#[derive(Debug)]
pub struct FleetMaintenance<C> {
    service: Arc<RateLimitService<C>>,
    panics: AtomicU64,
}

impl<C: Clock> FleetMaintenance<C> {
    /// The background task of this service, which does nothing unless the service has joined a fleet.
    #[must_use]
    pub const fn new(service: Arc<RateLimitService<C>>) -> Self {
        Self {
            service,
            panics: AtomicU64::new(0),
        }
    }

    /// The number of rounds that panicked. The task continued after each of them.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Runs rounds for ever. Returns only if the service has joined no fleet.
    pub async fn run(self: Arc<Self>) {
        let Some(fleet) = self.service.fleet() else {
            return;
        };
        loop {
            if catch_panic(self.round(fleet)).await.is_none() {
                self.panics.fetch_add(1, Ordering::Relaxed);
                tracing::error!("fleet maintenance panicked, continuing with the next round");
            }
            tokio::select! {
                () = sleep(ROUND_INTERVAL) => {}
                () = fleet.wait_for_lease_demand() => {}
            }
        }
    }

    async fn round(&self, fleet: &Fleet) {
        let now = || self.service.now();
        fleet.maintain_leases(now).await;
        fleet.reconcile(now).await;
        if let Some(engine) = self.service.fleet_engine() {
            engine.cancel_abandoned().await;
        }
        self.service.cancel_fleet_waits().await;
        self.service.renew_fleet_permits().await;
    }
}
