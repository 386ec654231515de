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
use tollgate_store::register::{Beat, Load, Register};
use tollgate_store::{ErrorKind, StoreError};

use super::alarm::{AlarmChange, Mismatch};
use super::exchange::Exchange;
use super::node::{LocalNode, NodeTotals};
use super::view::FleetChanges;
use super::{Membership, Nodes};

/// So many nodes beat at full pace.
const FULL_PACE: u32 = 64;
/// How much more rarely nodes beat in the largest fleets: what operators say must still get round within two seconds.
const RAREST: u32 = 3;
/// For how many beats a node is believed to be there without being heard of.
const LIFE_IN_BEATS: u32 = 6;
/// The longest that one round may take, whatever the register does.
const ROUND: Duration = Duration::from_secs(5);
/// The longest pause between two attempts while the register does not answer, and the shortest.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
/// The longest that saying goodbye may take.
const GOODBYE: Duration = Duration::from_millis(500);

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
        let nudge = Arc::clone(&self.nudge);
        node.share(Arc::new(move || nudge.notify_one()));
        self.seen().began(Instant::now());
        loop {
            let mut only = JoinSet::new();
            let this = Arc::clone(&self);
            let (talking, listening) = (Arc::clone(&register), Arc::clone(&node));
            only.spawn(async move { this.take_part(&*talking, &*listening).await });
            tokio::select! {
                () = &mut shutdown => break,
                _ended = only.join_next() => {
                    // It never ends by itself.
                    self.panics.fetch_add(1, Ordering::Relaxed);
                    tracing::error!("the task that talks to the fleet's register died of a bug and is started again");
                    self.begun.send_replace(true);
                }
            }
            tokio::time::sleep(jittered(LONGEST_PAUSE).max(SHORTEST_PAUSE)).await;
        }
        // Whoever does not hear it finds out by itself.
        let _left = tokio::time::timeout(GOODBYE, register.leave(self.id)).await;
    }

    async fn take_part(&self, register: &dyn Register, node: &dyn LocalNode) {
        let mut exchange = Exchange::new(self.id, &self.puts);
        let mut rates = Rates::default();
        let mut failed = 0_u32;
        loop {
            let load = rates.load(node.tally(), Instant::now());
            let beat = self.beat(node, load);
            let round = self.round(register, node, &mut exchange, &beat);
            let ended = match tokio::time::timeout(ROUND, round).await {
                Ok(ended) => ended,
                Err(_elapsed) => {
                    let detail = "the round has taken too long";
                    Err(StoreError::new(ErrorKind::TimedOut, detail))
                }
            };
            let unheard = node.unheard();
            let (heard, foreign) = (exchange.heard(), exchange.not_understood);
            self.seen().note(heard, foreign, unheard);
            let pause = match &ended {
                Ok(()) => {
                    failed = 0;
                    spread(self.pace())
                }
                Err(error) => {
                    self.fail(error);
                    failed = failed.saturating_add(1);
                    self.back_off(failed)
                }
            };
            if let Nodes::Seen(nodes) | Nodes::Configured(nodes) = self.nodes() {
                node.share_among(nodes);
            }
            self.begun.send_replace(true);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.nudge.notified(), if failed == 0 => {}
            }
        }
    }

    /// Tells, beats and hears.
    async fn round(
        &self,
        register: &dyn Register,
        node: &dyn LocalNode,
        exchange: &mut Exchange<'_>,
        beat: &Beat,
    ) -> Result<(), StoreError> {
        // That something cannot be told is no reason not to beat.
        let told = exchange.tell(register, node).await;
        let roll = register.beat(beat, self.life()).await?;
        let mark = roll.mark;
        let news = self.seen().see(roll, beat, &self.settings, Instant::now());
        self.log(&news);
        self.note_telling(told);
        exchange.hear(register, node, mark).await
    }

    /// One line when what operators say cannot be told although the register is there, and one when it can again.
    fn note_telling(&self, told: Result<(), StoreError>) {
        let untold = told.err().map(|error| error.to_string());
        let before = self.seen().untold(untold.clone());
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

    fn beat(&self, node: &dyn LocalNode, load: Load) -> Beat {
        Beat {
            node: self.id,
            fingerprint: self.fingerprint,
            policy: node.policy(),
            generation: node.generation(),
            version: Beat::version_of(env!("CARGO_PKG_VERSION")),
            load,
        }
    }

    /// How long it is from beat to beat.
    fn pace(&self) -> Duration {
        let nodes = self.seen().nodes().map_or(1, NonZeroU32::get);
        let rarer = nodes.div_ceil(FULL_PACE).clamp(1, RAREST);
        self.settings.beat_every.saturating_mul(rarer)
    }

    fn life(&self) -> Nanos {
        let life = self.pace().saturating_mul(LIFE_IN_BEATS);
        Nanos::from_nanos(u64::try_from(life.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Full jitter, so that nobody comes back together; and never at once.
    fn back_off(&self, failed: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(failed.min(8));
        let most = self.settings.beat_every.saturating_mul(doubled);
        jittered(most.min(LONGEST_PAUSE)).max(SHORTEST_PAUSE)
    }

    fn fail(&self, error: &StoreError) {
        let is_new = self.seen().fail(error.to_string());
        if !is_new {
            return;
        }
        tracing::warn!(%error, "the fleet's register does not answer");
        if self.nodes() == Nodes::Unknown {
            tracing::warn!(
                "nobody knows how many nodes there are: this one takes itself for the only one; set --fleet-nodes"
            );
        }
    }

    fn log(&self, news: &FleetChanges) {
        if news.is_back {
            tracing::info!("the fleet's register answers");
        }
        if let Some(nodes) = news.nodes {
            tracing::info!(nodes, fleet = %self.settings.fleet, "fleet size changed");
        }
        for (what, turned, nodes) in &news.alarms {
            match (what, turned) {
                (Mismatch::Secret, AlarmChange::On) => tracing::error!(
                    nodes,
                    "other nodes have another fleet.secret: every limit is counted several times, each to the whole"
                ),
                (Mismatch::Policy, AlarmChange::On) => {
                    tracing::warn!(nodes, "other nodes have another policy in force");
                }
                (what, AlarmChange::Off) => {
                    tracing::info!(what = what.word(), "all nodes have the same again");
                }
            }
        }
    }
}

/// Counts per second, by what was counted last time.
#[derive(Debug, Default)]
struct Rates(Option<(NodeTotals, Instant)>);

impl Rates {
    fn load(&mut self, tally: NodeTotals, now: Instant) -> Load {
        let before = self.0.replace((tally, now));
        let (before, then) = before.unwrap_or((tally, now));
        let millis = now.saturating_duration_since(then).as_millis().max(1);
        let rate = |now: u64, then: u64| {
            let counted = u128::from(now.saturating_sub(then)).saturating_mul(1_000);
            u64::try_from(counted / millis).unwrap_or(u64::MAX)
        };
        Load {
            in_flight: tally.in_flight,
            admitted_per_s: rate(tally.admitted, before.admitted),
            denied_per_s: rate(tally.denied, before.denied),
            shed_per_s: rate(tally.shed, before.shed),
        }
    }
}

/// Somewhere between nothing and this, differently each time.
fn jittered(most: Duration) -> Duration {
    // A fresh hasher is keyed by the operating system's randomness.
    let random = RandomState::new().hash_one(0_u8);
    let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX).max(1);
    Duration::from_nanos(random.checked_rem(most).unwrap_or(0))
}

/// About as long as this, differently each time: nodes that were started together do not beat together.
fn spread(pace: Duration) -> Duration {
    let tenth = pace / 10;
    pace.saturating_sub(tenth)
        .saturating_add(jittered(tenth * 2))
}
