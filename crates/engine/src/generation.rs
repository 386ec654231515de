//! One version of a policy as the engine asks it: compiled rules, the number of each state, and each limit's counters.
//!
//! A generation never changes. A reload makes another one and swaps the two, so that every decision is made by exactly
//! one. Must not know: requests, answers, files.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_core::Timestamp;
use tollgate_core::limit::Limit;
use tollgate_policy::attributes::{Attribute, Attributes};
use tollgate_policy::model::{Count, KeyPart, Mode, Penalty, Percent, WhenFull};
use tollgate_policy::rules::{KeySpec, Meter, MeterRef, MeterRole, Rule, Rules, SelectedQuota};
use tollgate_store::{IdentifiedLimit, LimitId};

use crate::candidate::{Comparison, ComparisonTotals, Divergence};
use crate::carried_over::CarriedOverCounters;
use crate::counters::{LimitCounters, LimitTotals};
use crate::limit_ids::{
    IdAssignment, IdRequest, Kind, LimitIdTable, LimitIdsExhausted, state_lifetime,
};
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
    /// Whether every rule is enforced for all keys.
    is_all_enforced: bool,
    /// Whether any rule leaves something to be settled: places, or costs that responses say.
    has_tickets: bool,
    /// What operators have overridden; the one thing that changes.
    overrides: OverrideSlot,
}

/// What the engine knows of one rule beyond the rule.
#[derive(Debug)]
pub(crate) struct LimitEntry {
    pub(crate) meters: Box<[MeterState]>,
    pub(crate) counters: Arc<LimitCounters>,
    /// Whether values are counted and not requests.
    pub(crate) counts_values: bool,
    /// Whether some of its charges wait for the response.
    pub(crate) awaits_response: bool,
    /// Which keys it is enforced for while only a share of them is.
    pub(crate) rollout: RolloutSampler,
    /// The comparison with its candidate, if it has one.
    pub(crate) comparison: Option<Arc<Comparison>>,
}

/// What the engine knows of one meter beyond the meter.
#[derive(Debug)]
pub(crate) struct MeterState {
    /// The number of its states.
    pub(crate) id: LimitId,
    /// Which recipe its key is made by: equal recipes have equal numbers.
    pub(crate) key: u32,
    /// Which recipe makes the key that says where a fleet keeps its states, if not its own.
    pub(crate) slot_key: Option<u32>,
    /// Its quotas with that number, in the order of the meter's.
    pub(crate) quotas: Box<[IdentifiedLimit]>,
    /// The same quotas where they may be waited for.
    pub(crate) queueing_quotas: Box<[Option<(IdentifiedLimit, QueueingQuota)>]>,
    /// How quotas computed for a request may be waited for.
    pub(crate) queueing_options: Option<QueueingOptions>,
    /// The quota that decides on every request, where it depends neither on the request nor on its key.
    pub(crate) only_quota: Option<QuotaRef>,
    pub(crate) is_concurrency: bool,
    /// Whether another rule has the same states.
    pub(crate) is_shared: bool,
    /// How long a denial may be answered without asking the store.
    pub(crate) denial_caching: DenialCaching,
}

/// A generation that is ready to be put in force, and what a store has to be told first.
pub(crate) struct PreparedGeneration {
    pub(crate) generation: Generation,
    pub(crate) limit_ids: LimitIdTable,
    /// Numbers whose states are gone.
    pub(crate) retired: Vec<LimitId>,
}

impl Generation {
    /// Which version it is: they are counted from 1.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// The compiled rules.
    #[must_use]
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// How long a denial by one meter may be answered without asking the store again: what a
    /// cache has to be told.
    #[must_use]
    pub fn denial_caching(&self, meter: MeterRef) -> Option<DenialCaching> {
        let entry = self.limits.get(meter.rule)?;
        entry
            .meters
            .get(meter.meter)
            .map(|state| state.denial_caching)
    }

    /// What a rule has decided so far, by its index in the policy, whatever its quota was meanwhile.
    #[must_use]
    pub fn totals(&self, rule: usize) -> Option<LimitTotals> {
        let entry = self.limits.get(rule)?;
        Some(entry.counters.read())
    }

