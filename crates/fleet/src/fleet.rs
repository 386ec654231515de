//! What the nodes of a fleet share, and what this node does without the store.
//!
//! Must not know: how batches are decided, which store it is, when maintenance runs.

use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tollgate_core::Timestamp;
use tollgate_engine::{ResponseSummary, StateStore, Ticket};
use tollgate_store::{
    LeaseBroker, QuotaCheck, RemoteStore, StoreError, StoreErrorKind, StoreKey, StoreReply,
};

use crate::abandoned_tickets::AbandonedTickets;
use crate::breaker::Breaker;
use crate::counters::{FleetCounters, FleetTotals};
use crate::denial_cache::DenialCache;
use crate::join_all::join_all;
use crate::leases::{LeaseOptions, LocalLeases};
use crate::local_tier::LocalQuotas;
use crate::reconcile::Reconciler;
use crate::replay::Replay;
use crate::sharing_policy::ExactSharing;
use crate::singleflight::Singleflight;
use crate::tiered_decider::TieredDecider;

/// The capacity of the denial cache.
const DENIAL_CACHE_KEYS: usize = 65_536;
/// The most keys of `async` limits on this node.
const ASYNC_KEYS: usize = 65_536;
/// The most keys with charges to replay.
const REPLAY_KEYS: usize = 65_536;

/// What an engine shares with other nodes, and its fallbacks. One for each process; see
/// [`FleetEngine`](crate::FleetEngine).
pub struct Fleet {
    pub(crate) remote: Arc<dyn RemoteStore>,
    breakers: Box<[Breaker]>,
    pub(crate) denials: DenialCache,
    pub(crate) singleflight: Singleflight,
    /// Grants leases of limits with `consistency: leased`. Without a broker such limits are exact.
    pub(crate) lease_broker: Option<Arc<dyn LeaseBroker>>,
    pub(crate) leases: LocalLeases,
    pub(crate) reconciler: Reconciler,
    pub(crate) local_quotas: LocalQuotas,
    pub(crate) replay: Replay,
    /// Tickets of abandoned decisions.
    pub(crate) abandoned: AbandonedTickets,
    /// The latest version of the policy and its overrides.
    version: AtomicU64,
    /// The number of nodes; zero while it is unknown.
    nodes: AtomicU32,
    pub(crate) counters: FleetCounters,
}

/// The result of probing unavailable partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ProbeOutcome {
    /// Partitions that are still unavailable.
    pub unavailable: usize,
    /// Partitions that have recovered.
    pub recovered: usize,
}

impl Fleet {
    /// A node of a fleet that shares this store. If the store is not connected, it starts as unavailable.
    #[must_use]
    pub fn new(remote: Arc<dyn RemoteStore>, now: Timestamp) -> Self {
        let breakers: Box<[Breaker]> = (0..remote.partition_count().max(1))
            .map(|_| Breaker::new())
            .collect();
        if !remote.is_connected() {
            for breaker in &breakers {
                breaker.open(now);
            }
        }
        Self {
            remote,
            breakers,
            denials: DenialCache::for_keys(DENIAL_CACHE_KEYS),
            singleflight: Singleflight::default(),
            lease_broker: None,
            leases: LocalLeases::new(LeaseOptions::default()),
            reconciler: Reconciler::for_keys(
                ASYNC_KEYS,
                RandomState::new().build_hasher().finish(),
            ),
            local_quotas: LocalQuotas::default(),
            replay: Replay::for_keys(REPLAY_KEYS),
            abandoned: AbandonedTickets::default(),
            version: AtomicU64::new(0),
            nodes: AtomicU32::new(0),
            counters: FleetCounters::default(),
        }
    }

    /// The same node with a lease broker.
    #[must_use]
    pub fn with_lease_broker(mut self, broker: Arc<dyn LeaseBroker>) -> Self {
        self.lease_broker = Some(broker);
        self
    }

    /// The leases of this node.
    #[must_use]
    pub const fn leases(&self) -> &LocalLeases {
        &self.leases
    }

    /// Waits until a lease is needed soon. Then call [`maintain_leases`](Self::maintain_leases); also call it every 50
    /// ms.
    pub async fn wait_for_lease_demand(&self) {
        self.leases.wait_for_demand().await;
    }

    /// Requests leases ahead of demand, reports what was spent, and returns unused leases.
    pub async fn maintain_leases(&self, now: impl Fn() -> Timestamp + Send + Sync) {
        if let Some(broker) = &self.lease_broker
            && self.is_any_partition_available()
        {
            self.leases.maintain(&**broker, now).await;
        }
    }

    /// Reports the counts of `async` limits that are due, and reads the fleet's totals. Call it at least ten times in
    /// the shortest interval of any limit.
    pub async fn reconcile(&self, now: impl Fn() -> Timestamp + Send + Sync) {
        if self.is_any_partition_available() {
            let round = self.reconciler.reconcile(&*self.remote, now).await;
            self.counters.count_round(&round);
        }
    }

    /// The counts of `async` limits on this node.
    #[must_use]
    pub const fn reconciler(&self) -> &Reconciler {
        &self.reconciler
    }

    /// Reports all counts and returns all leases, at the end of the process. Nothing is leased afterwards.
    pub async fn leave(&self, now: impl Fn() -> Timestamp + Send + Sync) {
        let round = self.reconciler.report_all(&*self.remote, &now).await;
        self.counters.count_round(&round);
        if let Some(broker) = &self.lease_broker {
            self.leases.return_all(&**broker, now).await;
        }
    }

