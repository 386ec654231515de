//! Looking whether parts of the store that were away are back, for as long as the process lives.
//!
//! No request is ever used to find that out. Tries are spread at random, at first within 50 ms, then within twice as long
//! each time up to a second, so that the nodes of a fleet do not all come at once to a server that has just started. Each
//! going and coming is logged once. Must not know: what is decided meanwhile.

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

/// Within so long after a part went away it is tried for the first time; as often it is looked whether one has.
const FIRST: Duration = Duration::from_millis(50);
/// After so many tries in vain the servers are asked why.
const LONG: u32 = 5;
/// At least so often it is tried later.
const LAST: Duration = Duration::from_secs(1);

/// Whoever looks after a store. Its [`run`](Self::run) is to be run once in a process.
#[derive(Debug)]
pub struct StoreMonitor {
    store: Arc<RedisStore>,
    fleet: Arc<Fleet>,
    panics: AtomicU64,
}

/// What was seen so far.
struct MonitorState {
    /// Parts that were away when last looked.
    away: Vec<bool>,
    /// Tries in a row that found nothing back.
    tries: u32,
    /// Whether the servers are to be asked about themselves.
    inspects: bool,
    /// What was told of them.
    told: HashSet<String>,
    random: RandomState,
}

impl StoreMonitor {
    /// Looks after this store.
    #[must_use]
    pub fn new(shared: &FleetConnection) -> Self {
        Self {
            store: Arc::clone(shared.store()),
            fleet: Arc::clone(shared.fleet()),
            panics: AtomicU64::new(0),
        }
    }

    /// How often a look ended by a bug of ours; the next one was taken all the same.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Looks again and again. Never ends.
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

    /// Takes one look.
    async fn look(&self, seen: &mut MonitorState, now: &(impl Fn() -> Timestamp + Send + Sync)) {
        // First, so that a part is told to be away before it is told to be back.
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

    /// Asks the servers about themselves, and logs what is unwise about them, once. Of a store that is away it is known that
    /// it cannot be reached; that it is a replica, and not asked for that reason, is not.
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
    /// Logs what has changed since this was last asked.
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
                // Another server may have taken its place.
                self.inspects = true;
                tracing::info!(part, parts, "the shared store is back");
            }
        }
    }

    /// How long to wait until the next look.
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