    /// How often a rule's candidate was compared and decided differently, by the rule's index in the policy; `None` if it
    /// has no candidate. Unlike [`Engine::divergence`](crate::Engine::divergence) this holds up nobody who counts.
    #[must_use]
    pub fn comparison_totals(&self, rule: usize) -> Option<ComparisonTotals> {
        let entry = self.limits.get(rule)?;
        entry.comparison.as_ref().map(|one| one.totals())
    }

    /// One rule and what the engine knows of it.
    pub(crate) fn rule(&self, index: usize) -> Option<(&Rule, &LimitEntry)> {
        self.rules.rules().get(index).zip(self.limits.get(index))
    }

    /// The counters of the rule of this name.
    pub(crate) fn counters(&self, name: &str) -> Option<&LimitCounters> {
        let entry = self.limits.get(self.rule_index(name)?);
        entry.map(|entry| &*entry.counters)
    }

    /// Where the rule of this name stands.
    pub(crate) fn rule_index(&self, name: &str) -> Option<usize> {
        let mut rules = self.rules.rules().iter();
        rules.position(|rule| &*rule.name == name)
    }

    /// Whether any rule has a candidate.
    pub(crate) const fn has_candidates(&self) -> bool {
        self.has_candidates
    }

    /// The counters of a rule, by its index.
    #[inline]
    pub(crate) fn counters_at(&self, rule: usize) -> Option<&LimitCounters> {
        self.limits.get(rule).map(|entry| &*entry.counters)
    }

    /// Whether every rule is enforced for all keys, unless operators say otherwise.
    pub(crate) const fn is_all_enforced(&self) -> bool {
        self.is_all_enforced
    }

    /// Whether any rule leaves something to be settled.
    pub(crate) const fn has_tickets(&self) -> bool {
        self.has_tickets
    }

    /// What operators have overridden in it.
    pub(crate) const fn overrides(&self) -> &OverrideSlot {
        &self.overrides
    }

    /// The version of the policy together with what operators have overridden in it: only grows, and changes whenever a
    /// denial that was true may not be any more.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.number << 32 | self.overrides.version() & u64::from(u32::MAX)
    }

    /// One of a rule's meters.
    #[inline]
    pub(crate) fn meter(&self, rule: usize, meter: usize) -> Option<&MeterState> {
        self.limits.get(rule)?.meters.get(meter)
    }

    /// How a rule's candidate compares, if it has one.
    pub(crate) fn divergence(&self, index: usize) -> Option<Divergence> {
        let (rule, entry) = self.rule(index)?;
        let of_candidate = |meter: &Meter| meter.role == MeterRole::Candidate;
        let recipe = rule.meters.iter().position(of_candidate).and_then(|meter| {
            let place = MeterRef { rule: index, meter };
            self.rules.key_spec(place)
        });
        let threshold = self.rules.divergence_threshold();
        Some(
            entry
                .comparison
                .as_ref()?
                .read(&rule.name, threshold, recipe),
        )
    }

    /// Every quota there is, with the quota of the other generation that has the same number and place, if there is one.
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
                let patient = state
                    .queueing_quotas
                    .iter()
                    .flatten()
                    .map(|(ruled, _)| ruled);
                state.quotas.iter().chain(patient)
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

    /// Numbers the states of rules and makes the next generation of them. Nothing is in force yet.
    pub(crate) fn prepare(
        rules: Rules,
        numbers: &LimitIdTable,
        carried_over: &mut CarriedOverCounters,
        number: u64,
        now: Timestamp,
    ) -> Result<PreparedGeneration, LimitIdsExhausted> {
        let wanted: Vec<IdRequest<'_>> = rules
            .rules()
            .iter()
            .flat_map(|rule| rule.meters.iter().map(|meter| id_request(rule, meter)))
            .collect();
        let IdAssignment {
            ids,
            retired: gone,
            table: numbers,
        } = numbers.assign(&wanted, now)?;
        let mut uses: HashMap<LimitId, usize> = HashMap::new();
        for id in &ids {
            *uses.entry(*id).or_default() += 1;
        }
        let mut ids = ids.into_iter();
        let mut recipes = KeySpecIndex::default();
        let entry = |(index, rule): (usize, &Rule)| {
            let meters = rule.meters.iter().enumerate().zip(&mut ids);
            let state = meters.map(|((position, meter), id)| {
                let place = MeterRef {
                    rule: index,
                    meter: position,
                };
                let key = recipes.index_of(rules.key_spec(place));
                let lies = rules
                    .colocation_part(place)
                    .map(|part| recipes.slot_index_of(part));
                let is_shared = uses.get(&id).is_some_and(|uses| *uses > 1);
                MeterState::new(rule, meter, (id, key, lies), is_shared)
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
                number,
                rules,
                limits,
                has_candidates,
                has_tickets,
                overrides: OverrideSlot::default(),
            },
            limit_ids: numbers,
            retired: gone,
        })
    }
}

