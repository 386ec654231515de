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
pub(crate) fn collect_rule_outcomes(generation: &Generation, plan: &Plan, all: &mut RuleOutcomes) {
    all.clear();
    let (mut refuse, mut refusing) = (0_usize, None);
    let mut outcomes = plan.outcomes().peekable();
    while let Some((first, _)) = outcomes.peek() {
        let rule = first.rule;
        let mut sum = RuleOutcomeBuilder::default();
        while let Some((planned, outcome)) = outcomes.next_if(|(one, _)| one.rule == rule) {
            sum.add(planned, outcome);
        }
        if sum.is_denied {
            refuse = refuse.saturating_add(1);
            refusing = Some(rule);
        }
        // A plan has at most as many rules as checks.
        if let Some(opinion) = rule_outcome(generation, rule, &sum) {
            let _fits = all.try_push(opinion).is_ok();
        }
    }
    if refuse > 0 {
        all.retain(|opinion| {
            opinion.is_compared &= refuse == 1 && refusing == Some(opinion.rule);
            opinion.is_compared || opinion.counts_denials
        });
    } else if !plan.has_replies() {
        all.retain(|opinion| {
            opinion.is_compared = false;
            opinion.counts_denials
        });
    }
}

/// The outcome of the only rule in a plan, if that rule has a candidate.
pub(crate) fn first_rule_outcome(generation: &Generation, plan: &Plan) -> Option<RuleOutcome> {
    if !generation.has_candidates() {
        return None;
    }
    let mut all = RuleOutcomes::new();
    collect_rule_outcomes(generation, plan, &mut all);
    all.first().copied()
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
pub(crate) fn compare(generation: &Generation, plan: &Plan, opinion: &RuleOutcome) -> bool {
    let mut answered = plan.with_replies();
    let admits = answered.all(|(planned, reply)| peeked_outcome(planned, reply).is_admitted());
    let compared = match (opinion.is_admitted, admits) {
        (true, false) => ComparisonOutcome::WouldDeny,
        (false, true) => ComparisonOutcome::WouldAllow,
        _ => ComparisonOutcome::Same,
    };
    let limit = generation.rule(opinion.rule).map(|(_, limit)| limit);
    if let Some(comparison) = limit.and_then(|limit| limit.comparison.as_ref()) {
        let key = plan.planned().first();
        let key = key.map_or(&[][..], |planned| plan.key(planned.key));
        comparison.record(compared, || generation.rules().digest(key), key);
    }
    admits
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
