//! Whether each limit that was found is enforced, shadowed or off for this very request.
//!
//! It is settled once, before anything is asked, so that a kill switch that is thrown meanwhile changes the next decision and
//! never half of this one. Must not know: how limits are decided.

use arrayvec::ArrayVec;
use tollgate_policy::model::{Mode, Percent};
use tollgate_policy::rules::MAX_LIMITS;

use crate::plan::{Plan, PlanContext};

/// Settles the mode of every limit that was found, in their order; none is listed where all are enforced. Keys that have to be
/// made for it stay in the plan.
pub(crate) fn effective_modes(
    context: &PlanContext<'_>,
    plan: &mut Plan,
    modes: &mut ArrayVec<Mode, MAX_LIMITS>,
) {
    if context.overrides.is_none() && context.generation.is_all_enforced() {
        return;
    }
    let found = context.matched.rules().iter();
    modes.extend(found.map(|index| effective_mode(context, *index, plan)));
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
