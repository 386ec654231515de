//! Decides one batch on two tiers: local limits on this node, shared limits in the store, and a fallback for what the
//! store cannot decide.
//!
//! The local tier decides first, because its charges can be undone exactly and at once if the store denies. Checks that
//! the store does not answer are decided by a fallback quota, or by the limit's `on_store_failure`. Must not know: what
//! a batch is about, how fallback quotas are computed.

use arrayvec::ArrayVec;
use tollgate_core::Outcome;
use tollgate_core::compose::BatchOutcome;
use tollgate_core::concurrency::LeaseId;
use tollgate_engine::{Sharing, StateStore};
use tollgate_store::{Op, QuotaCheck, ReplyNote, StoreError, StoreReply};

use crate::decision_source::{DecisionSource, StoreBatch};
use crate::denial_cache::DenialId;
use crate::fleet::Fleet;
use crate::local_tier::{ChargedOn, LocalCharge};
use crate::sharing_policy::SharingPolicy;
use crate::singleflight::FlightOutcome;

/// Both tiers of a node: the local store, and the fleet's shared store.
#[derive(Debug)]
pub struct TieredDecider<'a, S> {
    pub(crate) fleet: &'a Fleet,
    pub(crate) local: &'a S,
}

impl<S> Clone for TieredDecider<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for TieredDecider<'_, S> {}

/// A batch in progress.
pub(crate) struct TieredBatch<'b, const N: usize> {
    pub(crate) checks: &'b [QuotaCheck<'b>],
    pub(crate) sharing: ArrayVec<Sharing<'b>, N>,
    pub(crate) replies: &'b mut [StoreReply],
    pub(crate) sources: ArrayVec<DecisionSource, N>,
    /// All charges on this node, to be undone if another limit denies.
    pub(crate) charged: ArrayVec<LocalCharge, N>,
}

impl<const N: usize> TieredBatch<'_, N> {
    /// The version of the policy.
    fn version(&self) -> u64 {
        self.sharing.first().map_or(0, |sharing| sharing.version)
    }
}

/// Whether a batch is admitted, and whether the store failed to answer.
#[derive(Clone, Copy, Debug)]
enum TierOutcome {
    AllTiers(bool),
    WithoutStore(bool),
}

impl<'a, S: StateStore> TieredDecider<'a, S> {
    /// Both tiers of a node.
    #[must_use]
    pub const fn new(fleet: &'a Fleet, local: &'a S) -> Self {
        Self { fleet, local }
    }

    /// Whether every partition of the store is unavailable, so that nothing has to be awaited.
    pub(crate) fn is_store_unavailable(&self) -> bool {
        let mut breakers = self.fleet.breakers().iter();
        breakers.all(|breaker| !breaker.is_closed())
    }

