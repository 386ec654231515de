//! The task that talks to the register: it beats, tells and hears, and goes on whatever happens.
//!
//! While the register answers there is a beat every half second, and at once when an operator has said something here; while
//! it does not, attempts are spread at random over up to two seconds, so that a fleet that lost its register together does
//! not come back together. Must not know: how entries are put in force, what is told of the fleet.

use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tollgate_core::Nanos;
use tollgate_store::register::{Heartbeat, NodeLoad, Register};
use tollgate_store::{StoreError, StoreErrorKind};

use super::local_node::{LocalNode, NodeTotals};
use super::mismatch::{AlarmChange, Mismatch};
use super::register_sync::RegisterSync;
use super::view::FleetChanges;
use super::{FleetSize, Membership};

/// So many nodes beat at full pace.
const MAX_NODES_AT_FULL_RATE: u32 = 64;
/// How much more rarely nodes beat in the largest fleets: what operators say must still get round within two seconds.
const MAX_SLOWDOWN: u32 = 3;
/// For how many beats a node is believed to be there without being heard of.
const TTL_BEATS: u32 = 6;
/// The longest that one round may take, whatever the register does.
const ROUND_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest pause between two attempts while the register does not answer, and the shortest.
const MAX_BACKOFF: Duration = Duration::from_secs(2);
const MIN_BACKOFF: Duration = Duration::from_millis(50);
/// The longest that saying goodbye may take.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(500);

impl Membership {
    /// Takes part in the fleet until `shutdown` completes, and then says goodbye. A bug that ends the task is counted, and it
    /// is started again.
    pub async fn run(
        self: Arc<Self>,
        register: Arc<dyn Register>,
        node: Arc<dyn LocalNode>,
        shutdown: impl Future<Output = ()> + Send,
    ) {
        let mut shutdown = pin!(shutdown);
        let nudge = Arc::clone(&self.wake);
        node.start_sharing(Arc::new(move || nudge.notify_one()));
        self.state().record_start(Instant::now());
        loop {
            let mut only = JoinSet::new();
            let this = Arc::clone(&self);
            let (talking, listening) = (Arc::clone(&register), Arc::clone(&node));
            only.spawn(async move { this.run_rounds(&*talking, &*listening).await });
            tokio::select! {
                () = &mut shutdown => break,
                _ended = only.join_next() => {
                    // It never ends by itself.
                    self.panics.fetch_add(1, Ordering::Relaxed);
                    tracing::error!("the task that talks to the fleet's register died of a bug and is started again");
                    self.is_synced.send_replace(true);
                }
            }
            tokio::time::sleep(random_below(MAX_BACKOFF).max(MIN_BACKOFF)).await;
        }
        // Whoever does not hear it finds out by itself.
        let _left = tokio::time::timeout(LEAVE_TIMEOUT, register.leave(self.id)).await;
    }

