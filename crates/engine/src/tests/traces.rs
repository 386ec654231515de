//! Random policies and random requests: engine and oracle agree on every limit, to the nanosecond.

use tollgate_core::limit::Limit;
use tollgate_core::{
    FixedWindow, LeakyBucket, Nanos, Outcome, Rate, SlidingCounter, SlidingLog, TokenBucket, Window,
};
use tollgate_policy::attributes::Attribute;
use tollgate_policy::model::{self, Algorithm, Cost, Level, LimitRule, Mode, Tiers};
use tollgate_store::Clock as _;

use super::oracle::{
    ExpectedState, Meter, Oracle, OracleBug, Penalty, Request, Rule, whole_intervals,
};
use crate::testing::{SeededRng, TestCaller, engine, key, limit, matching, quota};
use crate::{EnforcementMode, Verdict};

const USERS: [&str; 3] = ["alice", "bob", "carol"];
const ORGS: [&str; 2] = ["north", "south"];
const ALGORITHMS: [Algorithm; 6] = [
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
    Algorithm::LeakyQueue,
    Algorithm::FixedWindow,
    Algorithm::SlidingWindow,
    Algorithm::SlidingLog,
];
const PERIODS: [Nanos; 3] = [Nanos::SECOND, Nanos::from_secs(10), Nanos::MINUTE];

/// Which of the expected cases occurred.
#[derive(Debug, Default)]
struct Coverage {
    allowed: u64,
    denied: u64,
    waited: u64,
    never: u64,
    shadow_denied: u64,
    blocked: u64,
}

/// The core quota of a rate, built independently.
fn core_limit(algorithm: Algorithm, units: u64, period: Nanos, overdraft: u64) -> Limit {
    let rate = Rate::new(units, period);
    match algorithm {
        Algorithm::TokenBucket => {
            let bucket = TokenBucket::builder(rate).overdraft(overdraft);
            bucket.build().unwrap().into()
        }
        Algorithm::LeakyBucket => {
            let meter = LeakyBucket::meter(rate).burst(units - 1);
            meter.overdraft(overdraft).build().unwrap().into()
        }
        Algorithm::LeakyQueue => {
            let queue = LeakyBucket::queue(rate).burst(units);
            queue.overdraft(overdraft).build().unwrap().into()
        }
        Algorithm::FixedWindow => {
            let window = FixedWindow::builder(units, Window::Epoch(period));
            window.overdraft(overdraft).build().unwrap().into()
        }
        Algorithm::SlidingWindow => {
            let counter = SlidingCounter::builder(units, period);
            counter.overdraft(overdraft).build().unwrap().into()
        }
        _ => {
            let log = SlidingLog::builder(units, period);
            log.overdraft(overdraft).build().unwrap().into()
        }
    }
}

