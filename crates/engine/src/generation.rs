//! One version of a policy: its compiled rules, the id of each state, and each limit's counters.
//!
//! A generation is immutable, apart from its overrides. A reload creates another one and swaps them, so every decision
//! uses exactly one. Must not know: requests, replies, files.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_core::Timestamp;
use tollgate_core::limit::{AlgorithmKind, Limit};
use tollgate_policy::attributes::{Attribute, Attributes};
use tollgate_policy::model::{Count, Mode, Penalty, Percent, WhenFull};
use tollgate_policy::rules::{Meter, MeterRef, MeterRole, Rule, Rules, SelectedQuota};
use tollgate_store::{IdentifiedLimit, LimitId};

use crate::candidate::{Comparison, ComparisonTotals, Divergence};
use crate::carried_over::CarriedOverCounters;
use crate::counters::{LimitCounters, LimitTotals};
use crate::key_spec_index::KeySpecIndex;
use crate::limit_ids::{IdAssignment, IdRequest, LimitIdTable, LimitIdsExhausted, state_lifetime};
use crate::override_snapshot::OverrideSlot;
use crate::plan::QuotaRef;
use crate::queueing::{QueueingOptions, QueueingQuota, bound_queue};
use crate::rollout::RolloutSampler;
use crate::sharing::DenialCaching;

/// One version of a policy.
#[derive(Debug)]
pub struct Generation {
    number: u64,
    rules: Rules,
    limits: Box<[LimitEntry]>,
    /// Whether any rule has a candidate.
    has_candidates: bool,
    /// Whether any rule has a spillover quota.
    has_spillovers: bool,
    /// Whether every rule is enforced for all keys.
    is_all_enforced: bool,
    /// Whether any rule needs tickets: for permits, or for costs that responses report.
    has_tickets: bool,
    /// The operators' overrides: the only mutable part.
    overrides: OverrideSlot,
}

/// The engine's data for one rule.
#[derive(Debug)]
pub(crate) struct LimitEntry {
    pub(crate) meters: Box<[MeterState]>,
    pub(crate) counters: Arc<LimitCounters>,
    /// Whether the rule counts distinct values instead of requests.
    pub(crate) counts_values: bool,
    /// Whether some charges depend on the response.
    pub(crate) awaits_response: bool,
    /// Selects the keys that the rule is enforced for during a rollout.
    pub(crate) rollout: RolloutSampler,
    /// The comparison with its candidate, if it has one.
    pub(crate) comparison: Option<Arc<Comparison>>,
}

/// The engine's data for one meter.
#[derive(Debug)]
pub(crate) struct MeterState {
    /// The id of the meter's states.
    pub(crate) id: LimitId,
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
    pub(crate) is_concurrency: bool,
    /// The other rules that use the same states.
    pub(crate) sharers: Box<[usize]>,
    /// How long a denial may be cached.
    pub(crate) denial_caching: DenialCaching,
}

/// A generation that is not in force yet, and the changed limit ids.
pub(crate) struct PreparedGeneration {
    pub(crate) generation: Generation,
    pub(crate) limit_ids: LimitIdTable,
    /// Ids whose states the store may drop.
    pub(crate) retired: Vec<LimitId>,
}

impl Generation {
    /// The number of this version, counted from 1.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// The compiled rules.
    #[must_use]
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// How long a cache may keep a denial by this meter.
    #[must_use]
    pub fn denial_caching(&self, meter: MeterRef) -> Option<DenialCaching> {
        let entry = self.limits.get(meter.rule)?;
        entry
            .meters
            .get(meter.meter)
            .map(|state| state.denial_caching)
    }

    /// The totals of a rule by its index, over all its quotas.
    #[must_use]
    pub fn totals(&self, rule: usize) -> Option<LimitTotals> {
        let entry = self.limits.get(rule)?;
        Some(entry.counters.read())
    }

    /// The totals of a rule's candidate by the rule's index; `None` if it has no candidate. Unlike
    /// [`Engine::divergence`](crate::Engine::divergence) this takes no lock.
    #[must_use]
    pub fn comparison_totals(&self, rule: usize) -> Option<ComparisonTotals> {
        let entry = self.limits.get(rule)?;
        entry.comparison.as_ref().map(|one| one.totals())
    }

