//! Decisions by a direct plan are those of the planned path: same verdicts, same counters, same states afterwards.

use crate::control::Attribution;
use crate::testing::{
    SeededRng, TestCaller, TestEngine, engine, key, limit, matching, per_second, places, quota,
};
use crate::{CheckMode, CheckOptions, DenialReason, Verdict, run_local};
use tollgate_core::Nanos;
use tollgate_policy::model::{Algorithm, Count, LimitRule, Mode, OnMissing, Penalty, Percent};

const ALGORITHMS: [Algorithm; 6] = [
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
    Algorithm::LeakyQueue,
    Algorithm::FixedWindow,
    Algorithm::SlidingWindow,
    Algorithm::SlidingLog,
];

/// Everything that a transport can see of a verdict.
fn summary(verdict: &Verdict) -> String {
    let keys: Vec<&[u8]> = verdict
        .limits()
        .iter()
        .map(|state| verdict.key(state))
        .collect();
    let infos: Vec<_> = verdict
        .limits()
        .iter()
        .map(|state| verdict.quota_info(state).window())
        .collect();
    format!(
        "{verdict:?} {:?} {:?} {:?} {:?} {} {keys:?} {infos:?}",
        verdict.status(),
        verdict.rule_name(),
        verdict.binding(),
        verdict.unreadable(),
        verdict.waits_for_claims(),
    )
}

/// The same decision, planned step by step.
fn planned(engine: &TestEngine, caller: &TestCaller, options: CheckOptions) -> Verdict {
    let mut decision = engine.decision(caller, options);
    run_local(&mut decision, engine.store());
    decision.into_verdict()
}

fn is_direct(limits: Vec<LimitRule>) -> bool {
    !engine(limits).0.generation().direct_plan().is_empty()
}

fn random_limit(random: &mut SeededRng, index: usize) -> LimitRule {
    let units = 1 + random.below(9);
    let period = random.pick(&[Nanos::SECOND, Nanos::MINUTE]);
    let algorithm = random.pick(&ALGORITHMS);
    let mut limit = limit(
        &format!("limit-{index}"),
        quota(algorithm, &[(units, period)]),
    );
    let keys: [&[&'static str]; 3] = [&[], &["header.user"], &["header.org", "header.user"]];
    limit.key = key(random.pick(&keys));
    for part in &mut limit.key {
        // A limit that is skipped without its key has a condition.
        let shared = OnMissing::Shared;
        part.missing = match random.below(40) {
            0 => OnMissing::Skip,
            _ => random.pick(&[shared, shared, OnMissing::Deny]),
        };
    }
    if random.below(4) == 0 {
        limit.penalty = random.pick(&[Penalty::Count, Penalty::None]).into();
    }
    limit
}

#[test]
fn a_direct_decision_is_the_one_that_is_planned_step_by_step() {
    let mut random = SeededRng::new(110);
    let (mut direct_plans, mut admitted, mut denied, mut missing) = (0, 0, 0, 0);
    for _ in 0..150 {
        let count = 1 + usize::try_from(random.below(6)).unwrap();
        let limits: Vec<LimitRule> = (0..count)
            .map(|index| random_limit(&mut random, index))
            .collect();
        let (direct, direct_clock) = engine(limits.clone());
        let (stepped, stepped_clock) = engine(limits);
        direct_plans += u32::from(!direct.generation().direct_plan().is_empty());
        for _ in 0..80 {
            let mut caller = match random.below(6) {
                0 => TestCaller::default(),
                _ => TestCaller::named(random.pick(&["ada", "bob"])),
            };
            if random.below(3) > 0 {
                caller = caller.with("header.org", "north");
            }
            let mut options = CheckOptions::new(match random.below(12) {
                0 => CheckMode::Peek,
                1 => CheckMode::Reserve,
                _ => CheckMode::Charge,
            });
            if random.below(3) == 0 {
                options = options.with_cost(random.below(4));
            }
            let verdict = direct.check(&caller, options);
            let expected = planned(&stepped, &caller, options);
            assert_eq!(summary(&verdict), summary(&expected), "{options:?}");
            admitted += u32::from(verdict.is_admitted());
            denied += u32::from(!verdict.is_admitted());
            missing += u32::from(verdict.status() == Some(400) || verdict.limits().len() < count);
            let span = Nanos::from_millis(random.below(600));
            direct_clock.advance(span);
            stepped_clock.advance(span);
        }
        for index in 0..count {
            let name = format!("limit-{index}");
            assert_eq!(direct.totals(&name), stepped.totals(&name), "{name}");
        }
    }
    for (what, times) in [
        ("direct plans", direct_plans),
        ("admissions", admitted / 20),
        ("denials", denied / 20),
        ("missing keys", missing),
    ] {
        assert!(times > 50, "{what}: {times}");
    }
}

#[test]
fn what_depends_on_the_request_or_needs_more_checks_has_no_direct_plan() {
    let plain = || limit("plain", per_second(5));
    assert!(is_direct(vec![plain()]));
    assert!(is_direct(
        (0..8)
            .map(|n| limit(&format!("{n}"), per_second(5)))
            .collect()
    ));
    assert!(!is_direct(Vec::new()));
    assert!(!is_direct(
        (0..9)
            .map(|n| limit(&format!("{n}"), per_second(5)))
            .collect()
    ));
    type Change = fn(&mut LimitRule);
    let changes: [(&str, Change); 9] = [
        ("a condition", |limit| {
            limit.matching = matching("method", "POST");
        }),
        ("shadow", |limit| limit.mode = Mode::Shadow),
        ("off", |limit| limit.mode = Mode::Off),
        ("a share of keys", |limit| {
            limit.enforce = Percent::from_hundredths(5_000);
        }),
        ("a block", |limit| {
            limit.penalty = Penalty::Block(Nanos::MINUTE).into();
        }),
        ("denials", |limit| limit.count = Count::Denials),
        ("a wait", |limit| limit.wait = Some(Nanos::SECOND.into())),
        ("permits", |limit| limit.quota = places(3)),
        ("two windows", |limit| {
            limit.quota = quota(
                Algorithm::TokenBucket,
                &[(5, Nanos::SECOND), (9, Nanos::MINUTE)],
            );
        }),
    ];
    for (what, change) in changes {
        let mut changed = limit("changed", per_second(5));
        change(&mut changed);
        assert!(!is_direct(vec![plain(), changed]), "{what}");
    }
}

#[test]
fn operators_overrides_come_before_a_direct_plan() {
    let (engine, _clock) = engine(vec![limit("api", per_second(5))]);
    let caller = TestCaller::named("ada");
    assert!(engine.decide(&caller).is_admitted());
    let by = Attribution {
        who: "ada",
        why: "a test",
    };
    let control = engine.control();
    control.block_key("api", &["ada"], None, by).unwrap();
    let blocked = engine.decide(&caller);
    assert_eq!(blocked.reason(), Some(DenialReason::Blocked));
    control.unblock_key("api", &["ada"], by).unwrap();
    assert!(engine.decide(&caller).is_admitted());
}
