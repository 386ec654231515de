//! One version of a policy: its compiled rules, the id of each state, and each limit's counters.
//!
//! A generation is immutable, apart from its overrides. A reload creates another one and swaps them, so every decision
//! uses exactly one. Must not know: requests, replies, files.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_core::Timestamp;
use tollgate_core::limit::{AlgorithmKind, Limit};
use tollgate_policy::model::{Mode, OverloadSpec, Percent, WhenFull};
use tollgate_policy::rules::{Meter, MeterRef, MeterRole, PriorityRules, Rule, Rules};
use tollgate_store::{IdentifiedLimit, LimitId};

use crate::candidate::{Comparison, ComparisonTotals, Divergence};
use crate::carried_over::CarriedOverCounters;
use crate::counters::{LimitCounters, LimitTotals};
use crate::direct_plan::{DirectCheck, direct_plan};
use crate::key_spec_index::KeySpecIndex;
use crate::limit_ids::{IdAssignment, IdRequest, LimitIdTable, LimitIdsExhausted, state_lifetime};
use crate::meter_state::{MeterState, awaits_response, counts_values};
use crate::override_snapshot::OverrideSlot;
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
    /// Whether any rule has a second quota: a spillover quota, or a common bucket to borrow from.
    has_second_quotas: bool,
    /// Whether every rule is enforced for all keys.
    is_all_enforced: bool,
    /// Whether any rule needs tickets: for permits, or for costs that responses report.
    has_tickets: bool,
    /// The checks of every request, if they do not depend on it.
    direct_plan: Box<[DirectCheck]>,
    /// The operators' overrides: the only mutable part.
    overrides: OverrideSlot,
}

/// The engine's data for one rule.
#[derive(Debug)]
pub(crate) struct LimitEntry {
    pub(crate) meters: Box<[MeterState]>,
    pub(crate) counters: Arc<LimitCounters>,
    /// The cost of every request, if it is always the same.
    pub(crate) fixed_cost: Option<u64>,
    /// Whether only the keys of its checks depend on the request, if it is charged: see [`MeterState::direct_quota`].
    pub(crate) is_direct: bool,
    /// Whether its quota is divided into shares.
    pub(crate) has_shares: bool,
    /// Whether the rule counts distinct values instead of requests.
    pub(crate) counts_values: bool,
    /// Whether some charges depend on the response.
    pub(crate) awaits_response: bool,
    /// Selects the keys that the rule is enforced for during a rollout.
    pub(crate) rollout: RolloutSampler,
    /// The comparison with its candidate, if it has one.
    pub(crate) comparison: Option<Arc<Comparison>>,
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

    /// The engine's data for a rule.
    #[inline]
    pub(crate) fn entry(&self, index: usize) -> Option<&LimitEntry> {
        self.limits.get(index)
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

    /// Whether any rule has a second quota: a spillover quota, or a common bucket to borrow from.
    pub(crate) const fn has_second_quotas(&self) -> bool {
        self.has_second_quotas
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

    /// The checks of every request that is charged, in the order of the limits. Empty if they depend on the request.
    #[inline]
    pub(crate) fn direct_plan(&self) -> &[DirectCheck] {
        &self.direct_plan
    }

    /// The operators' overrides.
    pub(crate) const fn overrides(&self) -> &OverrideSlot {
        &self.overrides
    }

    /// The priority classes, and what sheds them: as the policy says, weakened by operators' switches. `None` if the policy
    /// switches nothing on.
    #[must_use]
    pub fn overload(&self) -> Option<(&PriorityRules, OverloadSpec)> {
        let priorities = self.rules.priorities()?;
        let mut spec = *priorities.overload();
        if let Some(Some(overrides)) = self.overrides.read().as_deref() {
            spec = overrides.overload(spec);
        }
        Some((priorities, spec))
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
            let meters: Box<[MeterState]> = state.collect();
            LimitEntry {
                is_direct: meters.iter().all(MeterState::is_direct),
                has_shares: meters.iter().any(|meter| meter.role == MeterRole::Share),
                meters,
                counters: carried_over.counters(rule),
                fixed_cost: rule.cost.fixed(),
                counts_values: counts_values(rule),
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
                has_second_quotas: has_second_quotas(&rules),
                direct_plan: direct_plan(&rules, &limits),
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

/// Whether any rule has a second quota.
fn has_second_quotas(rules: &Rules) -> bool {
    let mut meters = rules.rules().iter().flat_map(|rule| rule.meters.iter());
    meters.any(|meter| matches!(meter.role, MeterRole::Spillover | MeterRole::Share))
}
