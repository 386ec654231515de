//! What a rule's candidate is asked, and how keys and slot keys of the plan are made.
//!
//! Must not know: what comes of it.

use tollgate_policy::model::Count;
use tollgate_policy::rules::{KeyBuffer, KeyOutcome, MeterRef, MeterRole};
use tollgate_store::Op;
use tollgate_store::contract::MAX_CHECKS;

use super::{KeyRef, Plan, PlanContext, PlannedCheck};
use crate::candidate::RuleOutcome;
use crate::generation::MeterState;
use crate::verdict::EnforcementMode;

impl Plan {
    /// The key of a rule's first meter: of a hierarchy the widest level's.
    pub(crate) fn first_key(&mut self, context: &PlanContext<'_>, rule: usize) -> Option<&[u8]> {
        let (_, entry) = context.generation.rule(rule)?;
        let (_, key) = self.make_key(context, MeterRef { rule, meter: 0 }, entry.meters.first()?);
        Some(self.keys.bytes(key))
    }

    /// Plans what a rule's candidate is asked about a request that goes on or not. Answers whether there is anything
    /// to be asked: a tier's or an override's quota is not the one that the candidate stands for.
    pub(crate) fn add_candidate(
        &mut self,
        context: &PlanContext<'_>,
        opinion: &RuleOutcome,
        enforcement: EnforcementMode,
        goes_on: bool,
    ) -> bool {
        let Some((rule, entry)) = context.generation.rule(opinion.rule) else {
            return false;
        };
        for (position, (meter, state)) in rule.meters.iter().zip(&entry.meters).enumerate() {
            if meter.role != MeterRole::Candidate {
                continue;
            }
            let place = MeterRef {
                rule: opinion.rule,
                meter: position,
            };
            let (KeyOutcome::Complete, key) = self.make_key(context, place, state) else {
                return false;
            };
            let bytes = self.keys.bytes(key);
            let rules = context.generation.rules();
            let overrides = context.overrides;
            let key_override =
                overrides.and_then(|overrides| overrides.key_overrides(rules, opinion.rule, bytes));
            let is_own = rule.selector.is_own_quota_only()
                || rule
                    .selector
                    .variant(context.request, context.route(), bytes)
                    == 0;
            if !is_own || key_override.is_some_and(|one| one.has_quota(context.now)) {
                return false;
            }
            let chosen = meter.select_quota(0, context.request, context.route());
            let Some(quota) = self.quota(state, chosen, opinion.cost) else {
                continue;
            };
            // As with the limit itself: in shadow it charges nothing to a state that it shares.
            let is_guest = state.is_shared && enforcement == EnforcementMode::Shadow;
            let op = if state.is_concurrency {
                let holds = goes_on && !is_guest;
                Op::Acquire {
                    id: context.lease_ids.generate(),
                    weight: if holds { opinion.cost } else { 0 },
                }
            } else if is_guest {
                Op::Peek(opinion.cost)
            } else if rule.charge_always {
                Op::ChargeAlways(opinion.cost)
            } else if rule.count != Count::Requests {
                Op::Peek(opinion.cost)
            } else {
                Op::Spend(opinion.cost)
            };
            if self.planned.len() >= MAX_CHECKS {
                return false;
            }
            let slot_key = self.make_slot_key(context, place, state);
            self.planned.push(PlannedCheck {
                rule: opinion.rule,
                meter: position,
                role: MeterRole::Candidate,
                op,
                cost: opinion.cost,
                quota,
                key,
                slot_key,
            });
        }
        !self.planned.is_empty()
    }

    /// Makes the key that says where a fleet keeps a meter's state, if it is not its own key and a fleet decides.
    #[inline]
    pub(super) fn make_slot_key(
        &mut self,
        context: &PlanContext<'_>,
        place: MeterRef,
        state: &MeterState,
    ) -> Option<KeyRef> {
        let recipe = state.slot_key.filter(|_| context.is_fleet)?;
        let rules = context.generation.rules();
        let make = |buffer: &mut KeyBuffer| match rules.write_colocation(
            place,
            context.request,
            context.matched,
            buffer,
        ) {
            true => KeyOutcome::Complete,
            false => KeyOutcome::Skip,
        };
        let (keyed, key) = self.keys.make(recipe, make);
        (keyed == KeyOutcome::Complete).then_some(key)
    }

    /// Makes the key of a meter, unless it was made before.
    #[inline]
    pub(super) fn make_key(
        &mut self,
        context: &PlanContext<'_>,
        place: MeterRef,
        state: &MeterState,
    ) -> (KeyOutcome, KeyRef) {
        let rules = context.generation.rules();
        let make = |buffer: &mut KeyBuffer| {
            rules.write_key(place, context.request, context.matched, buffer)
        };
        self.keys.make(state.key, make)
    }
}
