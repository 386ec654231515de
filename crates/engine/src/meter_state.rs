//! The engine's data for one meter of a rule, precomputed when a policy is put in force: ids, quotas, and what needs no
//! decision per request.
//!
//! Must not know: requests, replies, how generations are swapped.

use tollgate_core::limit::{AlgorithmKind, Limit};
use tollgate_policy::attributes::{Attribute, Attributes};
use tollgate_policy::model::{Count, Penalty};
use tollgate_policy::rules::{Meter, MeterRole, Rule, SelectedQuota};
use tollgate_store::{IdentifiedLimit, LimitId};

use crate::plan::QuotaRef;
use crate::queueing::{QueueingOptions, QueueingQuota, bound_queue};
use crate::sharing::DenialCaching;

/// The engine's data for one meter.
#[derive(Debug)]
pub(crate) struct MeterState {
    /// The id of the meter's states.
    pub(crate) id: LimitId,
    pub(crate) role: MeterRole,
    /// The index of the key spec. Equal specs have equal indexes.
    pub(crate) key: u32,
    /// The index of the slot key's spec, if the fleet routes the state by another key.
    pub(crate) slot_key: Option<u32>,
    /// The meter's quotas with that id, in their order.
    pub(crate) quotas: Box<[IdentifiedLimit]>,
    /// The same quotas with the wait added, where the limit can queue.
    pub(crate) queueing_quotas: Box<[Option<(IdentifiedLimit, QueueingQuota)>]>,
    /// How to add the wait to quotas that are computed for a request.
    pub(crate) queueing_options: Option<QueueingOptions>,
    /// The meter's quota, if it depends neither on the request nor on the key.
    pub(crate) only_quota: Option<QuotaRef>,
    /// The same, if a request that is charged simply spends its cost from it, and nobody else uses the state. Operators'
    /// overrides and waits per call still come before it.
    pub(crate) direct_quota: Option<QuotaRef>,
    pub(crate) is_concurrency: bool,
    /// The other rules that use the same states.
    pub(crate) sharers: Box<[usize]>,
    /// How long a denial may be cached.
    pub(crate) denial_caching: DenialCaching,
}

impl MeterState {
    pub(crate) fn new(
        rule: &Rule,
        meter: &Meter,
        (id, key, slot_key): (LimitId, u32, Option<u32>),
        sharers: Box<[usize]>,
    ) -> Self {
        let identified = |limit: Limit| IdentifiedLimit { id, limit };
        let may_wait = matches!(
            meter.role,
            MeterRole::Main | MeterRole::Local | MeterRole::Candidate
        ) && rule.count == Count::Requests;
        let wait = rule.wait.filter(|_| may_wait);
        let queueing_options =
            wait.and_then(|wait| QueueingOptions::for_quotas(&meter.quotas, wait));
        let own = |limit: &Limit| match (queueing_options, wait) {
            (Some(queueing_options), _) => queueing_options.without_wait(limit),
            (None, Some(wait)) => bound_queue(limit, wait),
            (None, None) => *limit,
        };
        let with_wait = |limit: &Limit| {
            let queueing = queueing_options?.with_wait(limit)?;
            Some((identified(queueing.limit), queueing))
        };
        let is_concurrency =
            meter.quotas.first().map(Limit::algorithm_kind) == Some(AlgorithmKind::Concurrency);
        let queueing: Box<[_]> = meter.quotas.iter().map(with_wait).collect();
        let only_quota = only_quota(rule, meter).filter(|_| queueing.iter().all(Option::is_none));
        let is_direct = matches!(meter.role, MeterRole::Main | MeterRole::Local)
            && !is_concurrency
            && !rule.charge_always
            && rule.count == Count::Requests
            && !counts_values(rule)
            && sharers.is_empty();
        Self {
            id,
            role: meter.role,
            key,
            slot_key,
            quotas: meter.quotas.iter().map(own).map(identified).collect(),
            only_quota,
            direct_quota: only_quota.filter(|_| is_direct),
            queueing_quotas: queueing,
            queueing_options,
            is_concurrency,
            sharers,
            denial_caching: denial_caching(rule, is_concurrency),
        }
    }
}

impl MeterState {
    /// Whether a plain charge spends its cost from it, or does not check it at first.
    pub(crate) const fn is_direct(&self) -> bool {
        self.direct_quota.is_some()
            || matches!(self.role, MeterRole::Candidate | MeterRole::Spillover)
    }

    /// A selected quota without its wait. `None`: the key is not limited.
    pub(crate) fn quota_without_wait(&self, selected: SelectedQuota) -> Option<IdentifiedLimit> {
        match selected {
            SelectedQuota::Unlimited => None,
            SelectedQuota::Index(index) => self.quotas.get(index).copied(),
            SelectedQuota::Computed(limit) => Some(IdentifiedLimit {
                id: self.id,
                limit: self
                    .queueing_options
                    .map_or(limit, |options| options.without_wait(&limit)),
            }),
        }
    }
}

/// Whether a rule counts distinct values instead of requests.
pub(crate) fn counts_values(rule: &Rule) -> bool {
    let mut meters = rule.meters.iter();
    meters.any(|meter| meter.role == MeterRole::Distinct)
}

/// The quota of a meter that has only one.
fn only_quota(rule: &Rule, meter: &Meter) -> Option<QuotaRef> {
    if !rule.selector.is_own_quota_only() || meter.is_computed(0) {
        return None;
    }
    match meter.select_quota(0, &NoAttributes, None) {
        SelectedQuota::Index(index) => u32::try_from(index).ok().map(QuotaRef::Listed),
        SelectedQuota::Computed(_) | SelectedQuota::Unlimited => None,
    }
}

/// A request without attributes.
pub(crate) struct NoAttributes;

impl Attributes for NoAttributes {
    fn get(&self, _: &Attribute) -> Option<&[u8]> {
        None
    }
}

/// Whether some charge of this rule depends on the response.
pub(crate) fn awaits_response(rule: &Rule) -> bool {
    rule.cost.is_from_response()
        || !rule.refund.is_empty()
        || matches!(rule.count, Count::Responses(_))
}

/// A denial is not cached for long if charges can be refunded, and never if denials are penalised.
fn denial_caching(rule: &Rule, is_concurrency: bool) -> DenialCaching {
    if is_concurrency || rule.penalty != Penalty::None {
        DenialCaching::Never
    } else if awaits_response(rule) || rule.wait.is_some() {
        DenialCaching::OneSecond
    } else {
        DenialCaching::UntilRetryAfter
    }
}
