//! Whether each matched limit is enforced, in shadow or off for this request.
//!
//! It is computed once, at the start. So a kill switch that changes meanwhile affects the next decision, never half of
//! this one. Must not know: how limits are decided.

use tollgate_policy::model::{Mode, Percent};

use crate::plan::{Plan, PlanContext};

/// Computes the mode of every matched limit, in their order. `modes` stays empty if all are enforced. Keys that are
/// needed for it stay in the plan.
pub(crate) fn effective_modes(context: &PlanContext<'_>, plan: &mut Plan, modes: &mut Vec<Mode>) {
    if context.overrides.is_none() && context.generation.is_all_enforced() {
        return;
    }
    let matched = context.matched.rules().iter();
    modes.extend(matched.map(|index| effective_mode(context, *index, plan)));
}

/// Whether a limit is enforced for this request or would be, if it matched.
pub(crate) fn is_enforced(context: &PlanContext<'_>, index: usize, plan: &mut Plan) -> bool {
    effective_mode(context, index, plan) == Mode::Enforce
}

fn effective_mode(context: &PlanContext<'_>, index: usize, plan: &mut Plan) -> Mode {
    let Some((rule, limit)) = context.generation.rule(index) else {
        return Mode::Off;
    };
    let (mode, share) = match context.overrides {
        Some(overrides) => overrides.mode_of(index, rule),
        None => (rule.mode, rule.enforce),
    };
    if mode != Mode::Enforce || share == Percent::ALL {
        return mode;
    }
    let key = plan.first_key(context, index).unwrap_or_default();
    if limit.rollout.includes(key, share) {
        Mode::Enforce
    } else {
        Mode::Shadow
    }
}
