//! What the nodes of a fleet share, and what this node does without the store.
//!
//! Must not know: how batches are decided, which store it is, when it is tended.

use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tollgate_core::Timestamp;
use tollgate_engine::{StateStore, Ticket};
use tollgate_store::{
    Lender, QuotaCheck, RemoteStore, StoreError, StoreErrorKind, StoreKey, StoreReply,
};

use crate::abandoned_tickets::AbandonedTickets;
use crate::breaker::Breaker;
use crate::counters::{FleetCounters, FleetTotals};
use crate::denial_cache::DenialCache;
use crate::leases::{LeaseOptions, LocalLeases};
use crate::local_tier::LocalQuotas;
use crate::reconcile::Reconciler;
use crate::replay::Replay;
use crate::singleflight::Singleflight;
use crate::tiered_decider::{ExactSharing, TieredDecider};

/// How many denials are remembered, about.
const DENIAL_CACHE_KEYS: usize = 65_536;
/// How many keys of `async` limits are counted here.
const ASYNC_KEYS: usize = 65_536;
/// How many keys' local spending is remembered for the store.
const REPLAY_KEYS: usize = 65_536;

/// What an engine shares with others, and what it does without them. One for each process; see
/// [`FleetEngine`](crate::FleetEngine).
pub struct Fleet {
    pub(crate) remote: Arc<dyn RemoteStore>,
    breakers: Box<[Breaker]>,
    pub(crate) denials: DenialCache,
    pub(crate) singleflight: Singleflight,
    /// Who lends slices of leased limits, and those that this node has. Without a lender such limits are exact.
    pub(crate) lease_broker: Option<Arc<dyn Lender>>,
    pub(crate) leases: LocalLeases,
    pub(crate) reconciler: Reconciler,
    pub(crate) local_quotas: LocalQuotas,
    pub(crate) replay: Replay,
    /// What decisions had taken whose callers left.
    pub(crate) abandoned: AbandonedTickets,
    /// The latest version of a policy and its overrides that decided.
    version: AtomicU64,
    /// How many nodes there are; zero while nobody knows.
    nodes: AtomicU32,
    pub(crate) counters: FleetCounters,
}

/// What became of the parts of a store that were away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ProbeOutcome {
    /// Parts that are away.
    pub unavailable: usize,
    /// Parts that have come back.
    pub recovered: usize,
}

impl Fleet {
    /// A node of a fleet that shares this store. One that cannot be reached now is taken to be away.
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

    /// The same node, which borrows slices of leased limits there.
    #[must_use]
    pub fn with_lease_broker(mut self, lender: Arc<dyn Lender>) -> Self {
        self.lease_broker = Some(lender);
        self
    }

    /// What it has borrowed.
    #[must_use]
    pub const fn leases(&self) -> &LocalLeases {
        &self.leases
    }

    /// Waits until a slice has to be borrowed soon: then [`tend_slices`](Self::tend_slices) is to be called, and every 50 ms
    /// besides.
    pub async fn wait_for_lease_demand(&self) {
        self.leases.wait_for_demand().await;
    }

    /// Borrows ahead, tells what was spent of slices and gives back those that nobody uses.
    pub async fn maintain_leases(&self, now: impl Fn() -> Timestamp + Send + Sync) {
        if let Some(lender) = &self.lease_broker
            && self.is_any_partition_available()
        {
            self.leases.maintain(&**lender, now).await;
        }
    }

    /// Tells the store what was counted here of `async` limits, as far as it is due, and learns where the fleet stands. To be
    /// called at least ten times in the shortest interval that a limit has.
    pub async fn reconcile(&self, now: impl Fn() -> Timestamp + Send + Sync) {
        if self.is_any_partition_available() {
            let round = self.reconciler.reconcile(&*self.remote, now).await;
            self.counters.count_round(&round);
        }
    }

    /// What is counted here of `async` limits.
    #[must_use]
    pub const fn reconciler(&self) -> &Reconciler {
        &self.reconciler
    }

    /// Tells what was counted and gives all slices back, at the end of the process: nothing is borrowed after it.
    pub async fn leave(&self, now: impl Fn() -> Timestamp + Send + Sync) {
        let round = self.reconciler.report_all(&*self.remote, &now).await;
        self.counters.count_round(&round);
        if let Some(lender) = &self.lease_broker {
            self.leases.return_all(&**lender, now).await;
        }
    }

