//! Whether each limit that was found is enforced, shadowed or off for this very request.
//!
//! It is settled once, before anything is asked, so that a switch that is thrown meanwhile changes the next decision and
//! never half of this one. Must not know: how limits are decided.

use tollgate_policy::model::{Mode, Percent};
use tollgate_policy::rules::{Found, MOST_METERS};

use crate::plan::{Asking, Plan};

/// How the rules that were found stand, in their order.
#[derive(Debug)]
pub(crate) struct Stances {
    modes: [Mode; MOST_METERS],
}

impl Stances {
    /// Settles how every rule that was found stands. Keys that have to be made for it stay in the plan.
    pub(crate) fn of(asking: &Asking<'_>, plan: &mut Plan) -> Self {
        let mut modes = [Mode::Off; MOST_METERS];
        for (mode, index) in modes.iter_mut().zip(asking.found.rules()) {
            *mode = stance(asking, *index, plan);
        }
        Self { modes }
    }

    /// The rules that stand like this.
    pub(crate) fn rules_in(&self, found: &Found, mode: Mode) -> impl Iterator<Item = usize> {
        let stands = found.rules().iter().zip(&self.modes);
        stands
            .filter(move |(_, stands)| **stands == mode)
            .map(|(index, _)| *index)
    }
}

fn stance(asking: &Asking<'_>, index: usize, plan: &mut Plan) -> Mode {
    let Some((rule, entry)) = asking.generation.rule(index) else {
        return Mode::Off;
    };
    let (mode, share) = match asking.desk {
        Some(desk) => desk.stand(index, rule),
        None => (rule.mode, rule.enforce),
    };
    if mode != Mode::Enforce || share == Percent::ALL {
        return mode;
    }
    let key = plan.first_key(asking, index).unwrap_or_default();
    if entry.draw.falls_to(key, share) {
        Mode::Enforce
    } else {
        Mode::Shadow
    }
}
