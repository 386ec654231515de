//! Monitors the shared store: probes parts that are unavailable until they answer again.
//!
//! Requests are never used as probes. Probes have random delays: at first up to 50 ms, then doubling to one second, so that the
//! nodes of a fleet do not all reconnect at once. Each outage and each recovery is logged once. Must not know: what is decided
//! meanwhile.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;
use tollgate_core::Timestamp;
use tollgate_fleet::Fleet;
use tollgate_redis::{RedisStore, ServerWarningKind};
use tollgate_service::catch_panic;

use super::connect::FleetConnection;

/// The longest delay before the first probe, and the interval of checks while all parts are available.
const FIRST: Duration = Duration::from_millis(50);
/// After this many failed probes the servers are inspected for the cause.
const LONG: u32 = 5;
/// The longest delay between probes.
const LAST: Duration = Duration::from_secs(1);

/// Monitors a shared store. [`run`](Self::run) it once per process.
#[derive(Debug)]
pub struct StoreMonitor {
    store: Arc<RedisStore>,
    fleet: Arc<Fleet>,
    panics: AtomicU64,
}

/// The state of the monitor.
struct MonitorState {
    /// Which parts were unavailable at the last check.
    away: Vec<bool>,
    /// Failed probes in a row.
    tries: u32,
    /// Whether to inspect the servers.
    inspects: bool,
    /// Findings that were logged.
    told: HashSet<String>,
    random: RandomState,
}

impl StoreMonitor {
    /// A monitor of this store.
    #[must_use]
    pub fn new(shared: &FleetConnection) -> Self {
        Self {
            store: Arc::clone(shared.store()),
            fleet: Arc::clone(shared.fleet()),
            panics: AtomicU64::new(0),
        }
    }

    /// How many checks panicked. The monitor continues after a panic.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Checks the store forever.
    pub async fn run(self: Arc<Self>, now: impl Fn() -> Timestamp + Send + Sync) {
        let mut seen = MonitorState {
            away: vec![false; self.fleet.breakers().len()],
            tries: 0,
            inspects: true,
            told: HashSet::new(),
            random: RandomState::new(),
        };
        loop {
            if catch_panic(self.look(&mut seen, &now)).await.is_none() {
                self.panics.fetch_add(1, Ordering::Relaxed);
                tracing::error!("looking after the shared store panicked; it goes on");
            }
            sleep(seen.pause()).await;
        }
    }

    /// Runs one check.
    async fn look(&self, seen: &mut MonitorState, now: &(impl Fn() -> Timestamp + Send + Sync)) {
        // Before the probe, so that an outage is logged before its recovery.
        seen.tell(&self.fleet);
        let tended = self.fleet.probe_unavailable(now).await;
        seen.tell(&self.fleet);
        seen.tries = match (tended.unavailable, tended.recovered) {
            (0, _) | (_, 1..) => 0,
            _ => seen.tries.saturating_add(1),
        };
        if seen.inspects && tended.unavailable == 0 && self.store.is_connected() {
            seen.inspects = false;
            self.inspect(seen, false).await;
        } else if seen.tries == LONG {
            self.inspect(seen, true).await;
        }
    }

    /// Inspects the servers and logs each finding once. While the store is unavailable, "unreachable" is no news; but that a
    /// server is a replica may be the cause.
    async fn inspect(&self, seen: &mut MonitorState, is_away: bool) {
        for finding in self.store.inspect().await {
            let is_known = is_away && finding.kind == ServerWarningKind::Unreachable;
            if !is_known && seen.told.insert(finding.to_string()) {
                tracing::warn!(server = finding.server, "{}", finding.message);
            }
        }
    }
}

impl MonitorState {
    /// Logs outages and recoveries since the last call.
    fn tell(&mut self, fleet: &Fleet) {
        let parts = fleet.breakers().len();
        for (part, (breaker, was_away)) in fleet.breakers().iter().zip(&mut self.away).enumerate() {
            let is_away = !breaker.is_closed();
            if is_away == std::mem::replace(was_away, is_away) {
                continue;
            }
            if is_away {
                tracing::warn!(
                    part,
                    parts,
                    "the shared store is away: this node decides by itself"
                );
            } else {
                // Another server may have taken over.
                self.inspects = true;
                tracing::info!(part, parts, "the shared store is back");
            }
        }
    }

    /// The delay until the next check.
    fn pause(&self) -> Duration {
        if self.tries == 0 {
            return FIRST;
        }
        let most = FIRST.saturating_mul(1 << self.tries.min(8)).min(LAST);
        let drawn = self.random.hash_one(self.tries) % 1_000;
        let share = u32::try_from(drawn).unwrap_or(0).saturating_add(1);
        most.saturating_mul(share)
            .checked_div(1_000)
            .unwrap_or(LAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_are_spread_over_a_span_that_grows_to_a_second() {
        let mut seen = MonitorState {
            away: Vec::new(),
            tries: 0,
            inspects: false,
            told: HashSet::new(),
            random: RandomState::new(),
        };
        assert_eq!(seen.pause(), FIRST);
        let mut pauses = HashSet::new();
        for tries in 1..200 {
            seen.tries = tries;
            let most = Duration::from_millis(50 << tries.min(5)).min(LAST);
            assert!(seen.pause() <= most && !seen.pause().is_zero(), "{tries}");
            pauses.insert(seen.pause());
        }
        assert!(pauses.len() > 100, "{} of 199 are different", pauses.len());
    }
}