    /// Keeps a ticket whose request nobody waits for any more, to be cancelled in the background.
    pub fn abandon(&self, ticket: Ticket) {
        self.abandoned.push(ticket);
    }

    /// The store that is shared.
    pub fn remote(&self) -> &Arc<dyn RemoteStore> {
        &self.remote
    }

    /// Says how many nodes share it, as was last seen.
    pub fn set_nodes(&self, nodes: u32) {
        self.nodes.store(nodes, Ordering::Relaxed);
        self.leases.set_nodes(nodes);
        self.reconciler.set_nodes(nodes);
    }

    /// How many nodes there are, as far as is known: one if nobody does.
    #[must_use]
    pub fn nodes(&self) -> NonZeroU32 {
        NonZeroU32::new(self.nodes.load(Ordering::Relaxed)).unwrap_or(NonZeroU32::MIN)
    }

    /// The breakers, one for each part of the store.
    #[must_use]
    pub fn breakers(&self) -> &[Breaker] {
        &self.breakers
    }

    /// Whether some part of the store is away, so that some decisions do without it.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.breakers.iter().any(|breaker| !breaker.is_closed())
    }

    /// What has happened so far.
    #[must_use]
    pub fn totals(&self) -> FleetTotals {
        FleetTotals {
            openings: self.breakers.iter().map(Breaker::openings).sum(),
            replay_dropped: self.replay.dropped(),
            ..self.counters.read()
        }
    }

    /// Looks whether parts that are away are back. One that is has first to hear what was admitted without it. To be called
    /// again and again for as long as the process lives; what it costs is one call for each part that is away.
    pub async fn probe_unavailable(
        &self,
        now: impl Fn() -> Timestamp + Send + Sync,
    ) -> ProbeOutcome {
        let mut tended = ProbeOutcome::default();
        for (part, breaker) in self.breakers.iter().enumerate() {
            if breaker.is_closed() {
                continue;
            }
            if self.remote.probe(part).await.is_ok()
                && self.replay_partition(part).await.is_ok()
                && breaker.record_probe(now())
            {
                tended.recovered = tended.recovered.saturating_add(1);
            } else {
                tended.unavailable = tended.unavailable.saturating_add(1);
            }
        }
        // What was admitted between being told and being asked again, and what could not be told before.
        for (part, breaker) in self.breakers.iter().enumerate() {
            if breaker.is_closed() {
                // What is not told now is told next time.
                let _told = self.replay_partition(part).await;
            }
        }
        tended
    }

    /// Takes note of which version of a policy and its overrides decides. With another one denials may no longer be true
    /// that were cached before; those of the denial cache are kept under their version.
    pub(crate) fn observe_version(&self, version: u64) {
        if version > self.version.load(Ordering::Relaxed)
            && version > self.version.fetch_max(version, Ordering::AcqRel)
        {
            self.leases.clear_refusals();
        }
    }

    /// Whether some part of the store is there.
    fn is_any_partition_available(&self) -> bool {
        self.breakers.iter().any(Breaker::is_closed)
    }

    pub(crate) fn partition_of(&self, key: &StoreKey<'_>, place: Option<&StoreKey<'_>>) -> usize {
        match self.breakers.len() {
            1 => 0,
            parts => self
                .remote
                .partition_of(key, place)
                .min(parts.saturating_sub(1)),
        }
    }

    /// Decides on one check, exactly, whatever it is about; while the store is away by what stands in for its limit on
    /// `local`. For limits that no policy knows.
    ///
    /// # Errors
    /// The check makes no sense.
    pub async fn decide_one<S: StateStore>(
        &self,
        local: &S,
        check: QuotaCheck<'_>,
    ) -> Result<StoreReply, StoreError> {
        let decider = TieredDecider::new(self, local);
        let mut answers = [StoreReply::EMPTY];
        let checks = [check];
        let decided = decider.decide::<1>(&checks, &ExactSharing, &mut answers);
        let _one_limit_needs_no_outcome = decided.await?;
        let [answer] = answers;
        Ok(answer)
    }

    /// Takes note of how a call of some parts ended.
    pub(crate) fn record_call(&self, parts: &[usize], now: Timestamp, error: Option<&StoreError>) {
        let kind = error.map(StoreError::kind);
        self.counters.count_call(kind);
        for part in parts {
            let Some(breaker) = self.breakers.get(*part) else {
                continue;
            };
            match kind {
                None => breaker.record_success(now),
                // Our own doing: the store is not slower for it, and not faster if it is left alone.
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
