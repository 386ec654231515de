//! Candidates beside the limits that they may replace: asked after them, charged as if they were enforced, compared.
//!
//! Must not know: how limits are decided, what is done with the numbers.

use super::{Decision, DecisionStep, Work};
use crate::candidate::{collect_rule_outcomes, compare};
use crate::verdict::EnforcementMode;

impl Decision<'_> {
    /// Goes on with the candidates of the enforced limits.
    pub(super) fn begin_candidates(&mut self) {
        let work = &mut self.scratch.work;
        collect_rule_outcomes(&self.generation, &work.plan, &mut work.rule_outcomes);
        // The first limit's candidate is asked first, and the last opinion is taken first.
        work.rule_outcomes.reverse();
        self.next_candidate(EnforcementMode::Enforced);
    }

    /// Plans the next candidate; after the last one the shadow limits go on.
    pub(super) fn next_candidate(&mut self, enforcement: EnforcementMode) {
        loop {
            let (context, work) = self.split();
            let Some(opinion) = work.rule_outcomes.last().copied() else {
                return self.next_shadow();
            };
            let goes_on = work.verdict.is_admitted();
            work.plan.restart();
            let is_planned = work
                .plan
                .add_candidate(&context, &opinion, enforcement, goes_on);
            if is_planned && opinion.is_compared {
                self.step = DecisionStep::Candidate;
                return;
            }
            if is_planned {
                let Work {
                    plan, follow_ups, ..
                } = work;
                follow_ups.queue_candidate_charges(plan, context.generation, goes_on);
                if follow_ups.has_next() {
                    self.step = DecisionStep::CandidateFollowUp { is_charged: false };
                    return;
                }
            }
            self.scratch.work.rule_outcomes.pop();
        }
    }

    /// The store has answered about one candidate.
    pub(super) fn on_candidate_replies(&mut self, is_answered: bool) {
        let generation = &self.generation;
        let Work {
            plan,
            verdict,
            follow_ups,
            rule_outcomes: opinions,
            ..
        } = &mut self.scratch.work;
        let is_charged = match opinions.last() {
            Some(opinion) if is_answered => {
                let is_charged = compare(generation, plan, opinion);
                follow_ups.queue_candidate_charges(plan, generation, verdict.is_admitted());
                is_charged
            }
            Some(opinion) => {
                if let Some((_, limit)) = generation.rule(opinion.rule)
                    && let Some(comparison) = &limit.comparison
                {
                    comparison.record_unknown();
                }
                false
            }
            None => false,
        };
        self.step = DecisionStep::CandidateFollowUp { is_charged };
        self.skip_if_no_follow_up();
    }

    /// Everything was charged to one candidate.
    pub(super) fn finish_candidate(&mut self, is_charged: bool) {
        if is_charged && self.scratch.work.verdict.is_admitted() {
            self.collect_ticket();
        }
        self.scratch.work.rule_outcomes.pop();
        // Opinions of shadow limits come one at a time, so what is left belongs to enforced ones.
        let is_shadow = self.scratch.work.next_shadow > 0;
        self.next_candidate(if is_shadow {
            EnforcementMode::Shadow
        } else {
            EnforcementMode::Enforced
        });
    }
}