impl MeterState {
    fn new(
        rule: &Rule,
        meter: &Meter,
        (id, key, slot_key): (LimitId, u32, Option<u32>),
        is_shared: bool,
    ) -> Self {
        let ruled = |limit: Limit| IdentifiedLimit { id, limit };
        let may_wait = matches!(
            meter.role,
            MeterRole::Main | MeterRole::Local | MeterRole::Candidate
        ) && rule.count == Count::Requests;
        let wait = rule.wait.filter(|_| may_wait);
        let patience = wait.and_then(|wait| QueueingOptions::for_quotas(&meter.quotas, wait));
        let own = |limit: &Limit| match (patience, wait) {
            (Some(patience), _) => patience.without_wait(limit),
            (None, Some(wait)) => bound_queue(limit, wait),
            (None, None) => *limit,
        };
        let stretch = |limit: &Limit| {
            let patient = patience?.with_wait(limit)?;
            Some((ruled(patient.limit), patient))
        };
        let is_concurrency =
            meter.quotas.first().map(Limit::algorithm_kind) == Some(Kind::Concurrency);
        let queueing: Box<[_]> = meter.quotas.iter().map(stretch).collect();
        Self {
            id,
            key,
            slot_key,
            quotas: meter.quotas.iter().map(own).map(ruled).collect(),
            only_quota: only_quota(rule, meter).filter(|_| queueing.iter().all(Option::is_none)),
            queueing_quotas: queueing,
            queueing_options: patience,
            is_concurrency,
            is_shared,
            denial_caching: denial_caching(rule, is_concurrency),
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

/// A request of which nothing is known.
struct NoAttributes;

impl Attributes for NoAttributes {
    fn get(&self, _: &Attribute) -> Option<&[u8]> {
        None
    }
}

/// Numbers for recipes, so that a request's keys are each made once.
#[derive(Default)]
struct KeySpecIndex {
    known: HashMap<String, u32>,
}

impl KeySpecIndex {
    fn index_of(&mut self, recipe: Option<&KeySpec>) -> u32 {
        let mut words = String::new();
        let parts = recipe.map_or(&[][..], |recipe| &recipe.parts);
        for part in parts {
            words.push_str(&key_part_text(part));
        }
        words.push_str(&format!("{:?}", recipe.map(|recipe| &recipe.distinct)));
        self.index_of_text(words)
    }

    /// Where a fleet keeps states is made like a key, and numbered among them.
    fn slot_index_of(&mut self, part: &KeyPart) -> u32 {
        self.index_of_text(format!("place {}", key_part_text(part)))
    }

    fn index_of_text(&mut self, words: String) -> u32 {
        let next = u32::try_from(self.known.len()).unwrap_or(u32::MAX);
        *self.known.entry(words).or_insert(next)
    }
}

fn key_part_text(part: &KeyPart) -> String {
    let how = (
        part.lower,
        part.hash,
        part.v4_bits,
        part.v6_bits,
        part.missing,
    );
    format!("{:?} {how:?};", part.attribute.value)
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
            .map_or(Kind::TokenBucket, Limit::algorithm_kind),
        lifetime: longest.saturating_add(rule.wait.unwrap_or_default()),
    }
}

/// Whether something about a request of this rule is charged or corrected only when its response is known.
fn awaits_response(rule: &Rule) -> bool {
    rule.cost.response_header().is_some() || matches!(rule.count, Count::Responses(_))
}

/// What may be given back must not be denied from memory for long, and what costs something not at all.
fn denial_caching(rule: &Rule, is_concurrency: bool) -> DenialCaching {
    if is_concurrency || rule.penalty != Penalty::None {
        DenialCaching::Never
    } else if awaits_response(rule) || rule.wait.is_some() {
        DenialCaching::OneSecond
    } else {
        DenialCaching::UntilRetryAfter
    }
}