/// A random limit as a policy rule, and the same for the oracle.
fn random_limit(rng: &mut SeededRng, index: usize) -> (LimitRule, Rule) {
    let name = format!("limit-{index}");
    let algorithm = rng.pick(&ALGORITHMS);
    let units = 1 + rng.below(8);
    let period = rng.pick(&PERIODS);
    let overdraft = rng.pick(&[0, 0, 5]);
    let mut policy_rule = limit(&name, quota(algorithm, &[(units, period)]));
    let keys: [&[&'static str]; 3] = [&[], &["header.user"], &["header.org", "header.user"]];
    let parts = rng.pick(&keys);
    policy_rule.key = key(parts);
    policy_rule.overdraft = overdraft;
    let mut rule = Rule {
        name,
        is_enforced: true,
        is_off: false,
        method: None,
        cost: 1,
        post_cost: 1,
        meters: vec![Meter {
            key: parts.to_vec(),
            limit: core_limit(algorithm, units, period, overdraft),
            pro: None,
        }],
        always: false,
        penalty: Penalty::None,
        wait: Nanos::ZERO,
    };
    random_quotas(
        rng,
        (algorithm, units, overdraft),
        &mut policy_rule,
        &mut rule,
    );
    random_actions(rng, algorithm, &mut policy_rule, &mut rule);
    (policy_rule, rule)
}

/// A second window, levels or tiers.
fn random_quotas(
    rng: &mut SeededRng,
    (algorithm, units, overdraft): (Algorithm, u64, u64),
    policy_rule: &mut LimitRule,
    rule: &mut Rule,
) {
    let week = Nanos::from_secs(7 * 86_400 + 1);
    match rng.below(6) {
        0 if algorithm == Algorithm::FixedWindow => {
            let first = PERIODS[0];
            policy_rule.quota = quota(algorithm, &[(units, first), (units * 5, week)]);
            rule.meters[0].limit = core_limit(algorithm, units, first, overdraft);
            let long = core_limit(algorithm, units * 5, week, overdraft);
            rule.meters.push(Meter {
                limit: long,
                ..rule.meters[0].clone()
            });
        }
        1 => {
            policy_rule.key = Vec::new();
            let level = |name: &str, part, units| Level {
                name: Box::<str>::from(name).into(),
                key: key(&[part]),
                quota: quota(algorithm, &[(units, Nanos::MINUTE)]),
            };
            policy_rule.levels = vec![
                level("org", "header.org", units * 2),
                level("user", "header.user", units),
            ];
            let meter = |key: &[&'static str], units| Meter {
                key: key.to_vec(),
                limit: core_limit(algorithm, units, Nanos::MINUTE, overdraft),
                pro: None,
            };
            rule.meters = vec![
                meter(&["header.org"], units * 2),
                meter(&["header.org", "header.user"], units),
            ];
        }
        2 if algorithm == Algorithm::TokenBucket => {
            let more = quota(algorithm, &[(units * 3, Nanos::MINUTE)]);
            policy_rule.quota = quota(algorithm, &[(units, Nanos::MINUTE)]);
            policy_rule.tiers = Some(Tiers {
                by: Attribute::parse("header.plan").unwrap().into(),
                tiers: vec![(Box::<str>::from("pro").into(), more)],
            });
            let bucket = |units| {
                let bucket = TokenBucket::builder(Rate::per_minute(units)).overdraft(overdraft);
                bucket.build().unwrap()
            };
            let (own, pro) = (bucket(units), bucket(units * 3));
            rule.meters[0].limit = own.sharing_state_with(&pro).into();
            rule.meters[0].pro = Some(pro.sharing_state_with(&own).into());
        }
        _ => {}
    }
}

/// Matching, cost and actions.
fn random_actions(
    rng: &mut SeededRng,
    algorithm: Algorithm,
    policy_rule: &mut LimitRule,
    rule: &mut Rule,
) {
    match rng.below(6) {
        0 => {
            policy_rule.mode = Mode::Shadow;
            rule.is_enforced = false;
        }
        1 if rng.one_in(3) => {
            policy_rule.mode = Mode::Off;
            rule.is_off = true;
        }
        _ => {}
    }
    if rng.one_in(3) {
        let method = rng.pick(&["GET", "POST"]);
        policy_rule.matching = matching("method", method);
        rule.method = Some(method);
    }
    if rng.one_in(3) {
        policy_rule.cost = Cost::ByValue {
            attribute: Attribute::Method,
            values: vec![("POST".into(), 3)],
            otherwise: 1,
        };
        rule.post_cost = 3;
    }
    let is_simple = rule.meters.len() == 1 && policy_rule.tiers.is_none();
    match rng.below(8) {
        0 => {
            policy_rule.penalty = model::Penalty::Count.into();
            rule.penalty = Penalty::Count;
        }
        1 => {
            let length = Nanos::from_secs(5);
            policy_rule.penalty = model::Penalty::Block(length).into();
            rule.penalty = Penalty::Block(length);
        }
        2 => {
            policy_rule.charge_always = true;
            rule.always = true;
        }
        3 | 4 if algorithm == Algorithm::TokenBucket && is_simple => {
            // The oracle's quota for waiting: the same bucket with an overdraft as long as the wait.
            policy_rule.overdraft = 0;
            let wait = Nanos::from_millis(1 + rng.below(20_000));
            policy_rule.wait = Some(wait.into());
            let (units, period) = match &policy_rule.quota.value.amount {
                model::Amount::Rates(rates) => (rates[0].value.units, rates[0].value.period),
                other => panic!("{other:?}"),
            };
            let model::Period::Span(period) = period else {
                panic!("{period:?}")
            };
            let waiting_limit = core_limit(algorithm, units, period, 1_000);
            rule.wait = whole_intervals(&waiting_limit, wait);
            rule.meters[0].limit = waiting_limit;
        }
        _ => {}
    }
}

fn random_request(rng: &mut SeededRng) -> (Request, TestCaller) {
    let request = Request {
        user: rng.pick(&USERS),
        org: rng.pick(&ORGS),
        method: rng.pick(&["GET", "GET", "POST"]),
        is_pro: rng.one_in(3),
    };
    let caller = TestCaller::named(request.user)
        .with("header.org", request.org)
        .with("method", request.method)
        .with("header.plan", if request.is_pro { "pro" } else { "none" });
    (request, caller)
}

fn verdict_states(verdict: &Verdict) -> Vec<ExpectedState> {
    let policy_rule = verdict.limits().iter().map(|state| ExpectedState {
        rule: verdict.rule(state).unwrap().name.to_string(),
        is_enforced: state.enforcement == EnforcementMode::Enforced,
        outcome: state.outcome,
        status: state.status,
    });
    policy_rule.collect()
}

/// Runs one random policy on a random trace. An error tells where the two differ.
fn run(seed: u64, bug: Option<OracleBug>, coverage: &mut Coverage) -> Result<(), String> {
    let rng = &mut SeededRng::new(seed);
    let count = 1 + usize::try_from(rng.below(6)).unwrap();
    let (policy_rule, oracle_rules): (Vec<LimitRule>, Vec<Rule>) =
        (0..count).map(|index| random_limit(rng, index)).unzip();
    let is_free = oracle_rules
        .iter()
        .all(|rule| rule.penalty == Penalty::None);
    let (engine, clock) = engine(policy_rule);
    let mut oracle = Oracle::new(oracle_rules.clone(), bug);
    for step in 0..100 {
        if !rng.one_in(3) {
            clock.advance(Nanos::from_nanos(rng.below(1_500_000_000)));
        }
        let (request, caller) = random_request(rng);
        let peeked = engine.peek(&caller).outcome();
        let verdict = engine.decide(&caller);
        let (outcome, expected) = oracle.decide(request, clock.now());
        let actual = verdict_states(&verdict);
        let at = format!("seed {seed} step {step} {request:?}\n{oracle_rules:#?}");
        if verdict.outcome() != outcome {
            return Err(format!("{at}\n{:?} is not {outcome:?}", verdict.outcome()));
        }
        if actual != expected {
            return Err(format!("{at}\n{actual:#?} is not {expected:#?}"));
        }
        if is_free && peeked != outcome {
            return Err(format!(
                "{at}\na peek returned {peeked:?}, then {outcome:?}"
            ));
        }
        coverage.record(&verdict);
    }
    Ok(())
}

impl Coverage {
    fn record(&mut self, verdict: &Verdict) {
        match verdict.outcome() {
            Outcome::Allow => self.allowed += 1,
            Outcome::Wait(_) => self.waited += 1,
            Outcome::Deny { .. } => self.denied += 1,
            Outcome::Never => self.never += 1,
        }
        let shadows = verdict.limits().iter();
        let shadows = shadows.filter(|state| state.enforcement == EnforcementMode::Shadow);
        let denied = shadows.filter(|state| !state.outcome.is_admitted());
        self.shadow_denied += u64::from(denied.count() > 0);
        self.blocked += u64::from(verdict.reason() == Some(crate::DenialReason::Blocked));
    }
}

#[test]
fn the_engine_decides_like_the_oracle() {
    let mut coverage = Coverage::default();
    for seed in 0..150 {
        if let Err(story) = run(seed, None, &mut coverage) {
            panic!("{story}");
        }
    }
    let all = [
        coverage.allowed,
        coverage.denied,
        coverage.waited,
        coverage.never,
        coverage.shadow_denied,
        coverage.blocked,
    ];
    assert!(all.iter().all(|count| *count > 25), "{coverage:?}");
}

#[test]
fn control_each_bug_of_the_oracle_is_caught() {
    for bug in [
        OracleBug::ChargesDenied,
        OracleBug::ShadowDecides,
        OracleBug::LastDenialBinds,
    ] {
        let is_caught = |seed| run(seed, Some(bug), &mut Coverage::default()).is_err();
        assert!((0..100).any(is_caught), "{bug:?}");
    }
}

#[test]
fn shadow_limits_change_no_verdict() {
    for seed in 0..25 {
        let rng = &mut SeededRng::new(seed);
        let policy_rule: Vec<LimitRule> = (0..5).map(|index| random_limit(rng, index).0).collect();
        let only: Vec<LimitRule> = policy_rule
            .iter()
            .filter(|limit| limit.mode == Mode::Enforce)
            .cloned()
            .collect();
        let ((all, one), (without, two)) = (engine(policy_rule), engine(only));
        for step in 0..100 {
            let span = Nanos::from_nanos(rng.below(1_000_000_000));
            one.advance(span);
            two.advance(span);
            let (_, caller) = random_request(rng);
            let (with, without) = (all.decide(&caller), without.decide(&caller));
            let enforced: Vec<ExpectedState> = verdict_states(&with)
                .into_iter()
                .filter(|policy_rule| policy_rule.is_enforced)
                .collect();
            let at = format!("seed {seed} step {step}");
            assert_eq!(with.outcome(), without.outcome(), "{at}");
            assert_eq!(enforced, verdict_states(&without), "{at}");
        }
    }
}
