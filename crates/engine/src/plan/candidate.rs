//! Plans the checks of a rule's candidate, and builds the plan's keys and slot keys.
//!
//! Must not know: what is done with the replies.

use tollgate_policy::model::Count;
use tollgate_policy::rules::{KeyBuffer, KeyOutcome, MeterRef, MeterRole};
use tollgate_store::Op;
use tollgate_store::contract::MAX_CHECKS;

use super::{KeyRef, Plan, PlanContext, PlannedCheck};
use crate::candidate::RuleOutcome;
use crate::meter_state::MeterState;
use crate::verdict::EnforcementMode;

impl Plan {
    /// The key of a rule's first meter; in a hierarchy, of the widest level.
    pub(crate) fn first_key(&mut self, context: &PlanContext<'_>, rule: usize) -> Option<&[u8]> {
        let (_, entry) = context.generation.rule(rule)?;
        let (_, key) = self.make_key(context, MeterRef { rule, meter: 0 }, entry.meters.first()?);
        Some(self.keys.bytes(key))
    }

    /// Plans the checks of a rule's candidate. Returns whether there are any: a key with the quota of a tier or an
    /// override has none, because the candidate replaces the limit's own quota.
    pub(crate) fn add_candidate(
        &mut self,
        context: &PlanContext<'_>,
        outcome: &RuleOutcome,
        enforcement: EnforcementMode,
        is_admitted: bool,
    ) -> bool {
        let Some((rule, entry)) = context.generation.rule(outcome.rule) else {
            return false;
        };
        for (position, (meter, state)) in rule.meters.iter().zip(&entry.meters).enumerate() {
            if meter.role != MeterRole::Candidate {
                continue;
            }
            let meter_ref = MeterRef {
                rule: outcome.rule,
                meter: position,
            };
            let (KeyOutcome::Complete, key) = self.make_key(context, meter_ref, state) else {
                return false;
            };
            let bytes = self.keys.bytes(key);
            let rules = context.generation.rules();
            let overrides = context.overrides;
            let key_override =
                overrides.and_then(|overrides| overrides.key_overrides(rules, outcome.rule, bytes));
            let is_own = rule.selector.is_own_quota_only()
                || rule
                    .selector
                    .variant(context.request, context.route(), bytes)
                    == 0;
            if !is_own || key_override.is_some_and(|one| one.has_quota(context.now)) {
                return false;
            }
            let selected = meter.select_quota(0, context.request, context.route());
            let Some(quota) = self.quota(
                (meter, state),
                selected,
                outcome.cost,
                context.options.max_wait,
            ) else {
                continue;
            };
            // As with the limit itself: in shadow it charges nothing to a state that an enforced limit shares.
            let is_guest = enforcement == EnforcementMode::Shadow && self.is_guest(context, state);
            let op = if state.is_concurrency {
                let acquires = is_admitted && !is_guest;
                Op::Acquire {
                    id: context.lease_ids.generate(),
                    weight: if acquires { outcome.cost } else { 0 },
                }
            } else if is_guest {
                Op::Peek(outcome.cost)
            } else if rule.charge_always {
                Op::ChargeAlways(outcome.cost)
            } else if rule.count != Count::Requests {
                Op::Peek(outcome.cost)
            } else {
                Op::Spend(outcome.cost)
            };
            if self.planned.len() >= MAX_CHECKS {
                return false;
            }
            let slot_key = self.make_slot_key(context, meter_ref, state);
            self.planned.push(PlannedCheck {
                rule: outcome.rule,
                meter: position,
                role: MeterRole::Candidate,
                op,
                cost: outcome.cost,
                quota,
                key,
                slot_key,
            });
        }
        !self.planned.is_empty()
    }

    /// Builds the slot key of a meter, if a fleet decides and the slot key is not the meter's own key.
    #[inline]
    pub(super) fn make_slot_key(
        &mut self,
        context: &PlanContext<'_>,
        meter_ref: MeterRef,
        state: &MeterState,
    ) -> Option<KeyRef> {
        let key_spec = state.slot_key.filter(|_| context.is_fleet)?;
        let rules = context.generation.rules();
        let make = |buffer: &mut KeyBuffer| match rules.write_colocation(
            meter_ref,
            context.request,
            context.matched,
            buffer,
        ) {
            true => KeyOutcome::Complete,
            false => KeyOutcome::Skip,
        };
        let (key_outcome, key) = self.keys.make(key_spec, make);
        (key_outcome == KeyOutcome::Complete).then_some(key)
    }

    /// Builds the key of a meter, unless it exists already.
    #[inline]
    pub(super) fn make_key(
        &mut self,
        context: &PlanContext<'_>,
        meter_ref: MeterRef,
        state: &MeterState,
    ) -> (KeyOutcome, KeyRef) {
        let rules = context.generation.rules();
        let make = |buffer: &mut KeyBuffer| {
            rules.write_key(meter_ref, context.request, context.matched, buffer)
        };
        self.keys.make(state.key, make)
    }
}
