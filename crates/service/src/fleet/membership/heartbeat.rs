//! The task that calls the register: it sends heartbeats, pushes and pulls changes, and survives failures and panics.
//!
//! While the register answers, there is a heartbeat every half second, and one at once after an operator's change. While it
//! does not, the task retries with full jitter of up to two seconds, so that the nodes of a fleet do not retry at the same
//! time. Must not know: how changes are applied, how the fleet's state is reported.

use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tollgate_core::Nanos;
use tollgate_store::register::{Heartbeat, MemberList, NodeLoad, NodeUsage, Register};
use tollgate_store::{StoreError, StoreErrorKind};

use super::local_node::{LocalNode, NodeTotals};
use super::mismatch::{AlarmChange, Mismatch};
use super::register_sync::RegisterSync;
use super::view::FleetChanges;
use super::{FleetSize, Membership};

/// In larger fleets nodes send heartbeats less often.
const MAX_NODES_AT_FULL_RATE: u32 = 64;
/// The largest factor for the heartbeat interval, so that changes still reach all nodes within two seconds.
const MAX_SLOWDOWN: u32 = 3;
/// The number of heartbeats that a node may miss before it counts as gone.
const TTL_BEATS: u32 = 6;
/// The number of heartbeats for which the usage of a node counts. It is shorter, because usage changes fast.
const USAGE_BEATS: u32 = 3;
/// The timeout of one round.
const ROUND_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest and the shortest pause between two attempts while the register does not answer.
const MAX_BACKOFF: Duration = Duration::from_secs(2);
const MIN_BACKOFF: Duration = Duration::from_millis(50);
/// The timeout of leaving the fleet at shutdown.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(500);