    /// Queues a ticket whose caller is gone, to cancel it in the background.
    pub fn abandon(&self, ticket: Ticket) {
        self.abandoned.push(ticket, None);
    }

    /// Queues a ticket whose request has ended, to settle it in the background.
    pub fn settle_later(&self, ticket: Ticket, response: ResponseSummary) {
        self.abandoned.push(ticket, Some(response));
    }

    /// The shared store.
    pub fn remote(&self) -> &Arc<dyn RemoteStore> {
        &self.remote
    }

    /// Sets the number of nodes.
    pub fn set_nodes(&self, nodes: u32) {
        self.nodes.store(nodes, Ordering::Relaxed);
        self.leases.set_nodes(nodes);
        self.reconciler.set_nodes(nodes);
    }

    /// The number of nodes; one if it is unknown.
    #[must_use]
    pub fn nodes(&self) -> NonZeroU32 {
        NonZeroU32::new(self.nodes.load(Ordering::Relaxed)).unwrap_or(NonZeroU32::MIN)
    }

    /// The breakers, one for each partition of the store.
    #[must_use]
    pub fn breakers(&self) -> &[Breaker] {
        &self.breakers
    }

    /// Whether some partition is unavailable, so that some decisions use the fallback.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.breakers.iter().any(|breaker| !breaker.is_closed())
    }

    /// The totals of this node.
    #[must_use]
    pub fn totals(&self) -> FleetTotals {
        FleetTotals {
            openings: self.breakers.iter().map(Breaker::openings).sum(),
            replay_dropped: self.replay.dropped(),
            ..self.counters.read()
        }
    }

    /// Probes unavailable partitions, all at the same time. One that has recovered first gets the charges that were
    /// admitted without it. Call it periodically; it costs one call for each unavailable partition.
    pub async fn probe_unavailable(
        &self,
        now: impl Fn() -> Timestamp + Send + Sync,
    ) -> ProbeOutcome {
        let now = &now;
        let probes = self
            .breakers
            .iter()
            .enumerate()
            .filter(|(_, breaker)| !breaker.is_closed())
            .map(|(partition, breaker)| {
                Box::pin(async move {
                    self.remote.probe(partition).await.is_ok()
                        && self.replay_partition(partition).await.is_ok()
                        && breaker.record_probe(now())
                })
            });
        let mut outcome = ProbeOutcome::default();
        for has_recovered in join_all(probes.collect()).await {
            let count = match has_recovered {
                true => &mut outcome.recovered,
                false => &mut outcome.unavailable,
            };
            *count = count.saturating_add(1);
        }
        // What was admitted between the replay and the closing of the breaker, and what failed before.
        for (partition, breaker) in self.breakers.iter().enumerate() {
            if breaker.is_closed() {
                // If it fails, the next round tries again.
                let _replayed = self.replay_partition(partition).await;
            }
        }
        outcome
    }

    /// Records the version that decides. A new version invalidates the refusals of leases. The denial cache keeps
    /// denials under their version.
    pub(crate) fn observe_version(&self, version: u64) {
        if version > self.version.load(Ordering::Relaxed)
            && version > self.version.fetch_max(version, Ordering::AcqRel)
        {
            self.leases.clear_refusals();
        }
    }

    /// Whether some partition is available.
    fn is_any_partition_available(&self) -> bool {
        self.breakers.iter().any(Breaker::is_closed)
    }

    pub(crate) fn partition_of(
        &self,
        key: &StoreKey<'_>,
        slot_key: Option<&StoreKey<'_>>,
    ) -> usize {
        match self.breakers.len() {
            1 => 0,
            partitions => self
                .remote
                .partition_of(key, slot_key)
                .min(partitions.saturating_sub(1)),
        }
    }

    /// Decides one check exactly; while the store is unavailable, by the fallback quota on `local`. For limits outside
    /// the policy.
    ///
    /// # Errors
    /// The check is invalid.
    pub async fn decide_one<S: StateStore>(
        &self,
        local: &S,
        check: QuotaCheck<'_>,
    ) -> Result<StoreReply, StoreError> {
        let decider = TieredDecider::new(self, local);
        let mut replies = [StoreReply::EMPTY];
        let checks = [check];
        let decided = decider.decide::<1>(&checks, &ExactSharing, &mut replies);
        let _one_limit_needs_no_outcome = decided.await?;
        let [reply] = replies;
        Ok(reply)
    }

    /// Records the result of a call to these partitions.
    pub(crate) fn record_call(
        &self,
        partitions: &[usize],
        now: Timestamp,
        error: Option<&StoreError>,
    ) {
        let kind = error.map(StoreError::kind);
        self.counters.count_call(kind);
        for partition in partitions {
            let Some(breaker) = self.breakers.get(*partition) else {
                continue;
            };
            match kind {
                None => breaker.record_success(now),
                // Caused by this node: it tells nothing about the store.
                Some(StoreErrorKind::BadRequest | StoreErrorKind::Busy) => {}
                Some(_) => {
                    breaker.record_failure(now);
                }
            }
        }
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet")
            .field("remote", &self.remote)
            .field("breakers", &self.breakers)
            .field("nodes", &self.nodes)
            .finish_non_exhaustive()
    }
}
