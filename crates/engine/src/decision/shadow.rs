//! Shadow limits: each is decided by itself once the request is admitted, and nobody is refused by it.
//!
//! Must not know: how enforced limits are decided.

use tollgate_core::compose::Verdict as BatchOutcome;
use tollgate_policy::model::Mode;
use tollgate_store::StoreError;

use super::record::{count, count_all, record};
use super::{Decision, Step, Work};
use crate::candidate::first_opinion;
use crate::counters::Event;
use crate::plan::AddedRule;
use crate::verdict::EnforcementMode;

impl Decision<'_> {
    /// Plans the next shadow limit; after the last one the decision is done.
    pub(super) fn next_shadow(&mut self) {
        self.step = if self.plan_shadow() {
            Step::Shadow
        } else {
            Step::Done
        };
    }

    /// Whether there is another shadow limit that asks anything.
    fn plan_shadow(&mut self) -> bool {
        let has_shadow = self.scratch.work.modes.contains(&Mode::Shadow);
        if !has_shadow || !self.scratch.work.verdict.is_admitted() {
            return false;
        }
        let charges = self.charges();
        let (context, work) = self.split();
        let rules = context.found.rules();
        while let Some((index, mode)) = rules
            .get(work.next_shadow)
            .zip(work.modes.get(work.next_shadow))
        {
            work.next_shadow = work.next_shadow.saturating_add(1);
            if *mode != Mode::Shadow {
                continue;
            }
            work.plan.restart();
            match work
                .plan
                .add_rule(&context, *index, EnforcementMode::Shadow)
            {
                AddedRule::Planned if work.plan.planned().is_empty() => {}
                AddedRule::Planned => return true,
                AddedRule::NoKey | AddedRule::TooMany | AddedRule::Blocked(_) => {
                    if charges {
                        count(context.generation, *index, Event::WouldDeny);
                    }
                }
            }
        }
        false
    }

    /// The store has answered about one shadow limit.
    pub(super) fn shadow_answered(&mut self, outcome: Result<&BatchOutcome, &StoreError>) {
        let charges = self.charges();
        let generation = &self.generation;
        let work = &mut self.scratch.work;
        match outcome {
            Err(_) => {
                if let Some(planned) = work.plan.planned().first().filter(|_| charges) {
                    count(generation, planned.rule, Event::Error);
                }
                return self.next_shadow();
            }
            // As with enforced limits: ask again without counting a distinct value that is known already.
            Ok(outcome) if !outcome.is_admitted() && work.plan.forgo_seen() => return,
            Ok(_) => {}
        }
        work.shadow_states = work.verdict.states().len();
        work.opinions.clear();
        if charges {
            work.opinions.extend(first_opinion(generation, &work.plan));
        }
        record(generation, work, EnforcementMode::Shadow);
        if !charges {
            return self.next_shadow();
        }
        if work.plan.is_admitted() {
            return self.finish_shadow();
        }
        let Work {
            plan, follow_ups, ..
        } = work;
        follow_ups.punish(plan, generation);
        self.step = Step::ShadowFollowUp;
        self.skip_if_no_follow_up();
    }

    /// Counts what the shadow limit said and goes on with its candidate.
    pub(super) fn finish_shadow(&mut self) {
        let work = &mut self.scratch.work;
        let is_admitted = work.plan.is_admitted();
        count_all(&self.generation, &work.plan, is_admitted, Event::WouldDeny);
        if is_admitted {
            self.collect_ticket();
        }
        self.next_candidate(EnforcementMode::Shadow);
    }
}
