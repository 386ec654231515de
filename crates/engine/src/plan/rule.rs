//! Plans the checks of one rule: its meters, each with key, quota and operation.
//!
//! Must not know: how the store is asked.

use tollgate_core::{Nanos, Timestamp};
use tollgate_policy::attributes::Attributes;
use tollgate_policy::rules::{
    KeyOutcome, MAX_METERS, MatchedRules, Meter, MeterRef, MeterRole, SelectedQuota,
};
use tollgate_store::contract::MAX_CHECKS;
use tollgate_store::{IdentifiedLimit, LimitId, Op};

use super::rule_planner::RulePlanner;
use super::{KeyRef, Plan, PlannedCheck, QuotaRef};
use crate::check_options::{CheckMode, CheckOptions};
use crate::effective_mode::is_enforced;
use crate::generation::{Generation, LimitEntry};
use crate::lease_ids::LeaseIdGenerator;
use crate::meter_state::MeterState;
use crate::override_snapshot::{OverrideExpiry, OverrideSnapshot};
use crate::queueing::{QueueingQuota, bound_queue};
use crate::verdict::EnforcementMode;

// A policy that compiles plans at most this many checks for one request.
const _: () = assert!(
    MAX_METERS <= MAX_CHECKS,
    "a batch has room for every meter of a request"
);

/// A request and all inputs of its plan.
pub(crate) struct PlanContext<'a> {
    pub(crate) generation: &'a Generation,
    pub(crate) request: &'a dyn Attributes,
    pub(crate) matched: &'a MatchedRules,
    pub(crate) options: CheckOptions,
    pub(crate) lease_ids: &'a LeaseIdGenerator,
    /// The operators' overrides, if there are any.
    pub(crate) overrides: Option<&'a OverrideSnapshot>,
    /// The time; only set if there are overrides.
    pub(crate) now: Timestamp,
    /// Whether a fleet decides. Then checks need their slot keys.
    pub(crate) is_fleet: bool,
    /// Whether the request is charged, without overrides and with the policy's waits.
    pub(crate) is_plain_charge: bool,
}

impl<'a> PlanContext<'a> {
    /// The matched route template, for tiers, costs and computed quotas.
    pub(crate) fn route(&self) -> Option<&'a [u8]> {
        let rules = self.generation.rules();
        rules.route(self.request, self.matched)
    }
}

/// The result of planning a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddedRule {
    /// Its meters are planned, as far as they apply.
    Planned,
    /// Its key cannot be built, and it denies requests without one.
    NoKey,
    /// An operator has blocked its key.
    Blocked(OverrideExpiry),
    /// The plan has no room for its meters.
    TooMany,
}

impl Plan {
    /// Plans the checks of one rule. Unless it returns `Planned`, the plan is unchanged.
    #[inline(always)]
    pub(crate) fn add_rule(
        &mut self,
        context: &PlanContext<'_>,
        index: usize,
        enforcement: EnforcementMode,
    ) -> AddedRule {
        let Some(entry) = context.generation.entry(index) else {
            return AddedRule::Planned;
        };
        let fixed = context.options.cost.or(entry.fixed_cost);
        let cost = fixed.unwrap_or_else(|| {
            let rules = context.generation.rules();
            rules.cost(index, context.request, context.matched)
        });
        if context.is_plain_charge && entry.is_direct {
            return self.add_direct_rule(context, index, entry, cost);
        }
        let Some((rule, _)) = context.generation.rule(index) else {
            return AddedRule::Planned;
        };
        self.add_meters(RulePlanner {
            context,
            index,
            enforcement,
            rule,
            entry,
            cost,
            variant: None,
        })
    }

    /// Plans the meters of a rule one by one.
    fn add_meters(&mut self, mut planner: RulePlanner<'_>) -> AddedRule {
        let before = (self.planned.len(), self.shadow_charges.len());
        for (position, state) in planner.entry.meters.iter().enumerate() {
            let added = match state.role {
                // Both are planned after the replies to the others, if at all.
                MeterRole::Candidate | MeterRole::Spillover => continue,
                // Only the share of the request is planned, after all others.
                MeterRole::Share => continue,
                _ => self.add_meter(&mut planner, position, state),
            };
            if !matches!(added, AddedRule::Planned) {
                self.planned.truncate(before.0);
                self.shadow_charges.truncate(before.1);
                return added;
            }
        }
        if !planner.entry.has_shares {
            return AddedRule::Planned;
        }
        let added = self.add_share(&mut planner, before.0);
        if added != AddedRule::Planned {
            self.planned.truncate(before.0);
        }
        added
    }

