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
    ErrorKind, Lender, QuotaCheck, RemoteStore, StoreError, StoreKey, StoreReply,
};

use crate::abandoned::AbandonedTickets;
use crate::breaker::Breaker;
use crate::counters::{FleetCounted, FleetCounters};
use crate::denial_cache::DenialCache;
use crate::leases::{LeaseOptions, LocalLeases};
use crate::local_tier::LocalQuotas;
use crate::reconciled::Reconciled;
use crate::replay::Replay;
use crate::singleflight::Singleflight;
use crate::tiered_decider::{ExactSharing, TieredDecider};

/// How many denials are remembered, about.
const REMEMBERED: usize = 65_536;
/// How many keys of `async` limits are counted here.
const COUNTED: usize = 65_536;
/// How many keys' local spending is remembered for the store.
const REPLAYED: usize = 65_536;

/// What an engine shares with others, and what it does without them. One for each process; see
/// [`FleetEngine`](crate::FleetEngine).
pub struct Fleet {
    pub(crate) remote: Arc<dyn RemoteStore>,
    breakers: Box<[Breaker]>,
    pub(crate) denials: DenialCache,
    pub(crate) singleflight: Singleflight,
    /// Who lends slices of leased limits, and those that this node has. Without a lender such limits are exact.
    pub(crate) lender: Option<Arc<dyn Lender>>,
    pub(crate) leases: LocalLeases,
    pub(crate) reconciled: Reconciled,
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
pub struct Tended {
    /// Parts that are away.
    pub away: usize,
    /// Parts that have come back.
    pub back: usize,
}

impl Fleet {
    /// A node of a fleet that shares this store. One that cannot be reached now is taken to be away.
    #[must_use]
    pub fn new(remote: Arc<dyn RemoteStore>, now: Timestamp) -> Self {
        let breakers: Box<[Breaker]> = (0..remote.parts().max(1)).map(|_| Breaker::new()).collect();
        if !remote.is_connected() {
            for breaker in &breakers {
                breaker.open(now);
            }
        }
        Self {
            remote,
            breakers,
            denials: DenialCache::for_keys(REMEMBERED),
            singleflight: Singleflight::default(),
            lender: None,
            leases: LocalLeases::new(LeaseOptions::default()),
            reconciled: Reconciled::for_keys(COUNTED, RandomState::new().build_hasher().finish()),
            local_quotas: LocalQuotas::default(),
            replay: Replay::for_keys(REPLAYED),
            abandoned: AbandonedTickets::default(),
            version: AtomicU64::new(0),
            nodes: AtomicU32::new(0),
            counters: FleetCounters::default(),
        }
    }

    /// The same node, which borrows slices of leased limits there.
    #[must_use]
    pub fn borrowing(mut self, lender: Arc<dyn Lender>) -> Self {
        self.lender = Some(lender);
        self
    }

    /// What it has borrowed.
    #[must_use]
    pub const fn leases(&self) -> &LocalLeases {
        &self.leases
    }

    /// Waits until a slice has to be borrowed soon: then [`tend_slices`](Self::tend_slices) is to be called, and every 50 ms
    /// besides.
    pub async fn slices_wanted(&self) {
        self.leases.wanted().await;
    }

    /// Borrows ahead, tells what was spent of slices and gives back those that nobody uses.
    pub async fn tend_slices(&self, now: impl Fn() -> Timestamp + Send + Sync) {
        if let Some(lender) = &self.lender
            && self.can_ask()
        {
            self.leases.tend(&**lender, now).await;
        }
    }

    /// Tells the store what was counted here of `async` limits, as far as it is due, and learns where the fleet stands. To be
    /// called at least ten times in the shortest interval that a limit has.
    pub async fn reconcile(&self, now: impl Fn() -> Timestamp + Send + Sync) {
        if self.can_ask() {
            let round = self.reconciled.reconcile(&*self.remote, now).await;
            self.counters.count_rounds(&round);
        }
    }

    /// What is counted here of `async` limits.
    #[must_use]
    pub const fn reconciled(&self) -> &Reconciled {
        &self.reconciled
    }

    /// Tells what was counted and gives all slices back, at the end of the process: nothing is borrowed after it.
    pub async fn leave(&self, now: impl Fn() -> Timestamp + Send + Sync) {
        let round = self.reconciled.tell_all(&*self.remote, &now).await;
        self.counters.count_rounds(&round);
        if let Some(lender) = &self.lender {
            self.leases.give_all_back(&**lender, now).await;
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
        self.reconciled.set_nodes(nodes);
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
    pub fn counted(&self) -> FleetCounted {
        FleetCounted {
            openings: self.breakers.iter().map(Breaker::openings).sum(),
            lost: self.replay.lost(),
            ..self.counters.read()
        }
    }

    /// Looks whether parts that are away are back. One that is has first to hear what was admitted without it. To be called
    /// again and again for as long as the process lives; what it costs is one call for each part that is away.
    pub async fn tend(&self, now: impl Fn() -> Timestamp + Send + Sync) -> Tended {
        let mut tended = Tended::default();
        for (part, breaker) in self.breakers.iter().enumerate() {
            if breaker.is_closed() {
                continue;
            }
            if self.remote.probe(part).await.is_ok()
                && self.tell_what_was_spent(part).await.is_ok()
                && breaker.probed(now())
            {
                tended.back = tended.back.saturating_add(1);
            } else {
                tended.away = tended.away.saturating_add(1);
            }
        }
        // What was admitted between being told and being asked again, and what could not be told before.
        for (part, breaker) in self.breakers.iter().enumerate() {
            if breaker.is_closed() {
                // What is not told now is told next time.
                let _told = self.tell_what_was_spent(part).await;
            }
        }
        tended
    }

    /// Takes note of which version of a policy and its overrides decides. With another one denials may no longer be true
    /// that were cached before; those of the denial cache are kept under their version.
    pub(crate) fn note_version(&self, version: u64) {
        if version > self.version.load(Ordering::Relaxed)
            && version > self.version.fetch_max(version, Ordering::AcqRel)
        {
            self.leases.forget_denials();
        }
    }

    /// Whether some part of the store is there.
    fn can_ask(&self) -> bool {
        self.breakers.iter().any(Breaker::is_closed)
    }

    pub(crate) fn part_of(&self, key: &StoreKey<'_>, place: Option<&StoreKey<'_>>) -> usize {
        match self.breakers.len() {
            1 => 0,
            parts => self.remote.part_of(key, place).min(parts.saturating_sub(1)),
        }
    }

    /// Decides on one check, exactly, whatever it is about; while the store is away by what stands in for its limit on
    /// `local`. For limits that no policy knows.
    ///
    /// # Errors
    /// The check makes no sense.
    pub async fn ask_one<S: StateStore>(
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
    pub(crate) fn note_call(&self, parts: &[usize], now: Timestamp, error: Option<&StoreError>) {
        let kind = error.map(StoreError::kind);
        self.counters.count_call(kind);
        for part in parts {
            let Some(breaker) = self.breakers.get(*part) else {
                continue;
            };
            match kind {
                None => breaker.succeeded(now),
                // Our own doing: the store is not slower for it, and not faster if it is left alone.
                Some(ErrorKind::BadRequest | ErrorKind::Busy) => {}
                Some(_) => {
                    breaker.failed(now);
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