    /// A rule and the engine's data for it.
    pub(crate) fn rule(&self, index: usize) -> Option<(&Rule, &LimitEntry)> {
        self.rules.rules().get(index).zip(self.limits.get(index))
    }

    /// The counters of the rule with this name.
    pub(crate) fn counters(&self, name: &str) -> Option<&LimitCounters> {
        let entry = self.limits.get(self.rule_index(name)?);
        entry.map(|entry| &*entry.counters)
    }

    /// The index of the rule with this name.
    pub(crate) fn rule_index(&self, name: &str) -> Option<usize> {
        let mut rules = self.rules.rules().iter();
        rules.position(|rule| &*rule.name == name)
    }

    /// Whether any rule has a candidate.
    pub(crate) const fn has_candidates(&self) -> bool {
        self.has_candidates
    }

    /// Whether any rule has a spillover quota.
    pub(crate) const fn has_spillovers(&self) -> bool {
        self.has_spillovers
    }

    /// The counters of a rule by its index.
    #[inline]
    pub(crate) fn counters_at(&self, rule: usize) -> Option<&LimitCounters> {
        self.limits.get(rule).map(|entry| &*entry.counters)
    }

    /// Whether every rule is enforced for all keys, apart from overrides.
    pub(crate) const fn is_all_enforced(&self) -> bool {
        self.is_all_enforced
    }

    /// Whether any rule needs tickets.
    pub(crate) const fn has_tickets(&self) -> bool {
        self.has_tickets
    }

    /// The operators' overrides.
    pub(crate) const fn overrides(&self) -> &OverrideSlot {
        &self.overrides
    }

