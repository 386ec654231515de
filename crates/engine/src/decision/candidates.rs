//! Candidates beside the limits that they may replace: asked after them, charged as if they were enforced, compared.
//!
//! Must not know: how limits are decided, what is done with the numbers.

use super::{Decision, Step, Work};
use crate::candidate::{compare, opinions};
use crate::verdict::EnforcementMode;

impl Decision<'_> {
    /// Goes on with the candidates of the enforced limits.
    pub(super) fn begin_candidates(&mut self) {
        let work = &mut self.scratch.work;
        opinions(&self.generation, &work.plan, &mut work.opinions);
        // The first limit's candidate is asked first, and the last opinion is taken first.
        work.opinions.reverse();
        self.next_candidate(EnforcementMode::Enforced);
    }

    /// Plans the next candidate; after the last one the shadow limits go on.
    pub(super) fn next_candidate(&mut self, enforcement: EnforcementMode) {
        loop {
            let (context, work) = self.split();
            let Some(opinion) = work.opinions.last().copied() else {
                return self.next_shadow();
            };
            let goes_on = work.verdict.is_admitted();
            work.plan.restart();
            let is_planned = work
                .plan
                .add_candidate(&context, &opinion, enforcement, goes_on);
            if is_planned && opinion.is_compared {
                self.step = Step::Candidate;
                return;
            }
            if is_planned {
                let Work {
                    plan, follow_ups, ..
                } = work;
                follow_ups.charge_candidate(plan, context.generation, goes_on);
                if follow_ups.has_next() {
                    self.step = Step::CandidateFollowUp { is_charged: false };
                    return;
                }
            }
            self.scratch.work.opinions.pop();
        }
    }

    /// The store has answered about one candidate.
    pub(super) fn candidate_answered(&mut self, is_answered: bool) {
        let generation = &self.generation;
        let Work {
            plan,
            verdict,
            follow_ups,
            opinions,
            ..
        } = &mut self.scratch.work;
        let is_charged = match opinions.last() {
            Some(opinion) if is_answered => {
                let is_charged = compare(generation, plan, opinion);
                follow_ups.charge_candidate(plan, generation, verdict.is_admitted());
                is_charged
            }
            Some(opinion) => {
                if let Some((_, limit)) = generation.rule(opinion.rule)
                    && let Some(comparison) = &limit.comparison
                {
                    comparison.count_unknown();
                }
                false
            }
            None => false,
        };
        self.step = Step::CandidateFollowUp { is_charged };
        self.skip_if_no_follow_up();
    }

    /// Everything was charged to one candidate.
    pub(super) fn candidate_followed_up(&mut self, is_charged: bool) {
        if is_charged && self.scratch.work.verdict.is_admitted() {
            self.collect_ticket();
        }
        self.scratch.work.opinions.pop();
        // Opinions of shadow limits come one at a time, so what is left belongs to enforced ones.
        let is_shadow = self.scratch.work.next_shadow > 0;
        self.next_candidate(if is_shadow {
            EnforcementMode::Shadow
        } else {
            EnforcementMode::Enforced
        });
    }
}
