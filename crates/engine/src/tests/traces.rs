//! Random policies and random requests: the engine and the oracle say the same, limit by limit, nanosecond by nanosecond.

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

/// Which of the things that should occur did occur.
#[derive(Debug, Default)]
struct Coverage {
    allowed: u64,
    denied: u64,
    waited: u64,
    never: u64,
    shadow_denied: u64,
    blocked: u64,
}

/// The core quota of a rate, said once more.
fn built(algorithm: Algorithm, units: u64, period: Nanos, overdraft: u64) -> Limit {
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

/// A random limit, as a policy says it and as the oracle knows it.
fn random_limit(dice: &mut SeededRng, index: usize) -> (LimitRule, Rule) {
    let name = format!("limit-{index}");
    let algorithm = dice.pick(&ALGORITHMS);
    let units = 1 + dice.below(8);
    let period = dice.pick(&PERIODS);
    let overdraft = dice.pick(&[0, 0, 5]);
    let mut said = limit(&name, quota(algorithm, &[(units, period)]));
    let keys: [&[&'static str]; 3] = [&[], &["header.user"], &["header.org", "header.user"]];
    let parts = dice.pick(&keys);
    said.key = key(parts);
    said.overdraft = overdraft;
    let mut rule = Rule {
        name,
        is_enforced: true,
        is_off: false,
        method: None,
        cost: 1,
        post_cost: 1,
        meters: vec![Meter {
            key: parts.to_vec(),
            limit: built(algorithm, units, period, overdraft),
            pro: None,
        }],
        always: false,
        penalty: Penalty::None,
        wait: Nanos::ZERO,
    };
    random_quotas(dice, (algorithm, units, overdraft), &mut said, &mut rule);
    random_actions(dice, algorithm, &mut said, &mut rule);
    (said, rule)
}

/// A second window, levels or tiers.
fn random_quotas(
    dice: &mut SeededRng,
    (algorithm, units, overdraft): (Algorithm, u64, u64),
    said: &mut LimitRule,
    rule: &mut Rule,
) {
    let week = Nanos::from_secs(7 * 86_400 + 1);
    match dice.below(6) {
        0 if algorithm == Algorithm::FixedWindow => {
            let first = PERIODS[0];
            said.quota = quota(algorithm, &[(units, first), (units * 5, week)]);
            rule.meters[0].limit = built(algorithm, units, first, overdraft);
            let long = built(algorithm, units * 5, week, overdraft);
            rule.meters.push(Meter {
                limit: long,
                ..rule.meters[0].clone()
            });
        }
        1 => {
            said.key = Vec::new();
            let level = |name: &str, part, units| Level {
                name: Box::<str>::from(name).into(),
                key: key(&[part]),
                quota: quota(algorithm, &[(units, Nanos::MINUTE)]),
            };
            said.levels = vec![
                level("org", "header.org", units * 2),
                level("user", "header.user", units),
            ];
            let meter = |key: &[&'static str], units| Meter {
                key: key.to_vec(),
                limit: built(algorithm, units, Nanos::MINUTE, overdraft),
                pro: None,
            };
            rule.meters = vec![
                meter(&["header.org"], units * 2),
                meter(&["header.org", "header.user"], units),
            ];
        }
        2 if algorithm == Algorithm::TokenBucket => {
            let more = quota(algorithm, &[(units * 3, Nanos::MINUTE)]);
            said.quota = quota(algorithm, &[(units, Nanos::MINUTE)]);
            said.tiers = Some(Tiers {
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

/// What is matched, what it costs, and what happens then.
fn random_actions(
    dice: &mut SeededRng,
    algorithm: Algorithm,
    said: &mut LimitRule,
    rule: &mut Rule,
) {
    match dice.below(6) {
        0 => {
            said.mode = Mode::Shadow;
            rule.is_enforced = false;
        }
        1 if dice.one_in(3) => {
            said.mode = Mode::Off;
            rule.is_off = true;
        }
        _ => {}
    }
    if dice.one_in(3) {
        let method = dice.pick(&["GET", "POST"]);
        said.matching = matching("method", method);
        rule.method = Some(method);
    }
    if dice.one_in(3) {
        said.cost = Cost::ByValue {
            attribute: Attribute::Method,
            values: vec![("POST".into(), 3)],
            otherwise: 1,
        };
        rule.post_cost = 3;
    }
    let is_simple = rule.meters.len() == 1 && said.tiers.is_none();
    match dice.below(8) {
        0 => {
            said.penalty = model::Penalty::Count.into();
            rule.penalty = Penalty::Count;
        }
        1 => {
            let length = Nanos::from_secs(5);
            said.penalty = model::Penalty::Block(length).into();
            rule.penalty = Penalty::Block(length);
        }
        2 => {
            said.charge_always = true;
            rule.always = true;
        }
        3 | 4 if algorithm == Algorithm::TokenBucket && is_simple => {
            // What the oracle lends from: the same bucket with an overdraft as long as the wait, and no policy's.
            said.overdraft = 0;
            let wait = Nanos::from_millis(1 + dice.below(20_000));
            said.wait = Some(wait.into());
            let (units, period) = match &said.quota.value.amount {
                model::Amount::Rates(rates) => (rates[0].value.units, rates[0].value.period),
                other => panic!("{other:?}"),
            };
            let model::Period::Span(period) = period else {
                panic!("{period:?}")
            };
            let lender = built(algorithm, units, period, 1_000);
            rule.wait = whole_intervals(&lender, wait);
            rule.meters[0].limit = lender;
        }
        _ => {}
    }
}

fn random_request(dice: &mut SeededRng) -> (Request, TestCaller) {
    let request = Request {
        user: dice.pick(&USERS),
        org: dice.pick(&ORGS),
        method: dice.pick(&["GET", "GET", "POST"]),
        is_pro: dice.one_in(3),
    };
    let caller = TestCaller::named(request.user)
        .with("header.org", request.org)
        .with("method", request.method)
        .with("header.plan", if request.is_pro { "pro" } else { "none" });
    (request, caller)
}

fn what_it_said(verdict: &Verdict) -> Vec<ExpectedState> {
    let said = verdict.limits().iter().map(|state| ExpectedState {
        rule: verdict.rule(state).unwrap().name.to_string(),
        is_enforced: state.enforcement == EnforcementMode::Enforced,
        outcome: state.outcome,
        status: state.status,
    });
    said.collect()
}

/// Runs one random policy over a random trace. An error says where the two disagree.
fn run(seed: u64, flaw: Option<OracleBug>, seen: &mut Coverage) -> Result<(), String> {
    let dice = &mut SeededRng::new(seed);
    let count = 1 + usize::try_from(dice.below(6)).unwrap();
    let (said, known): (Vec<LimitRule>, Vec<Rule>) =
        (0..count).map(|index| random_limit(dice, index)).unzip();
    let is_free = known.iter().all(|rule| rule.penalty == Penalty::None);
    let (engine, clock) = engine(said);
    let mut oracle = Oracle::new(known.clone(), flaw);
    for step in 0..100 {
        if !dice.one_in(3) {
            clock.advance(Nanos::from_nanos(dice.below(1_500_000_000)));
        }
        let (request, caller) = random_request(dice);
        let looked = engine.peek(&caller).outcome();
        let verdict = engine.decide(&caller);
        let (outcome, expected) = oracle.decide(request, clock.now());
        let actual = what_it_said(&verdict);
        let at = format!("seed {seed} step {step} {request:?}\n{known:#?}");
        if verdict.outcome() != outcome {
            return Err(format!("{at}\n{:?} is not {outcome:?}", verdict.outcome()));
        }
        if actual != expected {
            return Err(format!("{at}\n{actual:#?} is not {expected:#?}"));
        }
        if is_free && looked != outcome {
            return Err(format!("{at}\na look said {looked:?}, then {outcome:?}"));
        }
        seen.note(&verdict);
    }
    Ok(())
}

impl Coverage {
    fn note(&mut self, verdict: &Verdict) {
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
fn the_engine_decides_like_a_list_of_limits_gone_through_one_by_one() {
    let mut seen = Coverage::default();
    for seed in 0..150 {
        if let Err(story) = run(seed, None, &mut seen) {
            panic!("{story}");
        }
    }
    let all = [
        seen.allowed,
        seen.denied,
        seen.waited,
        seen.never,
        seen.shadow_denied,
        seen.blocked,
    ];
    assert!(all.iter().all(|count| *count > 25), "{seen:?}");
}

#[test]
fn control_each_mistake_of_the_oracle_is_noticed() {
    for flaw in [
        OracleBug::ChargesRefused,
        OracleBug::ShadowDecides,
        OracleBug::NamesTheLast,
    ] {
        let noticed = |seed| run(seed, Some(flaw), &mut Coverage::default()).is_err();
        assert!((0..100).any(noticed), "{flaw:?}");
    }
}

#[test]
fn limits_in_shadow_change_no_answer() {
    for seed in 0..25 {
        let dice = &mut SeededRng::new(seed);
        let said: Vec<LimitRule> = (0..5).map(|index| random_limit(dice, index).0).collect();
        let only: Vec<LimitRule> = said
            .iter()
            .filter(|limit| limit.mode == Mode::Enforce)
            .cloned()
            .collect();
        let ((all, one), (without, two)) = (engine(said), engine(only));
        for step in 0..100 {
            let span = Nanos::from_nanos(dice.below(1_000_000_000));
            one.advance(span);
            two.advance(span);
            let (_, caller) = random_request(dice);
            let (with, without) = (all.decide(&caller), without.decide(&caller));
            let enforced: Vec<ExpectedState> = what_it_said(&with)
                .into_iter()
                .filter(|said| said.is_enforced)
                .collect();
            let at = format!("seed {seed} step {step}");
            assert_eq!(with.outcome(), without.outcome(), "{at}");
            assert_eq!(enforced, what_it_said(&without), "{at}");
        }
    }
}