    async fn run_rounds(&self, register: &dyn Register, node: &dyn LocalNode) {
        let mut exchange = RegisterSync::new(self.id, &self.put_counter);
        let mut rates = LoadMeter::default();
        let mut failed = 0_u32;
        loop {
            let load = rates.load(node.totals(), Instant::now());
            let beat = self.beat(node, load);
            let round = self.round(register, node, &mut exchange, &beat);
            let ended = match tokio::time::timeout(ROUND_TIMEOUT, round).await {
                Ok(ended) => ended,
                Err(_elapsed) => {
                    let detail = "the round has taken too long";
                    Err(StoreError::new(StoreErrorKind::TimedOut, detail))
                }
            };
            let unheard = node.pending_counts();
            let (heard, foreign) = (exchange.applied_mark(), exchange.unsupported_entries);
            self.state().record_progress(heard, foreign, unheard);
            let pause = match &ended {
                Ok(()) => {
                    failed = 0;
                    jitter_around(self.heartbeat_interval())
                }
                Err(error) => {
                    self.record_failure(error);
                    failed = failed.saturating_add(1);
                    self.back_off(failed)
                }
            };
            if let FleetSize::Observed(nodes) | FleetSize::Configured(nodes) = self.fleet_size() {
                node.set_fleet_size(nodes);
            }
            self.is_synced.send_replace(true);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.wake.notified(), if failed == 0 => {}
            }
        }
    }

    /// Tells, beats and hears.
    async fn round(
        &self,
        register: &dyn Register,
        node: &dyn LocalNode,
        exchange: &mut RegisterSync<'_>,
        beat: &Heartbeat,
    ) -> Result<(), StoreError> {
        // That something cannot be told is no reason not to beat.
        let told = exchange.push_changes(register, node).await;
        let roll = register.heartbeat(beat, self.heartbeat_ttl()).await?;
        let mark = roll.cursor;
        let news = self
            .state()
            .record_roll(roll, beat, &self.settings, Instant::now());
        self.log_changes(&news);
        self.record_push_result(told);
        exchange.pull_changes(register, node, mark).await
    }

    /// One line when what operators say cannot be told although the register is there, and one when it can again.
    fn record_push_result(&self, told: Result<(), StoreError>) {
        let untold = told.err().map(|error| error.to_string());
        let before = self.state().set_push_error(untold.clone());
        match (before, untold) {
            (None, Some(error)) => {
                tracing::warn!(
                    error,
                    "what operators said here holds on this node only, for now"
                );
            }
            (Some(_), None) => tracing::info!("all that operators said here was told"),
            _ => {}
        }
    }

    fn beat(&self, node: &dyn LocalNode, load: NodeLoad) -> Heartbeat {
        Heartbeat {
            node: self.id,
            secret_fingerprint: self.fingerprint,
            policy_fingerprint: node.policy(),
            generation: node.generation(),
            version: Heartbeat::sanitize_version(env!("CARGO_PKG_VERSION")),
            load,
        }
    }

    /// How long it is from beat to beat.
    fn heartbeat_interval(&self) -> Duration {
        let nodes = self.state().nodes().map_or(1, NonZeroU32::get);
        let rarer = nodes
            .div_ceil(MAX_NODES_AT_FULL_RATE)
            .clamp(1, MAX_SLOWDOWN);
        self.settings.heartbeat_interval.saturating_mul(rarer)
    }

    fn heartbeat_ttl(&self) -> Nanos {
        let life = self.heartbeat_interval().saturating_mul(TTL_BEATS);
        Nanos::from_nanos(u64::try_from(life.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Full jitter, so that nobody comes back together; and never at once.
    fn back_off(&self, failed: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(failed.min(8));
        let most = self.settings.heartbeat_interval.saturating_mul(doubled);
        random_below(most.min(MAX_BACKOFF)).max(MIN_BACKOFF)
    }

    fn record_failure(&self, error: &StoreError) {
        let is_new = self.state().record_failure(error.to_string());
        if !is_new {
            return;
        }
        tracing::warn!(%error, "the fleet's register does not answer");
        if self.fleet_size() == FleetSize::Unknown {
            tracing::warn!(
                "nobody knows how many nodes there are: this one takes itself for the only one; set --fleet-nodes"
            );
        }
    }

    fn log_changes(&self, news: &FleetChanges) {
        if news.has_recovered {
            tracing::info!("the fleet's register answers");
        }
        if let Some(nodes) = news.nodes {
            tracing::info!(nodes, fleet = %self.settings.fleet, "fleet size changed");
        }
        for (what, turned, nodes) in &news.alarms {
            match (what, turned) {
                (Mismatch::Secret, AlarmChange::Raised) => tracing::error!(
                    nodes,
                    "other nodes have another fleet.secret: every limit is counted several times, each to the whole"
                ),
                (Mismatch::Policy, AlarmChange::Raised) => {
                    tracing::warn!(nodes, "other nodes have another policy in force");
                }
                (what, AlarmChange::Cleared) => {
                    tracing::info!(what = what.name(), "all nodes have the same again");
                }
            }
        }
    }
}

/// Counts per second, by what was counted last time.
#[derive(Debug, Default)]
struct LoadMeter(Option<(NodeTotals, Instant)>);

impl LoadMeter {
    fn load(&mut self, tally: NodeTotals, now: Instant) -> NodeLoad {
        let before = self.0.replace((tally, now));
        let (before, then) = before.unwrap_or((tally, now));
        let millis = now.saturating_duration_since(then).as_millis().max(1);
        let rate = |now: u64, then: u64| {
            let counted = u128::from(now.saturating_sub(then)).saturating_mul(1_000);
            u64::try_from(counted / millis).unwrap_or(u64::MAX)
        };
        NodeLoad {
            in_flight: tally.in_flight,
            admitted_per_s: rate(tally.admitted, before.admitted),
            denied_per_s: rate(tally.denied, before.denied),
            shed_per_s: rate(tally.shed, before.shed),
        }
    }
}

/// Somewhere between nothing and this, differently each time.
fn random_below(most: Duration) -> Duration {
    // A fresh hasher is keyed by the operating system's randomness.
    let random = RandomState::new().hash_one(0_u8);
    let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX).max(1);
    Duration::from_nanos(random.checked_rem(most).unwrap_or(0))
}

/// About as long as this, differently each time: nodes that were started together do not beat together.
fn jitter_around(pace: Duration) -> Duration {
    let tenth = pace / 10;
    pace.saturating_sub(tenth)
        .saturating_add(random_below(tenth * 2))
}