    /// Plans a rule of which only the keys depend on the request.
    #[inline(always)]
    fn add_direct_rule(
        &mut self,
        context: &PlanContext<'_>,
        index: usize,
        entry: &LimitEntry,
        cost: u64,
    ) -> AddedRule {
        let before = self.planned.len();
        for (position, state) in entry.meters.iter().enumerate() {
            // Candidates and spillover quotas are planned after the replies to the others.
            let Some(quota) = state.direct_quota else {
                continue;
            };
            let meter_ref = MeterRef {
                rule: index,
                meter: position,
            };
            let added = match self.make_key(context, meter_ref, state) {
                (KeyOutcome::Complete, key) if self.planned.len() < MAX_CHECKS => {
                    let slot_key = self.make_slot_key(context, meter_ref, state);
                    self.planned.push(PlannedCheck {
                        rule: index,
                        meter: position,
                        role: state.role,
                        op: Op::Spend(cost),
                        cost,
                        quota,
                        key,
                        slot_key,
                    });
                    continue;
                }
                (KeyOutcome::Complete, _) => AddedRule::TooMany,
                (KeyOutcome::Skip, _) => continue,
                (KeyOutcome::Deny, _) => AddedRule::NoKey,
            };
            self.planned.truncate(before);
            return added;
        }
        AddedRule::Planned
    }

    pub(super) fn add_meter(
        &mut self,
        planner: &mut RulePlanner<'_>,
        position: usize,
        state: &MeterState,
    ) -> AddedRule {
        let context = planner.context;
        if context.options.mode == CheckMode::Refund && !planner.is_refundable(state) {
            return AddedRule::Planned;
        }
        let meter_ref = planner.meter_ref(position);
        let key = match self.make_key(context, meter_ref, state) {
            (KeyOutcome::Complete, key) => key,
            (KeyOutcome::Skip, _) => return AddedRule::Planned,
            (KeyOutcome::Deny, _) => return AddedRule::NoKey,
        };
        let (quota, op, cost) = match self.select_check(planner, position, state, key) {
            Ok(selected) => selected,
            Err(added) => return added,
        };
        let planned = PlannedCheck {
            rule: planner.index,
            meter: position,
            role: state.role,
            op,
            cost,
            quota,
            key,
            slot_key: self.make_slot_key(context, meter_ref, state),
        };
        if !state.sharers.is_empty() && self.merge_shared(context.generation, state, &planned) {
            return AddedRule::Planned;
        }
        if self.planned.len() >= MAX_CHECKS {
            return AddedRule::TooMany;
        }
        self.planned.push(planned);
        AddedRule::Planned
    }

    /// Selects quota, operation and cost of a meter for this request and key. `Err`: the meter adds no check.
    fn select_check(
        &mut self,
        planner: &mut RulePlanner<'_>,
        position: usize,
        state: &MeterState,
        key: KeyRef,
    ) -> Result<(QuotaRef, Op, u64), AddedRule> {
        let context = planner.context;
        let meter = planner.rule.meters.get(position);
        let meter = meter.ok_or(AddedRule::Planned)?;
        let overridden = match context.overrides {
            Some(overrides) if matches!(meter.role, MeterRole::Main | MeterRole::Share) => {
                let rules = context.generation.rules();
                overrides.key_overrides(rules, planner.index, self.keys.bytes(key))
            }
            _ => None,
        };
        if let Some(until) = overridden.and_then(|key| key.blocked(context.now)) {
            return Err(AddedRule::Blocked(until));
        }
        let cost = match meter.role {
            MeterRole::Block | MeterRole::Distinct => 1,
            MeterRole::Offences => 0,
            _ if planner.entry.counts_values => 1,
            _ => planner.cost,
        };
        let quota = match (state.only_quota, overridden) {
            (Some(quota), None) if context.options.max_wait.is_none() => quota,
            (_, overridden) => {
                // The first meter's key selects the variant: the keys of other meters may have more parts.
                if planner.variant.is_none() && planner.rule.selector.has_overrides() {
                    let (request, bytes) = (context.request, self.keys.bytes(key));
                    let variant = planner
                        .rule
                        .selector
                        .variant(request, context.route(), bytes);
                    planner.variant = Some(variant);
                }
                let policy_quota = || planner.policy_quota(meter, self.keys.bytes(key));
                let overridden = overridden.and_then(|one| one.quota(position, context.now));
                let selected = overridden.unwrap_or_else(policy_quota);
                let max_wait = context.options.max_wait;
                let quota = self.quota((meter, state), selected, cost, max_wait);
                quota.ok_or(AddedRule::Planned)?
            }
        };
        let shadow_use = self.shadow_use(planner, state, key);
        if shadow_use == ShadowUse::AlreadyCharged {
            return Err(AddedRule::Planned);
        }
        let op = planner.op(state, cost, shadow_use == ShadowUse::Guest);
        Ok((quota, op, cost))
    }

