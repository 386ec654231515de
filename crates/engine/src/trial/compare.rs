//! Asking a candidate what it would have said.
//!
//! Must not know: how enforced limits are decided, what is done with the numbers.

use std::sync::Arc;

use tollgate_core::Outcome;
use tollgate_policy::model::{Count, Penalty};
use tollgate_policy::rules::{Role, Rule};
use tollgate_store::Op;
use tollgate_store::contract::MAX_CHECKS;

use super::{Compared, Trial};
use crate::decide::{Decision, looked_at};
use crate::findings::Findings;
use crate::generation::Generation;
use crate::plan::{Asking, Plan};
use crate::store::StateStore;
use crate::ticket::Ticket;

/// What a rule with a candidate said about a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word {
    pub(crate) rule: usize,
    /// Whether it admits.
    pub(crate) admits: bool,
    /// What the request costs under it.
    pub(crate) cost: u64,
}

/// The words of all rules that a candidate is to be compared with.
#[derive(Debug)]
pub(crate) struct Words {
    words: [Option<Word>; MAX_CHECKS],
    len: usize,
}

impl Words {
    /// What the rules of a plan have said. If one rule refuses the request, its candidate alone could change that; if
    /// several do, nobody's could.
    pub(crate) fn of(generation: &Generation, plan: &Plan) -> Self {
        let mut said = Self {
            words: [None; MAX_CHECKS],
            len: 0,
        };
        let mut refusing = None;
        let mut refuse = 0_usize;
        let mut answered = plan.answered().peekable();
        while let Some((first, _)) = answered.peek() {
            let rule = first.rule;
            let (mut denies, mut is_blocked, mut cost) = (false, false, None);
            while let Some((planned, answer)) = answered.next_if(|(one, _)| one.rule == rule) {
                let denies_here = !answer.outcome.is_admitted();
                denies |= denies_here;
                is_blocked |= denies_here && planned.role == Role::Block;
                if planned.role == Role::Main {
                    cost = cost.or(Some(planned.cost));
                }
            }
            if denies {
                refuse = refuse.saturating_add(1);
                refusing = Some(rule);
            }
            let has_candidate = generation
                .rule(rule)
                .is_some_and(|(_, entry)| entry.trial.is_some());
            if let (true, false, Some(cost)) = (has_candidate, is_blocked, cost) {
                said.push(Word {
                    rule,
                    admits: !denies,
                    cost,
                });
            }
        }
        if refuse > 0 {
            let decides = |word: &Word| refuse == 1 && refusing == Some(word.rule);
            for word in &mut said.words {
                *word = word.filter(decides);
            }
        }
        said
    }

    /// What the only rule of a plan has said, if it has a candidate.
    pub(crate) fn first(generation: &Generation, plan: &Plan) -> Option<Word> {
        if !generation.has_trials() {
            return None;
        }
        Self::of(generation, plan).iter().next()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Word> {
        self.words.iter().take(self.len).flatten().copied()
    }

    fn push(&mut self, word: Word) {
        if let Some(place) = self.words.get_mut(self.len) {
            *place = Some(word);
            self.len += 1;
        }
    }
}

impl<S: StateStore> Decision<'_, S> {
    /// Asks the candidates of the rules that have spoken, charges them as if they had been enforced, and counts where they
    /// differ. The plan is used for it; keys that it has made are kept.
    pub(crate) fn compare(
        &self,
        asking: &Asking<'_>,
        generation: &Arc<Generation>,
        words: impl Iterator<Item = Word>,
        plan: &mut Plan,
        findings: &mut Findings,
    ) {
        for word in words {
            let Some((rule, entry)) = generation.rule(word.rule) else {
                continue;
            };
            let Some(trial) = &entry.trial else {
                continue;
            };
            self.compare_one(asking, &word, (rule, trial), plan, findings.is_admitted());
            if findings.is_admitted() {
                Ticket::collect(&mut findings.ticket, generation, plan);
            }
        }
    }

    /// Leaves in the plan what the candidate was charged.
    fn compare_one(
        &self,
        asking: &Asking<'_>,
        word: &Word,
        (rule, trial): (&Rule, &Trial),
        plan: &mut Plan,
        goes_on: bool,
    ) {
        plan.restart();
        if !plan.add_candidate(asking, word, goes_on) {
            return plan.restart();
        }
        if plan.ask(asking.generation, self.store).is_err() {
            trial.count_unknown();
            return plan.restart();
        }
        let mut answered = plan.answered();
        let admits = answered.all(|(planned, answer)| looked_at(planned, answer).is_admitted());
        drop(answered);
        let compared = match (word.admits, admits) {
            (true, false) => Compared::WouldDeny,
            (false, true) => Compared::WouldAllow,
            _ => Compared::Alike,
        };
        let key = plan.planned().first();
        let key = key.map_or(&[][..], |planned| plan.key_of(planned));
        trial.count(compared, || asking.generation.rules().digest(key), key);
        self.charge_later(asking, rule, plan, goes_on);
        if !admits {
            // Nothing was charged, so nothing is owed.
            plan.restart();
        }
    }

    /// What a denial costs under a candidate: by its own penalty, or because it is denials that it counts.
    fn charge_later(&self, asking: &Asking<'_>, rule: &Rule, plan: &Plan, goes_on: bool) {
        for (position, (planned, answer)) in plan.answered().enumerate() {
            let is_denied = matches!(answer.outcome, Outcome::Deny { .. });
            let is_spent = matches!(planned.op, Op::Spend(_));
            let op = if rule.penalty == Penalty::Count && is_denied && is_spent {
                Op::ChargeAlways(planned.cost)
            } else if rule.count == Count::Denials && !goes_on {
                Op::Spend(planned.cost)
            } else {
                continue;
            };
            // A comparison goes on whether or not this could be charged.
            drop(plan.ask_alone(asking.generation, self.store, position, op));
        }
    }
}