    /// Decides a batch of at most `N` checks.
    pub(crate) async fn decide<const N: usize>(
        &self,
        checks: &[QuotaCheck<'_>],
        sharing: &impl SharingPolicy,
        replies: &mut [StoreReply],
    ) -> Result<BatchOutcome, StoreError> {
        let store_or_fallback = |partition| self.store_or_fallback(partition);
        let mut batch: TieredBatch<'_, N> = self.begin(checks, sharing, replies, store_or_fallback);
        if self.is_local_lease(&mut batch) {
            return Ok(BatchOutcome::default());
        }
        let mut leader = None;
        let mut ids: ArrayVec<DenialId, N> = ArrayVec::new();
        if batch.sources.iter().any(DecisionSource::may_ask_store) {
            let denials = &self.fleet.denials;
            let version = batch.version();
            let id = |check: &QuotaCheck<'_>| denials.id(&check.key, check.limit.id, version);
            ids.extend(checks.iter().take(N).map(id));
            // Most keys have no cached denial.
            if denials.contains_any(&ids) {
                if let Some(outcome) = self.cached_denial(&mut batch) {
                    return Ok(outcome);
                }
                match Box::pin(self.join_flight(checks, version)).await {
                    FlightOutcome::NotShared => {}
                    FlightOutcome::Leader(first) => leader = Some(first),
                    FlightOutcome::Answered => {
                        if let Some(outcome) = self.cached_denial(&mut batch) {
                            return Ok(outcome);
                        }
                    }
                    // The store did not answer the leader, so the waiting callers do not ask again.
                    FlightOutcome::Failed => {
                        let sources = batch.sources.iter_mut();
                        sources.for_each(DecisionSource::use_fallback);
                    }
                }
            }
        }
        batch.replies.fill(UNASKED);
        let outcome = self.decide_on_tiers(&mut batch, &ids).await;
        if let Some(leader) = leader {
            leader.complete(!matches!(outcome, Ok(TierOutcome::WithoutStore(_))));
        }
        let is_admitted = outcome.as_ref().is_ok_and(|outcome| match outcome {
            TierOutcome::AllTiers(is_admitted) | TierOutcome::WithoutStore(is_admitted) => {
                *is_admitted
            }
        });
        self.finish(&mut batch, is_admitted);
        outcome.map(|_| outcome_of(batch.replies))
    }

    /// The same while every partition of the store is unavailable: nothing is awaited.
    pub(crate) fn decide_without_store<const N: usize>(
        &self,
        checks: &[QuotaCheck<'_>],
        sharing: &impl SharingPolicy,
        replies: &mut [StoreReply],
    ) -> Result<BatchOutcome, StoreError> {
        let fallback = |partition| DecisionSource::Fallback { partition };
        let mut batch: TieredBatch<'_, N> = self.begin(checks, sharing, replies, fallback);
        if self.is_local_lease(&mut batch) {
            return Ok(BatchOutcome::default());
        }
        batch.replies.fill(UNASKED);
        let admitted = self
            .decide_without_waiting(&mut batch, fallback)
            .and_then(|admits| Ok(admits && self.decide_from_local_leases(&mut batch)?));
        self.finish(&mut batch, matches!(admitted, Ok(true)));
        admitted.map(|_| outcome_of(batch.replies))
    }

    fn begin<'b, P: SharingPolicy, const N: usize>(
        &self,
        checks: &'b [QuotaCheck<'b>],
        sharing: &'b P,
        replies: &'b mut [StoreReply],
        store_or_fallback: impl Fn(usize) -> DecisionSource,
    ) -> TieredBatch<'b, N> {
        let shared = (0..checks.len().min(N)).map(|position| sharing.sharing(position));
        let sharing: ArrayVec<Sharing<'b>, N> = shared.collect();
        let source = |(check, sharing): (&QuotaCheck<'_>, &Sharing<'_>)| {
            if sharing.is_local {
                return DecisionSource::Local;
            }
            self.fleet.observe_version(sharing.version);
            let partition = self
                .fleet
                .partition_of(&check.key, sharing.slot_key.as_ref());
            if self.is_leased(check, sharing) {
                return DecisionSource::Lease { partition };
            }
            if Self::is_async(check, sharing) {
                return DecisionSource::Async { partition };
            }
            store_or_fallback(partition)
        };
        TieredBatch {
            checks,
            replies,
            sources: checks.iter().zip(&sharing).map(source).collect(),
            sharing,
            charged: ArrayVec::new(),
        }
    }

    /// The store, or the fallback while that partition is unavailable.
    pub(crate) fn store_or_fallback(&self, partition: usize) -> DecisionSource {
        match self.fleet.breakers().get(partition) {
            Some(breaker) if breaker.is_closed() => DecisionSource::Store { partition },
            _ => DecisionSource::Fallback { partition },
        }
    }

    /// Whether a batch only releases or renews a permit that this node's fallback granted; then it is done.
    fn is_local_lease<const N: usize>(&self, batch: &mut TieredBatch<'_, N>) -> bool {
        let [check] = batch.checks else {
            return false;
        };
        match check.op {
            Op::Release(id) | Op::Renew(id) => self.release_locally(check, id, batch.replies),
            _ => false,
        }
    }

    fn release_locally(
        &self,
        check: &QuotaCheck<'_>,
        id: LeaseId,
        replies: &mut [StoreReply],
    ) -> bool {
        let Some(limit) = self.fallback_quota(check, &Sharing::EXACT) else {
            return false;
        };
        let mut ask = |op| {
            let check = QuotaCheck {
                limit: &limit,
                op,
                ..*check
            };
            self.local.decide(&[check], replies).is_ok()
                && replies
                    .first()
                    .is_some_and(|reply| reply.note != ReplyNote::LeaseNotHeld)
        };
        // A release does not report whether the permit was held.
        ask(Op::Renew(id)) && ask(check.op)
    }

    /// Waits for another caller that asks about the same key, if its denial has just expired.
    async fn join_flight(&self, checks: &[QuotaCheck<'_>], version: u64) -> FlightOutcome<'_> {
        let denials = &self.fleet.denials;
        match denials.recently_expired(checks, self.local.now(), version) {
            Some(key) => self.fleet.singleflight.join(key).await,
            None => FlightOutcome::NotShared,
        }
    }

    /// The cached denial of the batch, if one is still valid.
    fn cached_denial<const N: usize>(
        &self,
        batch: &mut TieredBatch<'_, N>,
    ) -> Option<BatchOutcome> {
        let version = batch.version();
        let mut cached = [None; N];
        let cached = cached.get_mut(..batch.checks.len())?;
        let denials = &self.fleet.denials;
        denials.lookup(batch.checks, self.local.now(), version, cached)?;
        for (reply, cached) in batch.replies.iter_mut().zip(cached) {
            *reply = match cached {
                Some(cached) => StoreReply {
                    outcome: Outcome::Deny {
                        retry_after: cached.retry_after,
                    },
                    status: cached.status,
                    ..StoreReply::EMPTY
                },
                None => UNASKED,
            };
        }
        self.fleet.counters.count_cached_denial();
        Some(outcome_of(batch.replies))
    }

    /// Decides tier by tier, until one denies.
    async fn decide_on_tiers<const N: usize>(
        &self,
        batch: &mut TieredBatch<'_, N>,
        ids: &[DenialId],
    ) -> Result<TierOutcome, StoreError> {
        let is_leased = |source: &DecisionSource| matches!(source, DecisionSource::Lease { .. });
        if !self.decide_without_waiting(batch, |partition| self.store_or_fallback(partition))? {
            return Ok(TierOutcome::AllTiers(false));
        }
        if batch.sources.iter().any(is_leased) && !self.decide_leased(batch).await? {
            return Ok(TierOutcome::AllTiers(false));
        }
        // Checks that went to the store only now have no id yet.
        let denials = &self.fleet.denials;
        let id = |position: usize, check: &QuotaCheck<'_>, version| match ids.get(position) {
            Some(id) => *id,
            None => denials.id(&check.key, check.limit.id, version),
        };
        let store_batch: StoreBatch<'_, N> =
            StoreBatch::new(batch.checks, &batch.sharing, &batch.sources, id);
        if store_batch.checks.is_empty() {
            return Ok(TierOutcome::AllTiers(true));
        }
        match self.ask_store(&store_batch, batch.replies).await {
            Ok(outcome) => Ok(TierOutcome::AllTiers(outcome.is_admitted())),
            Err(error) if error.is_callers_fault() => Err(error),
            Err(error) => {
                let sources = batch.sources.iter_mut();
                sources.for_each(DecisionSource::fall_back_to_local);
                let outcome = self.decide_by_fallback(batch, error.may_have_charged())?;
                Ok(TierOutcome::WithoutStore(outcome))
            }
        }
    }

    /// Decides everything that needs no waiting: local limits, `async` limits, and those whose partition is
    /// unavailable. Returns whether all of them admit.
    fn decide_without_waiting<const N: usize>(
        &self,
        batch: &mut TieredBatch<'_, N>,
        store_or_fallback: impl Fn(usize) -> DecisionSource,
    ) -> Result<bool, StoreError> {
        let is_away = |source: &DecisionSource| matches!(source, DecisionSource::Fallback { .. });
        if !self.decide_local(batch)? || !self.decide_async(batch, store_or_fallback) {
            return Ok(false);
        }
        if batch.sources.iter().any(is_away) {
            return self.decide_by_fallback(batch, false);
        }
        Ok(true)
    }

    /// Decides the local limits, and returns whether all of them admit.
    fn decide_local<const N: usize>(
        &self,
        batch: &mut TieredBatch<'_, N>,
    ) -> Result<bool, StoreError> {
        if !batch.sources.contains(&DecisionSource::Local) {
            return Ok(true);
        }
        let own = batch.checks.iter().enumerate().zip(&batch.sources);
        let own: ArrayVec<LocalCharge, N> = own
            .filter(|(_, source)| **source == DecisionSource::Local)
            .map(|((position, check), _)| LocalCharge {
                position,
                limit: *check.limit,
                on: ChargedOn::LocalState,
            })
            .collect();
        let admits = self.decide_locally::<N>(batch.checks, &own, batch.replies)?;
        if admits {
            batch.charged.extend(own);
        }
        Ok(admits)
    }

    /// Asks the store about its part of the batch.
    async fn ask_store<const N: usize>(
        &self,
        store_batch: &StoreBatch<'_, N>,
        replies: &mut [StoreReply],
    ) -> Result<BatchOutcome, StoreError> {
        let sent = self.local.now();
        let mut store_replies: ArrayVec<StoreReply, N> = store_batch
            .checks
            .iter()
            .map(|_| StoreReply::EMPTY)
            .collect();
        let remote = self.fleet.remote();
        let called = remote
            .decide(
                &store_batch.slot_keys,
                &store_batch.checks,
                &mut store_replies,
            )
            .await;
        // Which of several partitions failed is not known; a healthy one closes again soon.
        let answered = self.local.now();
        self.fleet
            .record_call(&store_batch.partitions, answered, called.as_ref().err());
        let outcome = called?;
        for (position, store_reply) in store_batch.positions.iter().zip(&store_replies) {
            if let Some(reply) = replies.get_mut(*position) {
                *reply = *store_reply;
            }
        }
        let when = (sent, answered.since(sent));
        let denials = &self.fleet.denials;
        denials.record_by_id(
            &store_batch.ids,
            &store_batch.checks,
            &store_replies,
            &store_batch.denial_caching,
            when,
        );
        if outcome.is_admitted() && !store_batch.are_counters {
            for (check, reply) in store_batch.checks.iter().zip(&store_replies) {
                self.fleet.record_admitted(self.local, check, reply);
            }
        }
        Ok(outcome)
    }

    /// Notes what was admitted without the store, or takes back what was charged here.
    fn finish<const N: usize>(&self, batch: &mut TieredBatch<'_, N>, is_admitted: bool) {
        if is_admitted {
            self.queue_replay(batch);
        } else {
            self.undo_charges(batch);
        }
    }
}

/// Not asked.
pub(crate) const UNASKED: StoreReply = StoreReply {
    outcome: Outcome::Allow,
    note: ReplyNote::NotChecked,
    ..StoreReply::EMPTY
};

fn outcome_of(replies: &[StoreReply]) -> BatchOutcome {
    replies.iter().map(|reply| reply.outcome).collect()
}
