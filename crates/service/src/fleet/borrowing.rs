//! The task that renews slices of leased limits and reconciles counts of `async` limits, for as long as the process lives.
//!
//! A slice that is nearly used up is renewed at once; everything else is looked at every 20 ms. While a part of the store
//! is away nothing is done. Must not know: how slices and counts are accounted for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;
use tollgate_core::Timestamp;
use tollgate_engine::fleet::Fleet;

use crate::panic_guard::guarded;

/// How often everything is looked at.
const EVERY: Duration = Duration::from_millis(20);

/// Looks after what this node has borrowed of the fleet's limits. Run [`run`](Self::run) once in a process.
#[derive(Debug)]
pub struct Borrowing {
    fleet: Arc<Fleet>,
    panics: AtomicU64,
}

impl Borrowing {
    /// Looks after what this node has borrowed there.
    #[must_use]
    pub fn new(fleet: &Arc<Fleet>) -> Self {
        Self {
            fleet: Arc::clone(fleet),
            panics: AtomicU64::new(0),
        }
    }

    /// How often a round ended by a bug of ours; the next one was made all the same.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Makes round after round. Never ends.
    pub async fn run(self: Arc<Self>, now: impl Fn() -> Timestamp + Send + Sync) {
        loop {
            if guarded(self.round(&now)).await.is_none() {
                self.panics.fetch_add(1, Ordering::Relaxed);
                tracing::error!("looking after slices and counts panicked; it goes on");
            }
            tokio::select! {
                () = sleep(EVERY) => {}
                () = self.fleet.slices_wanted() => {}
            }
        }
    }

    async fn round(&self, now: &(impl Fn() -> Timestamp + Send + Sync)) {
        self.fleet.tend_slices(now).await;
        self.fleet.reconcile(now).await;
    }
}
