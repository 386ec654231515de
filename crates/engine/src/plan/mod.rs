//! Plans a bounded batch of checks for a request: which meters to ask, with which keys, quotas and costs.
//!
//! Plans are reused from request to request, so a warm one does not allocate. Must not know: who asks the store, what
//! is done with the replies.

mod candidate;
mod keys;
mod rule;
mod rule_planner;
mod second_quota;

pub(crate) use rule::{AddedRule, PlanContext};

use tollgate_core::Outcome;
use tollgate_policy::model::Consistency;
use tollgate_policy::rules::{KeyBuffer, KeyOutcome, MeterRole};
use tollgate_store::{IdentifiedLimit, LimitId, Op, QuotaCheck, ReplyNote, StoreKey, StoreReply};

use self::keys::RequestKeys;
use crate::generation::Generation;
use crate::meter_state::MeterState;
use crate::queueing::QueueingQuota;
use crate::quota_info::QuotaInfo;
use crate::sharing::{DenialCaching, Sharing};

/// One planned check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedCheck {
    pub(crate) rule: usize,
    pub(crate) meter: usize,
    pub(crate) role: MeterRole,
    pub(crate) op: Op,
    /// The cost of the request for this meter.
    pub(crate) cost: u64,
    pub(crate) quota: QuotaRef,
    pub(crate) key: KeyRef,
    /// The key that selects the fleet's hash slot, if not the check's own.
    pub(crate) slot_key: Option<KeyRef>,
}

impl PlannedCheck {
    /// Whether it checks a limit itself, and not a block, distinct values or a candidate.
    pub(crate) const fn is_limit(&self) -> bool {
        matches!(
            self.role,
            MeterRole::Main | MeterRole::Local | MeterRole::Spillover
        )
    }
}

/// Where a check's quota is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuotaRef {
    /// In the generation, by its index in the meter's list.
    Listed(u32),
    /// The same, with the wait added to its capacity.
    Queueing(u32),
    /// In the plan: computed for this request.
    Computed(u32),
}

/// The index of one of the plan's keys.
pub(crate) type KeyRef = u16;

/// The planned checks of one request, and the store's replies.
#[derive(Debug)]
pub(crate) struct Plan {
    planned: Vec<PlannedCheck>,
    replies: Vec<StoreReply>,
    keys: RequestKeys,
    computed: Vec<(IdentifiedLimit, Option<QueueingQuota>)>,
    /// Whether a quota that is not listed was selected for this request: only replies under such a quota are translated.
    has_unlisted_quota: bool,
    /// The shared states that shadow limits of this request have charged.
    shadow_charges: Vec<(LimitId, KeyRef)>,
    /// The checks that second quotas replace in this step, with the replies that denied.
    replaced: Vec<(PlannedCheck, StoreReply)>,
}

impl Plan {
    pub(crate) const fn new() -> Self {
        Self {
            planned: Vec::new(),
            replies: Vec::new(),
            keys: RequestKeys::new(),
            computed: Vec::new(),
            has_unlisted_quota: false,
            shadow_charges: Vec::new(),
            replaced: Vec::new(),
        }
    }

    /// Reserves capacity for this many checks, so that decisions do not allocate.
    pub(crate) fn reserve(&mut self, checks: usize) {
        self.planned.reserve(checks);
        self.replies.reserve(checks);
    }

    /// Clears the previous request.
    pub(crate) fn clear(&mut self) {
        self.restart();
        self.keys.clear();
        self.computed.clear();
        self.has_unlisted_quota = false;
        self.shadow_charges.clear();
    }

    /// Clears the checks for the next step of the same request. Its keys and computed quotas are kept.
    pub(crate) fn restart(&mut self) {
        self.planned.clear();
        self.replies.clear();
        self.replaced.clear();
    }

    pub(crate) fn planned(&self) -> &[PlannedCheck] {
        &self.planned
    }

    /// All checks with the store's replies.
    pub(crate) fn with_replies(&self) -> impl Iterator<Item = (&PlannedCheck, &StoreReply)> {
        self.planned.iter().zip(&self.replies)
    }

    /// Whether the store has answered the planned checks.
    pub(crate) fn has_replies(&self) -> bool {
        self.replies.len() == self.planned.len()
    }

