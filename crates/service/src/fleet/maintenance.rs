//! The task that keeps this node's part in the fleet in order, for as long as the process lives.
//!
//! It renews slices of leased limits, reconciles counts of `async` limits, and cancels tickets of requests whose clients left
//! before the verdict. A slice that is nearly used up is renewed at once; everything else is looked at every 20 ms. While a
//! part of the store is away nothing is done there. Must not know: how slices and counts are accounted for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;
use tollgate_fleet::Fleet;
use tollgate_store::Clock;

use crate::panic_guard::catch_panic;
use crate::service::RateLimitService;

/// How often everything is looked at.
const ROUND_INTERVAL: Duration = Duration::from_millis(20);

/// Maintains this node's part in its fleet. Run [`run`](Self::run) once in a process.
#[derive(Debug)]
pub struct FleetMaintenance<C> {
    service: Arc<RateLimitService<C>>,
    panics: AtomicU64,
}

impl<C: Clock> FleetMaintenance<C> {
    /// Maintains the part of this service, if it has joined a fleet.
    #[must_use]
    pub const fn new(service: Arc<RateLimitService<C>>) -> Self {
        Self {
            service,
            panics: AtomicU64::new(0),
        }
    }

    /// How often a round ended by a bug of ours; the next one was made all the same.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Makes round after round. Ends only if the service has joined no fleet.
    pub async fn run(self: Arc<Self>) {
        let Some(fleet) = self.service.fleet() else {
            return;
        };
        loop {
            if catch_panic(self.round(fleet)).await.is_none() {
                self.panics.fetch_add(1, Ordering::Relaxed);
                tracing::error!("fleet maintenance panicked; it goes on");
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
    }
}
