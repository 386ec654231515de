//! The candidate step of a decision: candidates are checked after the enforced limits, charged as if they were
//! enforced, and compared.
//!
//! Must not know: how limits are decided, who reads the totals.

use super::{Decision, DecisionStep, Work};
use crate::candidate::{collect_rule_outcomes, compare};
use crate::verdict::EnforcementMode;

impl Decision<'_> {
    /// Starts with the candidates of the enforced limits.
    pub(super) fn begin_candidates(&mut self) {
        let work = &mut self.scratch.work;
        collect_rule_outcomes(&self.generation, &work.plan, &mut work.rule_outcomes);
        // Outcomes are popped from the end, and the first limit's candidate comes first.
        work.rule_outcomes.reverse();
        self.next_candidate(EnforcementMode::Enforced);
    }

    /// Plans the next candidate; after the last one, the shadow limits.
    pub(super) fn next_candidate(&mut self, enforcement: EnforcementMode) {
        loop {
            let (context, work) = self.split();
            let Some(outcome) = work.rule_outcomes.last().copied() else {
                return self.next_shadow();
            };
            let is_admitted = work.verdict.is_admitted();
            work.plan.restart();
            let is_planned = work
                .plan
                .add_candidate(&context, &outcome, enforcement, is_admitted);
            if is_planned && outcome.is_compared {
                self.step = DecisionStep::Candidate;
                return;
            }
            if is_planned {
                let Work {
                    plan, follow_ups, ..
                } = work;
                follow_ups.queue_candidate_charges(plan, context.generation, is_admitted);
                if follow_ups.has_next() {
                    self.step = DecisionStep::CandidateFollowUp { is_charged: false };
                    return;
                }
            }
            self.scratch.work.rule_outcomes.pop();
        }
    }

    /// Handles the replies to one candidate's batch.
    pub(super) fn on_candidate_replies(&mut self, is_answered: bool) {
        let generation = &self.generation;
        let Work {
            plan,
            verdict,
            follow_ups,
            rule_outcomes,
            ..
        } = &mut self.scratch.work;
        let is_charged = match rule_outcomes.last() {
            Some(outcome) if is_answered => {
                let is_charged = compare(generation, plan, outcome);
                follow_ups.queue_candidate_charges(plan, generation, verdict.is_admitted());
                is_charged
            }
            Some(outcome) => {
                if let Some((_, limit)) = generation.rule(outcome.rule)
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

    /// Ends one candidate after its charges.
    pub(super) fn finish_candidate(&mut self, is_charged: bool) {
        if is_charged && self.scratch.work.verdict.is_admitted() {
            self.collect_ticket();
        }
        self.scratch.work.rule_outcomes.pop();
        // Shadow limits have one outcome at a time, so any others belong to enforced limits.
        let is_shadow = self.scratch.work.next_shadow > 0;
        self.next_candidate(if is_shadow {
            EnforcementMode::Shadow
        } else {
            EnforcementMode::Enforced
        });
    }
}