    /// Whether every check was admitted.
    pub(crate) fn is_admitted(&self) -> bool {
        let mut replies = self.replies.iter();
        replies.all(|reply| reply.outcome.is_admitted())
    }

    /// All checks with their outcomes; `None` if the store was not asked.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = (&PlannedCheck, Option<Outcome>)> {
        let outcomes = self.replies.iter().map(|reply| Some(reply.outcome));
        let outcomes = outcomes.chain(std::iter::repeat(None));
        self.planned.iter().zip(outcomes)
    }

    pub(crate) fn take_reply_buffer(&mut self) -> Vec<StoreReply> {
        std::mem::take(&mut self.replies)
    }

    /// Takes the store's replies to all planned checks.
    #[inline(always)]
    pub(crate) fn set_replies(&mut self, generation: &Generation, mut replies: Vec<StoreReply>) {
        if self.has_unlisted_quota {
            for (planned, reply) in self.planned.iter().zip(&mut replies) {
                self.translate(generation, planned, reply);
            }
        }
        self.replies = replies;
    }

    /// Translates a reply into the terms of the policy's quota, if the check's quota has a wait added. Fallback quotas
    /// have no wait.
    #[inline]
    pub(crate) fn translate(
        &self,
        generation: &Generation,
        planned: &PlannedCheck,
        reply: &mut StoreReply,
    ) {
        let is_fallback = matches!(
            reply.note,
            ReplyNote::FallbackQuota | ReplyNote::FailOpen | ReplyNote::NotChecked
        );
        if !is_fallback && let Some(queueing) = self.queueing(generation, planned.quota_path()) {
            queueing.translate(reply, planned.cost);
        }
    }

    /// A concurrent request already recorded this distinct value: removes the value's check and plans the rule without
    /// counting. Returns whether there was such a rule and checks remain.
    pub(crate) fn retry_without_distinct(&mut self) -> bool {
        let is_seen = |(planned, reply): &(&PlannedCheck, &StoreReply)| {
            planned.role == MeterRole::Distinct && !reply.outcome.is_admitted()
        };
        let seen = self.with_replies().find(is_seen);
        let Some(rule) = seen.map(|(planned, _)| planned.rule) else {
            return false;
        };
        self.planned
            .retain(|one| one.rule != rule || one.role != MeterRole::Distinct);
        // They belong to the previous batch.
        self.replies.clear();
        let counting = self.planned.iter_mut().filter(|one| one.rule == rule);
        for one in counting.filter(|one| one.is_limit()) {
            one.op = match one.op {
                Op::Peek(_) => Op::Peek(0),
                _ => Op::Spend(0),
            };
            one.cost = 0;
        }
        !self.planned.is_empty()
    }

    /// The key of a direct plan, written unless it exists already.
    #[inline(always)]
    pub(crate) fn make_direct_key(
        &mut self,
        key_spec: u32,
        write: impl FnOnce(&mut KeyBuffer) -> KeyOutcome,
    ) -> (KeyOutcome, KeyRef) {
        self.keys.make(key_spec, write)
    }

    /// Adds a check of a direct plan.
    pub(crate) fn push_direct(&mut self, planned: PlannedCheck) {
        self.planned.push(planned);
    }

    /// An encoded key of the request.
    pub(crate) fn key(&self, key: KeyRef) -> &[u8] {
        self.keys.bytes(key)
    }

    /// The key that selects the fleet's hash slot of a check, if not its own.
    pub(crate) fn slot_key(&self, planned: &PlannedCheck) -> Option<&[u8]> {
        planned.slot_key.map(|key| self.keys.bytes(key))
    }

    /// A planned check in the store's form.
    #[inline]
    pub(crate) fn check<'a>(
        &'a self,
        generation: &'a Generation,
        planned: &PlannedCheck,
        op: Op,
    ) -> Option<QuotaCheck<'a>> {
        Some(QuotaCheck {
            key: StoreKey::new(self.key(planned.key)).ok()?,
            limit: self.limit_of(generation, planned)?,
            op,
        })
    }

    /// The quota of a check.
    #[inline]
    pub(crate) fn limit_of<'a>(
        &'a self,
        generation: &'a Generation,
        planned: &PlannedCheck,
    ) -> Option<&'a IdentifiedLimit> {
        self.limit_at(generation, planned.quota_path())
    }

    #[inline]
    fn limit_at<'a>(
        &'a self,
        generation: &'a Generation,
        (rule, meter, quota): (usize, usize, QuotaRef),
    ) -> Option<&'a IdentifiedLimit> {
        match quota {
            QuotaRef::Listed(index) => {
                let meter = generation.meter(rule, meter)?;
                meter.quotas.get(to_index(index))
            }
            QuotaRef::Queueing(index) => {
                let meter = generation.meter(rule, meter)?;
                let queueing = meter.queueing_quotas.get(to_index(index))?;
                queueing.as_ref().map(|(limit, _)| limit)
            }
            QuotaRef::Computed(index) => {
                let computed = self.computed.get(to_index(index));
                computed.map(|(limit, _)| limit)
            }
        }
    }

    /// The description of a check's quota, for header fields.
    pub(crate) fn quota_info<'a>(
        &'a self,
        generation: &'a Generation,
        planned: &PlannedCheck,
    ) -> QuotaInfo<'a> {
        self.quota_info_at(generation, planned.quota_path())
    }

    /// The same by rule, meter and quota.
    pub(crate) fn quota_info_at<'a>(
        &'a self,
        generation: &'a Generation,
        quota: (usize, usize, QuotaRef),
    ) -> QuotaInfo<'a> {
        let Some(limit) = self.limit_at(generation, quota) else {
            return QuotaInfo::EMPTY;
        };
        let queueing = self.queueing(generation, quota);
        QuotaInfo::new(&limit.limit, queueing.map(QueueingQuota::capacity))
    }

    #[inline]
    fn queueing<'a>(
        &'a self,
        generation: &'a Generation,
        (rule, meter, quota): (usize, usize, QuotaRef),
    ) -> Option<&'a QueueingQuota> {
        match quota {
            QuotaRef::Listed(_) => None,
            QuotaRef::Queueing(index) => {
                let meter = generation.meter(rule, meter)?;
                let queueing = meter.queueing_quotas.get(to_index(index))?;
                queueing.as_ref().map(|(_, queueing)| queueing)
            }
            QuotaRef::Computed(index) => self.computed.get(to_index(index))?.1.as_ref(),
        }
    }

    /// The quota that refunds a check that was told to wait.
    pub(crate) fn cancelling_limit(
        &self,
        generation: &Generation,
        planned: &PlannedCheck,
    ) -> Option<IdentifiedLimit> {
        let limit = *self.limit_of(generation, planned)?;
        match self.queueing(generation, planned.quota_path()) {
            Some(queueing) => Some(IdentifiedLimit {
                id: limit.id,
                limit: queueing.cancelling()?,
            }),
            // A leaky queue refunds so by itself.
            None => Some(limit),
        }
    }

    /// How a fleet shares the state of a check.
    pub(crate) fn sharing<'a>(
        &'a self,
        generation: &'a Generation,
        version: u64,
        planned: &PlannedCheck,
    ) -> Sharing<'a> {
        let Some((rule, limit)) = generation.rule(planned.rule) else {
            return Sharing::EXACT;
        };
        let meter: Option<&MeterState> = limit.meters.get(planned.meter);
        let plain = match planned.quota {
            QuotaRef::Queueing(index) => {
                let listed = meter.and_then(|meter| meter.quotas.get(to_index(index)));
                listed.map(|limit| &limit.limit)
            }
            QuotaRef::Listed(_) | QuotaRef::Computed(_) => None,
        };
        Sharing {
            version,
            is_local: planned.role == MeterRole::Local,
            // The consistency setting applies to the limit itself. Blocks, distinct values and candidates are exact.
            consistency: match planned.role {
                MeterRole::Main => rule.consistency,
                _ => Consistency::Exact,
            },
            on_failure: rule.on_store_failure,
            denial_caching: meter.map_or(DenialCaching::Never, |meter| meter.denial_caching),
            slot_key: self
                .slot_key(planned)
                .and_then(|key| StoreKey::new(key).ok()),
            base_limit: plain,
            is_envoy_counter: false,
        }
    }
}

/// Converts an index that was a `usize` before.
fn to_index(index: u32) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}

impl PlannedCheck {
    const fn quota_path(&self) -> (usize, usize, QuotaRef) {
        (self.rule, self.meter, self.quota)
    }
}
