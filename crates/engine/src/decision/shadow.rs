//! The shadow step of a decision: each shadow limit is decided by itself after the request is admitted, and never
//! denies it.
//!
//! Must not know: how enforced limits are decided.

use tollgate_core::compose::BatchOutcome;
use tollgate_policy::model::Mode;
use tollgate_store::StoreError;

use super::record::{count, count_rules, record};
use super::{Decision, DecisionStep, Work};
use crate::candidate::first_rule_outcome;
use crate::counters::LimitEvent;
use crate::plan::AddedRule;
use crate::verdict::EnforcementMode;

impl Decision<'_> {
    /// Plans the next shadow limit; after the last one the decision is done.
    #[inline]
    pub(super) fn next_shadow(&mut self) {
        // Without modes, all limits are enforced.
        let has_shadow = !self.scratch.work.modes.is_empty();
        self.step = if has_shadow && self.plan_shadow() {
            DecisionStep::Shadow
        } else {
            DecisionStep::Done
        };
    }

    /// Whether another shadow limit has checks for the store.
    fn plan_shadow(&mut self) -> bool {
        if !self.scratch.work.verdict.is_admitted() {
            return false;
        }
        let charges = self.charges();
        let (context, work) = self.split();
        let rules = context.matched.rules();
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
                        count(context.generation, *index, LimitEvent::WouldDeny);
                    }
                }
            }
        }
        false
    }

    /// Handles the replies to one shadow limit's batch.
    pub(super) fn on_shadow_replies(&mut self, outcome: Result<&BatchOutcome, &StoreError>) {
        let charges = self.charges();
        match outcome {
            Err(_) => {
                let planned = self.scratch.work.plan.planned().first();
                if let Some(planned) = planned.filter(|_| charges) {
                    count(&self.generation, planned.rule, LimitEvent::Error);
                }
                return self.next_shadow();
            }
            Ok(outcome) if !outcome.is_admitted() && self.retry_denied() => return,
            Ok(_) => {}
        }
        let generation = &self.generation;
        let work = &mut self.scratch.work;
        work.shadow_states_start = work.verdict.states().len();
        work.rule_outcomes.clear();
        if charges {
            work.rule_outcomes
                .extend(first_rule_outcome(generation, &work.plan));
        }
        record(generation, work, EnforcementMode::Shadow, |_, _| ());
        if !charges {
            return self.next_shadow();
        }
        if work.plan.is_admitted() {
            return self.finish_shadow();
        }
        let Work {
            plan, follow_ups, ..
        } = work;
        follow_ups.queue_penalties(plan, generation);
        self.step = DecisionStep::ShadowFollowUp;
        self.skip_if_no_follow_up();
    }

    /// Counts the shadow limit's result and continues with its candidate.
    pub(super) fn finish_shadow(&mut self) {
        let work = &mut self.scratch.work;
        let is_admitted = work.plan.is_admitted();
        count_rules(
            &self.generation,
            &work.plan,
            is_admitted,
            LimitEvent::WouldDeny,
        );
        if is_admitted {
            self.collect_ticket();
        }
        self.next_candidate(EnforcementMode::Shadow);
    }
}