    /// Returns the quota of a meter. `None`: the meter does not limit this key.
    pub(super) fn quota(
        &mut self,
        (meter, state): (&Meter, &MeterState),
        selected: SelectedQuota,
        cost: u64,
        max_wait: Option<Nanos>,
    ) -> Option<QuotaRef> {
        if let Some(max_wait) = max_wait
            && let Some(shortened) = shortened_wait(meter, state, selected, cost, max_wait)
        {
            let index = self.push_computed(shortened);
            return Some(QuotaRef::Computed(index));
        }
        match selected {
            SelectedQuota::Unlimited => None,
            SelectedQuota::Index(index) => {
                let queueing = state.queueing_quotas.get(index).and_then(Option::as_ref);
                let may_wait = queueing.is_some_and(|(_, queueing)| cost <= queueing.max_cost);
                // A meter has fewer quotas than fit into the index type.
                let index = u32::try_from(index).unwrap_or(u32::MAX);
                self.has_unlisted_quota |= may_wait;
                Some(if may_wait {
                    QuotaRef::Queueing(index)
                } else {
                    QuotaRef::Listed(index)
                })
            }
            SelectedQuota::Computed(limit) => {
                let options = state.queueing_options.as_ref();
                let computed = match options {
                    Some(options) => options.for_cost(&limit, cost),
                    None => (limit, None),
                };
                let id = state.id;
                let (limit, queueing) = computed;
                let index = self.push_computed((IdentifiedLimit { id, limit }, queueing));
                Some(QuotaRef::Computed(index))
            }
        }
    }

    fn push_computed(&mut self, computed: (IdentifiedLimit, Option<QueueingQuota>)) -> u32 {
        let index = u32::try_from(self.computed.len()).unwrap_or(u32::MAX);
        self.computed.push(computed);
        self.has_unlisted_quota = true;
        index
    }

    /// Whether an enforced limit shares the state. Then a shadow limit must not charge it.
    pub(super) fn is_guest(&mut self, context: &PlanContext<'_>, state: &MeterState) -> bool {
        let mut sharers = state.sharers.iter();
        sharers.any(|sharer| is_enforced(context, *sharer, self))
    }

    /// How a shadow limit uses its state. Shadow limits are decided one after the other, and a request is charged once, as by
    /// enforced limits.
    fn shadow_use(
        &mut self,
        planner: &RulePlanner<'_>,
        state: &MeterState,
        key: KeyRef,
    ) -> ShadowUse {
        if state.sharers.is_empty() || planner.enforcement != EnforcementMode::Shadow {
            return ShadowUse::Charges;
        }
        if self.is_guest(planner.context, state) {
            return ShadowUse::Guest;
        }
        let bytes = self.keys.bytes(key);
        let is_same =
            |(id, other): &(LimitId, KeyRef)| *id == state.id && self.keys.bytes(*other) == bytes;
        if self.shadow_charges.iter().any(is_same) {
            return ShadowUse::AlreadyCharged;
        }
        self.shadow_charges.push((state.id, key));
        ShadowUse::Charges
    }

    /// Merges a check with one of another rule that shares its state. The state is charged once, at the higher cost,
    /// and the rule with the smallest burst reports it; of equals the first. Returns whether there was one.
    fn merge_shared(
        &mut self,
        generation: &Generation,
        state: &MeterState,
        new: &PlannedCheck,
    ) -> bool {
        let bytes = self.keys.bytes(new.key);
        let is_same = |other: &PlannedCheck| {
            let id = generation
                .meter(other.rule, other.meter)
                .map(|state| state.id);
            id == Some(state.id) && self.keys.bytes(other.key) == bytes
        };
        let Some(position) = self.planned.iter().position(is_same) else {
            return false;
        };
        // Sharers may have different bursts: the smallest decides and reports, so that no limit admits more than its own.
        let capacity = |check: &PlannedCheck| {
            let limit = self.limit_at(generation, check.quota_path());
            limit.map(|identified| identified.limit.capacity())
        };
        let is_stricter = capacity(new) < self.planned.get(position).and_then(capacity);
        if let Some(other) = self.planned.get_mut(position) {
            if other.cost < new.cost {
                (other.op, other.cost, other.quota) = (new.op, new.cost, new.quota);
            }
            if is_stricter {
                (other.rule, other.meter, other.quota) = (new.rule, new.meter, new.quota);
            }
        }
        true
    }
}

/// The selected quota with the shorter wait of this call. `None` if the call does not shorten it.
#[cold]
fn shortened_wait(
    meter: &Meter,
    state: &MeterState,
    selected: SelectedQuota,
    cost: u64,
    max_wait: Nanos,
) -> Option<(IdentifiedLimit, Option<QueueingQuota>)> {
    let policy_limit = match selected {
        SelectedQuota::Unlimited => return None,
        SelectedQuota::Index(index) => *meter.quotas.get(index)?,
        SelectedQuota::Computed(limit) => limit,
    };
    let (limit, queueing) = match &state.queueing_options {
        Some(options) => options.shortened(max_wait)?.for_cost(&policy_limit, cost),
        None => {
            // A leaky queue, which the policy may have shortened too.
            let limit = state.quota_without_wait(selected)?.limit;
            let shorter = bound_queue(&limit, max_wait);
            (Some(shorter).filter(|shorter| *shorter != limit)?, None)
        }
    };
    let id = state.id;
    Some((IdentifiedLimit { id, limit }, queueing))
}

/// How a shadow limit uses the state of a meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShadowUse {
    /// It charges it.
    Charges,
    /// An enforced limit shares it, so it only looks.
    Guest,
    /// Another shadow limit of this request has charged it, and reports it.
    AlreadyCharged,
}
