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
use crate::asks::Asks;
use crate::decide::{Decision, looked_at};
use crate::findings::Findings;
use crate::generation::Generation;
use crate::plan::{Asking, Plan, Planned};
use crate::ticket::Ticket;
use crate::verdict::Standing;

/// What a rule with a candidate said about a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word {
    pub(crate) rule: usize,
    /// Whether it admits.
    pub(crate) admits: bool,
    /// What the request costs under it.
    pub(crate) cost: u64,
    /// Whether its candidate could have made a difference. If not it is only charged.
    is_compared: bool,
    counts_denials: bool,
}

/// The words of all rules that a candidate is to be compared with.
#[derive(Debug)]
pub(crate) struct Words {
    words: [Option<Word>; MAX_CHECKS],
    len: usize,
}

impl Words {
    /// What the rules of a plan have said. If one rule refuses the request, its candidate alone could change that; if
    /// several do, or nobody was asked, nobody's could. Candidates of limits that count denials are charged with every
    /// denial all the same.
    pub(crate) fn of(generation: &Generation, plan: &Plan) -> Self {
        let mut said = Self {
            words: [None; MAX_CHECKS],
            len: 0,
        };
        let (mut refuse, mut refusing) = (0_usize, None);
        let mut outcomes = plan.outcomes().peekable();
        while let Some((first, _)) = outcomes.peek() {
            let rule = first.rule;
            let mut sum = RuleSum::default();
            while let Some((planned, outcome)) = outcomes.next_if(|(one, _)| one.rule == rule) {
                sum.add(planned, outcome);
            }
            if sum.denies {
                refuse = refuse.saturating_add(1);
                refusing = Some(rule);
            }
            said.add(generation, rule, &sum);
        }
        if refuse > 0 {
            said.keep(|word| {
                word.is_compared &= refuse == 1 && refusing == Some(word.rule);
                word.is_compared || word.counts_denials
            });
        } else if !plan.is_answered() {
            said.keep(|word| {
                word.is_compared = false;
                word.counts_denials
            });
        }
        said
    }

    fn add(&mut self, generation: &Generation, index: usize, sum: &RuleSum) {
        let Some((rule, entry)) = generation.rule(index) else {
            return;
        };
        if let (true, Some(cost)) = (entry.trial.is_some(), sum.cost)
            && let Some(place) = self.words.get_mut(self.len)
        {
            *place = Some(Word {
                rule: index,
                admits: !sum.denies,
                cost,
                is_compared: !sum.is_blocked,
                counts_denials: rule.count == Count::Denials,
            });
            self.len += 1;
        }
    }

    fn keep(&mut self, mut which: impl FnMut(&mut Word) -> bool) {
        for place in &mut self.words {
            *place = place.and_then(|mut word| which(&mut word).then_some(word));
        }
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
}

/// What the meters of one rule said together.
#[derive(Default)]
struct RuleSum {
    denies: bool,
    is_blocked: bool,
    cost: Option<u64>,
}

impl RuleSum {
    fn add(&mut self, planned: &Planned, outcome: Option<Outcome>) {
        let denies = outcome.is_some_and(|outcome| !outcome.is_admitted());
        self.denies |= denies;
        self.is_blocked |= denies && planned.role == Role::Block;
        if planned.role == Role::Main {
            self.cost = self.cost.or(Some(planned.cost));
        }
    }
}

impl<S: Asks> Decision<'_, S> {
    /// Asks the candidates of the rules that have spoken, charges them as if they had been enforced, and counts where they
    /// differ. The plan is used for it; keys that it has made are kept.
    pub(crate) async fn compare(
        &self,
        asking: &Asking<'_>,
        generation: &Arc<Generation>,
        (words, standing): (impl Iterator<Item = Word>, Standing),
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
            let goes_on = findings.is_admitted();
            self.compare_one(asking, &word, (rule, trial), plan, (standing, goes_on))
                .await;
            if findings.is_admitted() {
                Ticket::collect(&mut findings.ticket, generation, plan, self.reserves);
            }
        }
    }

    /// Leaves in the plan what the candidate was charged.
    async fn compare_one(
        &self,
        asking: &Asking<'_>,
        word: &Word,
        (rule, trial): (&Rule, &Trial),
        plan: &mut Plan,
        (standing, goes_on): (Standing, bool),
    ) {
        plan.restart();
        if !plan.add_candidate(asking, word, standing, goes_on) {
            return plan.restart();
        }
        if !word.is_compared {
            self.charge_later(asking, rule, plan, goes_on).await;
            return plan.restart();
        }
        if plan.ask(asking.generation, &self.store).await.is_err() {
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
        self.charge_later(asking, rule, plan, goes_on).await;
        if !admits {
            // Nothing was charged, so nothing is owed.
            plan.restart();
        }
    }

    /// What a denial costs under a candidate: by its own penalty, or because it is denials that it counts.
    async fn charge_later(&self, asking: &Asking<'_>, rule: &Rule, plan: &Plan, goes_on: bool) {
        for (position, (planned, outcome)) in plan.outcomes().enumerate() {
            let is_denied = matches!(outcome, Some(Outcome::Deny { .. }));
            let is_spent = matches!(planned.op, Op::Spend(_));
            let op = if rule.penalty == Penalty::Count && is_denied && is_spent {
                Op::ChargeAlways(planned.cost)
            } else if rule.count == Count::Denials && !goes_on {
                Op::Spend(planned.cost)
            } else {
                continue;
            };
            // A comparison goes on whether or not this could be charged.
            let charged = plan.ask_alone(asking.generation, &self.store, position, op);
            drop(charged.await);
        }
    }
}