impl Membership {
    /// Takes part in the fleet until `shutdown` completes, then leaves it. If the task panics, it is counted and restarted.
    pub async fn run(
        self: Arc<Self>,
        register: Arc<dyn Register>,
        node: Arc<dyn LocalNode>,
        shutdown: impl Future<Output = ()> + Send,
    ) {
        let mut shutdown = pin!(shutdown);
        let register = Arc::new(self.signed(register));
        if self.accepts_unsigned() {
            tracing::warn!(
                "--fleet-accept-unsigned is set: any client that can write to Redis can throw switches; remove it after the upgrade"
            );
        }
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
                    // The task never returns, so it has panicked.
                    self.panics.fetch_add(1, Ordering::Relaxed);
                    tracing::error!("fleet membership task panicked, restarting it");
                    self.is_synced.send_replace(true);
                }
            }
            tokio::time::sleep(random_below(MAX_BACKOFF).max(MIN_BACKOFF)).await;
        }
        // If this fails, the node's entry expires.
        let _left_or_expires = tokio::time::timeout(LEAVE_TIMEOUT, register.leave(self.id)).await;
    }

    async fn run_rounds(&self, register: &dyn Register, node: &dyn LocalNode) {
        let mut sync = RegisterSync::new(self.id, &self.put_counter);
        let mut rates = LoadMeter::default();
        let mut failed = 0_u32;
        loop {
            let load = rates.load(node.totals(), Instant::now());
            let beat = self.beat(node, load);
            let round = self.round(register, node, &mut sync, &beat);
            let ended = match tokio::time::timeout(ROUND_TIMEOUT, round).await {
                Ok(ended) => ended,
                Err(_elapsed) => {
                    let detail = "the round timed out";
                    Err(StoreError::new(StoreErrorKind::TimedOut, detail))
                }
            };
            let pending = node.pending_counts();
            let (cursor, unsupported) = (sync.applied_cursor(), sync.unsupported_entries);
            self.state().record_progress(cursor, unsupported, pending);
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

    /// Sends a heartbeat, pushes changes, and pulls changes. Pushed changes are numbered from the cursor that the
    /// heartbeat returns, so that they count as newer than all entries.
    async fn round(
        &self,
        register: &dyn Register,
        node: &dyn LocalNode,
        sync: &mut RegisterSync<'_>,
        beat: &Heartbeat,
    ) -> Result<(), StoreError> {
        let members = register.heartbeat(beat, self.heartbeat_ttl()).await;
        // Neither a failed push nor a failed heartbeat prevents the other.
        let pushed = sync.push_changes(register, node).await;
        let members = members?;
        let cursor = members.cursor;
        self.pass_usage(node, &beat.usage, &members);
        let changes = self
            .state()
            .record_members(members, beat, &self.settings, Instant::now());
        self.log_changes(&changes);
        self.record_push_result(pushed);
        sync.pull_changes(register, node, cursor).await
    }

    /// Passes the recent usage of other nodes to this one. While the register does not answer, it expires.
    fn pass_usage(&self, node: &dyn LocalNode, own: &NodeUsage, members: &MemberList) {
        let ttl = self.heartbeats(USAGE_BEATS);
        let peers = members
            .nodes
            .iter()
            .filter(|member| member.heartbeat.node != self.id && member.age <= ttl);
        let peers: Vec<_> = peers.map(|member| &member.heartbeat.usage).collect();
        node.set_peer_usage(own, &peers, ttl);
    }

    /// Logs once when the register answers heartbeats but not pushes, and once when pushes succeed again.
    fn record_push_result(&self, pushed: Result<(), StoreError>) {
        let push_error = pushed.err().map(|error| error.to_string());
        let before = self.state().set_push_error(push_error.clone());
        match (before, push_error) {
            (None, Some(error)) => {
                tracing::warn!(
                    error,
                    "operator changes not pushed, they apply to this node only"
                );
            }
            (Some(_), None) => tracing::info!("operator changes pushed"),
            _ => {}
        }
    }

    fn beat(&self, node: &dyn LocalNode, load: NodeLoad) -> Heartbeat {
        let nodes = self.state().nodes().map_or(1, NonZeroU32::get) as usize;
        Heartbeat {
            node: self.id,
            secret_fingerprint: self.fingerprint,
            policy_fingerprint: node.policy(),
            generation: node.generation(),
            version: Heartbeat::sanitize_version(env!("CARGO_PKG_VERSION")),
            load,
            usage: node.usage(NodeUsage::max_targets(nodes)),
            seal: None,
        }
    }

    /// The time between two heartbeats.
    fn heartbeat_interval(&self) -> Duration {
        let nodes = self.state().nodes().map_or(1, NonZeroU32::get);
        let rarer = nodes
            .div_ceil(MAX_NODES_AT_FULL_RATE)
            .clamp(1, MAX_SLOWDOWN);
        self.settings.heartbeat_interval.saturating_mul(rarer)
    }

    fn heartbeat_ttl(&self) -> Nanos {
        self.heartbeats(TTL_BEATS)
    }

    /// The time of so many heartbeats.
    fn heartbeats(&self, beats: u32) -> Nanos {
        let life = self.heartbeat_interval().saturating_mul(beats);
        Nanos::from_nanos(u64::try_from(life.as_nanos()).unwrap_or(u64::MAX))
    }

    /// The pause after `failed` failures: exponential backoff with full jitter, and never zero.
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
        tracing::warn!(%error, "fleet register unavailable");
        if self.fleet_size() == FleetSize::Unknown {
            tracing::warn!("fleet size unknown, this node applies whole limits; set --fleet-nodes");
        }
    }

    fn log_changes(&self, changes: &FleetChanges) {
        if changes.has_recovered {
            tracing::info!("fleet register available");
        }
        if let Some(nodes) = changes.nodes {
            tracing::info!(nodes, fleet = %self.settings.fleet, "fleet size changed");
        }
        for (what, change, nodes) in &changes.alarms {
            match (what, change) {
                (Mismatch::Secret, AlarmChange::Raised) => tracing::error!(
                    nodes,
                    "fleet secret differs on other nodes, each group of nodes counts separately up to the whole limit"
                ),
                (Mismatch::Policy, AlarmChange::Raised) => {
                    tracing::warn!(nodes, "policy differs on other nodes");
                }
                (what, AlarmChange::Cleared) => {
                    tracing::info!(what = what.name(), "mismatch between nodes resolved");
                }
            }
        }
    }
}

/// Computes rates per second from the totals of two rounds.
#[derive(Debug, Default)]
struct LoadMeter(Option<(NodeTotals, Instant)>);

impl LoadMeter {
    fn load(&mut self, totals: NodeTotals, now: Instant) -> NodeLoad {
        let before = self.0.replace((totals, now));
        let (before, then) = before.unwrap_or((totals, now));
        let millis = now.saturating_duration_since(then).as_millis().max(1);
        let rate = |now: u64, then: u64| {
            let counted = u128::from(now.saturating_sub(then)).saturating_mul(1_000);
            u64::try_from(counted / millis).unwrap_or(u64::MAX)
        };
        NodeLoad {
            in_flight: totals.in_flight,
            admitted_per_s: rate(totals.admitted, before.admitted),
            denied_per_s: rate(totals.denied, before.denied),
            shed_per_s: rate(totals.shed, before.shed),
        }
    }
}

/// A random duration below `most`.
fn random_below(most: Duration) -> Duration {
    // A fresh hasher is keyed by the operating system's randomness.
    let random = RandomState::new().hash_one(0_u8);
    let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX).max(1);
    Duration::from_nanos(random.checked_rem(most).unwrap_or(0))
}

/// The interval with up to 10 % of jitter, so that nodes that started together do not beat together.
fn jitter_around(pace: Duration) -> Duration {
    let tenth = pace / 10;
    pace.saturating_sub(tenth)
        .saturating_add(random_below(tenth * 2))
}