    /// The version of the policy and its overrides. It only grows, and changes whenever a cached denial may have become
    /// wrong.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.number << 32 | self.overrides.version() & u64::from(u32::MAX)
    }

    /// One of a rule's meters.
    #[inline]
    pub(crate) fn meter(&self, rule: usize, meter: usize) -> Option<&MeterState> {
        self.limits.get(rule)?.meters.get(meter)
    }

    /// The comparison of a rule with its candidate, if it has one.
    pub(crate) fn divergence(&self, index: usize) -> Option<Divergence> {
        let (rule, entry) = self.rule(index)?;
        let of_candidate = |meter: &Meter| meter.role == MeterRole::Candidate;
        let key_spec = rule.meters.iter().position(of_candidate).and_then(|meter| {
            let meter_ref = MeterRef { rule: index, meter };
            self.rules.key_spec(meter_ref)
        });
        let threshold = self.rules.divergence_threshold();
        Some(
            entry
                .comparison
                .as_ref()?
                .read(&rule.name, threshold, key_spec),
        )
    }

    /// All quotas, each with the quota of `before` that has the same id and position, if there is one.
    pub(crate) fn quotas<'a>(
        &'a self,
        before: Option<&'a Self>,
    ) -> impl Iterator<Item = (Option<&'a IdentifiedLimit>, &'a IdentifiedLimit)> {
        let old: HashMap<LimitId, &MeterState> = before
            .into_iter()
            .flat_map(Self::meters)
            .map(|state| (state.id, state))
            .collect();
        self.meters().flat_map(move |state| {
            let old = old.get(&state.id).copied();
            let all = |state: &'a MeterState| {
                let queueing = state
                    .queueing_quotas
                    .iter()
                    .flatten()
                    .map(|(identified, _)| identified);
                state.quotas.iter().chain(queueing)
            };
            all(state)
                .enumerate()
                .map(move |(index, new)| (old.and_then(|old| all(old).nth(index)), new))
        })
    }

    /// What becomes of the keys of each state when memory is full.
    pub(crate) fn when_full(&self) -> impl Iterator<Item = (LimitId, WhenFull)> {
        let rules = self.rules.rules().iter().zip(&self.limits);
        rules.flat_map(|(rule, entry)| {
            let meters = entry.meters.iter();
            meters.map(|state| (state.id, rule.when_full))
        })
    }

    /// The numbers of a rule's states, by the rule's index in the policy: what a store counts them under.
    pub fn limit_ids_of(&self, rule: usize) -> impl Iterator<Item = LimitId> {
        let entry = self.limits.get(rule).into_iter();
        entry.flat_map(|entry| entry.meters.iter().map(|state| state.id))
    }

    fn meters(&self) -> impl Iterator<Item = &MeterState> {
        self.limits.iter().flat_map(|entry| &entry.meters)
    }

    /// Assigns ids to all states and builds the next generation. It is not in force yet.
    pub(crate) fn prepare(
        rules: Rules,
        table: &LimitIdTable,
        carried_over: &mut CarriedOverCounters,
        number: u64,
        now: Timestamp,
    ) -> Result<PreparedGeneration, LimitIdsExhausted> {
        let requests: Vec<IdRequest<'_>> = rules
            .rules()
            .iter()
            .flat_map(|rule| rule.meters.iter().map(|meter| id_request(rule, meter)))
            .collect();
        let IdAssignment {
            ids,
            retired,
            table,
        } = table.assign(&requests, now)?;
        let mut users: HashMap<LimitId, Vec<usize>> = HashMap::new();
        let meters = rules.rules().iter().enumerate();
        let owners = meters.flat_map(|(index, rule)| rule.meters.iter().map(move |_| index));
        for (id, owner) in ids.iter().zip(owners) {
            users.entry(*id).or_default().push(owner);
        }
        let mut ids = ids.into_iter();
        let mut key_specs = KeySpecIndex::default();
        let entry = |(index, rule): (usize, &Rule)| {
            let meters = rule.meters.iter().enumerate().zip(&mut ids);
            let state = meters.map(|((position, meter), id)| {
                let meter_ref = MeterRef {
                    rule: index,
                    meter: position,
                };
                let key = key_specs.index_of(rules.key_spec(meter_ref));
                let slot_key = rules
                    .colocation_part(meter_ref)
                    .map(|part| key_specs.slot_index_of(part));
                let users = users.get(&id).map_or(&[][..], |users| users);
                let sharers = users.iter().copied().filter(|user| *user != index);
                MeterState::new(rule, meter, (id, key, slot_key), sharers.collect())
            });
            LimitEntry {
                meters: state.collect(),
                counters: carried_over.counters(rule),
                counts_values: rule
                    .meters
                    .iter()
                    .any(|meter| meter.role == MeterRole::Distinct),
                awaits_response: awaits_response(rule),
                rollout: RolloutSampler::new(rule, &rules),
                comparison: carried_over.comparison(rule),
            }
        };
        let limits: Box<[LimitEntry]> = rules.rules().iter().enumerate().map(entry).collect();
        let has_candidates = limits.iter().any(|entry| entry.comparison.is_some());
        let has_tickets = limits.iter().any(|entry| {
            entry.awaits_response || entry.meters.iter().any(|meter| meter.is_concurrency)
        });
        let is_enforced = |rule: &Rule| rule.mode == Mode::Enforce && rule.enforce == Percent::ALL;
        let is_all_enforced = rules.rules().iter().all(is_enforced);
        Ok(PreparedGeneration {
            generation: Self {
                is_all_enforced,
                has_spillovers: has_spillovers(&rules),
                number,
                rules,
                limits,
                has_candidates,
                has_tickets,
                overrides: OverrideSlot::default(),
            },
            limit_ids: table,
            retired,
        })
    }
}

impl MeterState {
    fn new(
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
        Self {
            id,
            key,
            slot_key,
            quotas: meter.quotas.iter().map(own).map(identified).collect(),
            only_quota: only_quota(rule, meter).filter(|_| queueing.iter().all(Option::is_none)),
            queueing_quotas: queueing,
            queueing_options,
            is_concurrency,
            sharers,
            denial_caching: denial_caching(rule, is_concurrency),
        }
    }
}

impl MeterState {
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

fn id_request<'a>(rule: &'a Rule, meter: &'a Meter) -> IdRequest<'a> {
    let longest = meter.quotas.iter().map(state_lifetime).max();
    let longest = longest.unwrap_or_default();
    IdRequest {
        identity: &meter.identity,
        requested: meter.fixed_id,
        kind: meter
            .quotas
            .first()
            .map_or(AlgorithmKind::TokenBucket, Limit::algorithm_kind),
        lifetime: longest.saturating_add(rule.wait.unwrap_or_default()),
    }
}

/// Whether any rule has a spillover quota.
fn has_spillovers(rules: &Rules) -> bool {
    let mut meters = rules.rules().iter().flat_map(|rule| rule.meters.iter());
    meters.any(|meter| meter.role == MeterRole::Spillover)
}

/// Whether some charge of this rule depends on the response.
fn awaits_response(rule: &Rule) -> bool {
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
