//! An independent decision procedure: a list of limits, states in a map, and core quotas asked directly. It is slow and
//! shares no code with the engine.

use std::collections::HashMap;

use tollgate_core::compose::BatchOutcome;
use tollgate_core::limit::{Limit, Op, Quota, State};
use tollgate_core::{Nanos, Outcome, QuotaStatus, Timestamp, TokenBucket};

/// One limit of the oracle.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) name: String,
    pub(super) is_enforced: bool,
    pub(super) is_off: bool,
    pub(super) method: Option<&'static str>,
    pub(super) post_cost: u64,
    pub(super) cost: u64,
    pub(super) meters: Vec<Meter>,
    pub(super) always: bool,
    pub(super) penalty: Penalty,
    /// The wait, in whole intervals of the bucket.
    pub(super) wait: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Penalty {
    None,
    Count,
    Block(Nanos),
}

#[derive(Clone, Debug)]
pub(super) struct Meter {
    /// The parts of a request that form its key.
    pub(super) key: Vec<&'static str>,
    pub(super) limit: Limit,
    /// The quota for callers with the plan `pro`.
    pub(super) pro: Option<Limit>,
}

/// A request in the oracle's terms.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) user: &'static str,
    pub(super) org: &'static str,
    pub(super) method: &'static str,
    pub(super) is_pro: bool,
}

/// A bug in the oracle that the comparison must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OracleBug {
    /// A limit that admits is charged although another one denies.
    ChargesDenied,
    /// Shadow limits decide like enforced ones.
    ShadowDecides,
    /// The last limit that denies is binding, instead of the one with the longest wait.
    LastDenialBinds,
}

/// The expected state of one meter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExpectedState {
    pub(super) rule: String,
    pub(super) is_enforced: bool,
    pub(super) outcome: Outcome,
    pub(super) status: QuotaStatus,
}

#[derive(Debug)]
pub(super) struct Oracle {
    rules: Vec<Rule>,
    states: HashMap<(String, usize, String), State>,
    blocked: HashMap<(String, String), Timestamp>,
    bug: Option<OracleBug>,
}

impl Oracle {
    pub(super) fn new(rules: Vec<Rule>, bug: Option<OracleBug>) -> Self {
        Self {
            rules,
            states: HashMap::new(),
            blocked: HashMap::new(),
            bug,
        }
    }

    /// Decides on a request; returns the outcome and the state of every limit.
    pub(super) fn decide(
        &mut self,
        request: Request,
        now: Timestamp,
    ) -> (Outcome, Vec<ExpectedState>) {
        let applies = |rule: &&Rule| {
            !rule.is_off && rule.method.is_none_or(|method| method == request.method)
        };
        let rules: Vec<Rule> = self.rules.iter().filter(applies).cloned().collect();
        let decides = |rule: &&Rule| rule.is_enforced || self.bug == Some(OracleBug::ShadowDecides);
        let (enforced, shadow): (Vec<&Rule>, Vec<&Rule>) = rules.iter().partition(decides);
        let mut states = self.batch(&enforced, request, now);
        let strictest: BatchOutcome = states.iter().map(|state| state.outcome).collect();
        let mut outcome = strictest.outcome();
        if self.bug == Some(OracleBug::LastDenialBinds) {
            let denied = states
                .iter()
                .rev()
                .find(|state| !state.outcome.is_admitted());
            outcome = denied.map_or(outcome, |state| state.outcome);
        }
        if outcome.is_admitted() {
            for rule in shadow {
                states.extend(self.batch(&[rule], request, now));
            }
        }
        (outcome, states)
    }

    /// Several rules, all or nothing.
    fn batch(&mut self, rules: &[&Rule], request: Request, now: Timestamp) -> Vec<ExpectedState> {
        let mut outcomes = Vec::new();
        let mut is_admitted = true;
        for rule in rules {
            for index in 0..rule.meters.len() {
                let outcome = self.decide_meter(rule, index, request, now, false);
                is_admitted &= outcome.is_admitted();
                outcomes.push((*rule, Some(index), outcome));
            }
            let until = self.blocked.get(&blocked_key(rule, request));
            if let Some(until) = until.filter(|until| **until > now) {
                let retry_after = until.since(now);
                is_admitted = false;
                outcomes.push((*rule, None, Outcome::Deny { retry_after }));
            }
        }
        for (rule, index, outcome) in &outcomes {
            let charges = is_admitted || self.bug == Some(OracleBug::ChargesDenied);
            if let (true, true, Some(index)) = (charges, outcome.is_admitted(), index) {
                self.decide_meter(rule, *index, request, now, true);
            }
        }
        let mut states = Vec::new();
        for (rule, index, outcome) in outcomes {
            let Some(index) = index else {
                states.push(self.expected_state(rule, None, request, now, outcome));
                continue;
            };
            let outcome = self.apply_penalties(rule, index, request, now, outcome);
            states.push(self.expected_state(rule, Some(index), request, now, outcome));
        }
        states
    }

