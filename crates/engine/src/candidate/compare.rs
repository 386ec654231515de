//! Compares what a limit decided about a request with what its candidate would have decided.
//!
//! Must not know: how requests are decided, who asks the store, who reads the totals.

use arrayvec::ArrayVec;
use tollgate_core::Outcome;
use tollgate_policy::model::Count;
use tollgate_policy::rules::MeterRole;
use tollgate_store::contract::MAX_CHECKS;

use super::ComparisonOutcome;
use crate::decision::peeked_outcome;
use crate::generation::Generation;
use crate::plan::{Plan, PlannedCheck};

/// What a rule with a candidate decided about a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuleOutcome {
    pub(crate) rule: usize,
    /// Whether the rule admits the request.
    pub(crate) is_admitted: bool,
    /// The cost of the request under this rule.
    pub(crate) cost: u64,
    /// Whether the candidate could have changed the verdict. If not, the candidate is charged but not compared.
    pub(crate) is_compared: bool,
    counts_denials: bool,
}

/// The outcomes of all rules in a plan that have a candidate.
pub(crate) type RuleOutcomes = ArrayVec<RuleOutcome, MAX_CHECKS>;

/// Collects the outcomes of the rules in a plan that have a candidate.
///
/// If exactly one rule denies the request, only its candidate could change the verdict. If several deny, or the store
/// was not asked, no candidate could. Candidates of limits that count denials are charged with every denial in any
/// case.
pub(crate) fn collect_rule_outcomes(
    generation: &Generation,
    plan: &Plan,
    outcomes: &mut RuleOutcomes,
) {
    outcomes.clear();
    let (mut denials, mut denied_rule) = (0_usize, None);
    let mut checks = plan.outcomes().peekable();
    while let Some((first, _)) = checks.peek() {
        let rule = first.rule;
        let mut builder = RuleOutcomeBuilder::default();
        while let Some((planned, outcome)) = checks.next_if(|(planned, _)| planned.rule == rule) {
            builder.add(planned, outcome);
        }
        if builder.is_denied {
            denials = denials.saturating_add(1);
            denied_rule = Some(rule);
        }
        // A plan has at most as many rules as checks.
        if let Some(outcome) = rule_outcome(generation, rule, &builder) {
            let _fits = outcomes.try_push(outcome).is_ok();
        }
    }
    if denials > 0 {
        outcomes.retain(|outcome| {
            outcome.is_compared &= denials == 1 && denied_rule == Some(outcome.rule);
            outcome.is_compared || outcome.counts_denials
        });
    } else if !plan.has_replies() {
        outcomes.retain(|outcome| {
            outcome.is_compared = false;
            outcome.counts_denials
        });
    }
}

/// The outcome of the only rule in a plan, if that rule has a candidate.
pub(crate) fn first_rule_outcome(generation: &Generation, plan: &Plan) -> Option<RuleOutcome> {
    if !generation.has_candidates() {
        return None;
    }
    let mut outcomes = RuleOutcomes::new();
    collect_rule_outcomes(generation, plan, &mut outcomes);
    outcomes.first().copied()
}

fn rule_outcome(
    generation: &Generation,
    index: usize,
    sum: &RuleOutcomeBuilder,
) -> Option<RuleOutcome> {
    let (rule, limit) = generation.rule(index)?;
    limit.comparison.as_ref()?;
    Some(RuleOutcome {
        rule: index,
        is_admitted: !sum.is_denied,
        cost: sum.cost?,
        is_compared: !sum.is_blocked,
        counts_denials: rule.count == Count::Denials,
    })
}

/// Records whether a candidate agrees with its limit, once the candidate's batch has replies. Returns whether the
/// candidate admits the request, and so was charged.
pub(crate) fn compare(generation: &Generation, plan: &Plan, outcome: &RuleOutcome) -> bool {
    let mut replies = plan.with_replies();
    let is_admitted = replies.all(|(planned, reply)| peeked_outcome(planned, reply).is_admitted());
    let compared = match (outcome.is_admitted, is_admitted) {
        (true, false) => ComparisonOutcome::WouldDeny,
        (false, true) => ComparisonOutcome::WouldAllow,
        _ => ComparisonOutcome::Same,
    };
    let limit = generation.rule(outcome.rule).map(|(_, limit)| limit);
    if let Some(comparison) = limit.and_then(|limit| limit.comparison.as_ref()) {
        let key = plan.planned().first();
        let key = key.map_or(&[][..], |planned| plan.key(planned.key));
        comparison.record(compared, || generation.rules().digest(key), key);
    }
    is_admitted
}

/// Combines the outcomes of one rule's meters.
#[derive(Default)]
struct RuleOutcomeBuilder {
    is_denied: bool,
    is_blocked: bool,
    cost: Option<u64>,
}

impl RuleOutcomeBuilder {
    fn add(&mut self, planned: &PlannedCheck, outcome: Option<Outcome>) {
        let denies = outcome.is_some_and(|outcome| !outcome.is_admitted());
        self.is_denied |= denies;
        self.is_blocked |= denies && planned.role == MeterRole::Block;
        if planned.role == MeterRole::Main {
            self.cost = self.cost.or(Some(planned.cost));
        }
    }
}