    /// Applies the rule's penalty if the meter denied; returns the updated outcome.
    fn apply_penalties(
        &mut self,
        rule: &Rule,
        index: usize,
        request: Request,
        now: Timestamp,
        outcome: Outcome,
    ) -> Outcome {
        if !matches!(outcome, Outcome::Deny { .. } | Outcome::Never) {
            return outcome;
        }
        match rule.penalty {
            Penalty::None => outcome,
            Penalty::Count => {
                let limit = rule.limit(index, request);
                let state = self.state(rule, index, request);
                let op = Op::ChargeAlways(rule.cost_of(request));
                let charged = limit.decide(state, now, op).unwrap();
                charged.next.into_iter().for_each(|edit| state.apply(edit));
                let after = self.decide_meter(rule, index, request, now, false);
                if after.is_admitted() { outcome } else { after }
            }
            Penalty::Block(length) => {
                let until = self.blocked.entry(blocked_key(rule, request)).or_default();
                if *until <= now {
                    *until = now.after(length);
                }
                let blocked = until.since(now);
                match outcome {
                    Outcome::Deny { retry_after } => Outcome::Deny {
                        retry_after: blocked.max(retry_after),
                    },
                    // The end of the block does not help.
                    other => other,
                }
            }
        }
    }

    /// The outcome of one meter; with `charges`, its new state is stored.
    fn decide_meter(
        &mut self,
        rule: &Rule,
        index: usize,
        request: Request,
        now: Timestamp,
        charges: bool,
    ) -> Outcome {
        let (limit, cost, wait) = (rule.limit(index, request), rule.cost_of(request), rule.wait);
        let state = self.state(rule, index, request);
        let op = if rule.always {
            Op::ChargeAlways(cost)
        } else {
            Op::Spend(cost)
        };
        let mut outcomes = limit.decide(state, now, op).unwrap();
        if let (Outcome::Deny { retry_after }, false) = (outcomes.outcome, wait.is_zero()) {
            outcomes = if retry_after <= wait {
                let mut late = limit.decide(state, now, Op::ChargeAlways(cost)).unwrap();
                late.outcome = Outcome::Wait(retry_after);
                late
            } else {
                outcomes.outcome = Outcome::Deny {
                    retry_after: retry_after.saturating_sub(wait),
                };
                outcomes
            };
        }
        let corrects = !outcomes.outcome.is_admitted();
        if charges || corrects {
            outcomes.next.into_iter().for_each(|edit| state.apply(edit));
        }
        outcomes.outcome
    }

    fn expected_state(
        &mut self,
        rule: &Rule,
        index: Option<usize>,
        request: Request,
        now: Timestamp,
        outcome: Outcome,
    ) -> ExpectedState {
        let status = match (index, outcome) {
            (Some(index), _) => {
                let limit = rule.limit(index, request);
                limit.status(self.state(rule, index, request), now)
            }
            (None, Outcome::Deny { retry_after }) => QuotaStatus {
                limit: 1,
                remaining: 0,
                reset_after: retry_after,
            },
            _ => panic!("a block denies"),
        };
        ExpectedState {
            rule: rule.name.clone(),
            is_enforced: rule.is_enforced,
            outcome,
            status,
        }
    }

    fn state(&mut self, rule: &Rule, index: usize, request: Request) -> &mut State {
        let key = rule.meters[index].key_of(request);
        self.states
            .entry((rule.name.clone(), index, key))
            .or_default()
    }
}

impl Rule {
    fn limit(&self, index: usize, request: Request) -> Limit {
        let meter = &self.meters[index];
        meter.pro.filter(|_| request.is_pro).unwrap_or(meter.limit)
    }

    fn cost_of(&self, request: Request) -> u64 {
        if request.method == "POST" {
            self.post_cost
        } else {
            self.cost
        }
    }
}

impl Meter {
    fn key_of(&self, request: Request) -> String {
        let part = |name: &&str| match *name {
            "header.user" => format!("user {}", request.user),
            _ => format!("org {}", request.org),
        };
        self.key.iter().map(part).collect()
    }
}

/// The length of a wait in whole intervals of the bucket.
pub(super) fn whole_intervals(limit: &Limit, wait: Nanos) -> Nanos {
    let bucket: &TokenBucket = match limit.quota() {
        Quota::TokenBucket(bucket) => bucket,
        _ => panic!("only buckets support waiting"),
    };
    let interval = bucket.interval().as_nanos();
    Nanos::from_nanos(wait.as_nanos() / interval * interval)
}

fn blocked_key(rule: &Rule, request: Request) -> (String, String) {
    let narrowest = rule.meters.last().unwrap();
    (rule.name.clone(), narrowest.key_of(request))
}
