//! What is counted of candidates, against a count by brute force: two engines beside each other, one that enforces the
//! quota and one that enforces the candidate.

use std::collections::HashMap;

use tollgate_core::{Nanos, Outcome};
use tollgate_policy::attributes::Attribute;
use tollgate_policy::model::{
    Algorithm, Cost, Count, LimitRule, Mode, Penalty, Percent, Policy, StatusClass, Tiers,
};
use tollgate_policy::rules::Rules;

use super::{Agreement, Divergence, MAX_TRACKED_KEYS};
use crate::Engine;
use crate::testing::{
    SeededRng, TestCaller, TestEngine, engine, engine_with, limit, per_second, places, policy,
    quota, rules,
};

/// A limit for each user of 5 per second, and a candidate.
fn tried(
    candidate: tollgate_policy::model::Located<tollgate_policy::model::QuotaSpec>,
) -> LimitRule {
    LimitRule {
        candidate: Some(candidate),
        ..limit("api", per_second(5))
    }
}

fn of(engine: &TestEngine) -> Divergence {
    engine.divergence("api").unwrap()
}

fn numbers(divergence: &Divergence) -> (u64, u64, u64) {
    (
        divergence.compared,
        divergence.would_deny,
        divergence.would_allow,
    )
}

/// What a brute-force count of differing decisions says.
#[derive(Debug, Default, PartialEq, Eq)]
struct ExpectedCounts {
    compared: u64,
    would_deny: u64,
    would_allow: u64,
    by_key: HashMap<String, u64>,
}

/// Random requests of many users to an engine with a candidate and to one that enforces it; both count.
fn raced(seed: u64, own: LimitRule, alone: LimitRule) -> (Divergence, ExpectedCounts) {
    let (tried, clock) = engine(vec![own]);
    let (other, other_clock) = engine(vec![alone]);
    let mut dice = SeededRng::new(seed);
    let mut counted = ExpectedCounts::default();
    for _ in 0..5_000 {
        let step = Nanos::from_millis(dice.below(20));
        clock.advance(step);
        other_clock.advance(step);
        // A few users ask too much, many do not.
        let user = if dice.one_in(2) {
            dice.below(4)
        } else {
            10 + dice.below(300)
        };
        let user = format!("user-{user}");
        let caller = TestCaller::named(&user);
        let cost = 1 + dice.below(3);
        let is = tried.decide_with_cost(&caller, cost).is_admitted();
        let would_be = other.decide_with_cost(&caller, cost).is_admitted();
        counted.compared += 1;
        counted.would_deny += u64::from(is && !would_be);
        counted.would_allow += u64::from(!is && would_be);
        if is != would_be {
            *counted.by_key.entry(user).or_default() += 1;
        }
    }
    (of(&tried), counted)
}

/// What is wrong with what a comparison says, given the truth.
fn complaint(said: &Divergence, truth: &ExpectedCounts) -> Option<String> {
    if numbers(said) != (truth.compared, truth.would_deny, truth.would_allow) {
        return Some(format!("{:?} is not {truth:?}", numbers(said)));
    }
    let most_error =
        (truth.would_deny + truth.would_allow) / u64::try_from(MAX_TRACKED_KEYS).unwrap();
    for one in &said.top_keys {
        let least = one.would_deny + one.would_allow;
        let count = truth.by_key.get(&one.key).copied().unwrap_or(0);
        if one.error > most_error || !(least..=least + one.error).contains(&count) {
            return Some(format!("{one:?} occurred {count} times"));
        }
    }
    let is_there = |key: &str| said.top_keys.iter().any(|one| one.key == key);
    let missing = truth
        .by_key
        .iter()
        .find(|(key, count)| **count > most_error && !is_there(key));
    missing.map(|(key, count)| format!("{key} occurred {count} times and is missing"))
}

#[test]
fn differing_decisions_are_counted_as_by_brute_force_in_both_directions() {
    let second = Nanos::SECOND;
    let candidates = [
        per_second(3),
        per_second(8),
        quota(Algorithm::FixedWindow, &[(5, second)]),
        quota(Algorithm::SlidingWindow, &[(5, second)]),
        quota(Algorithm::SlidingLog, &[(5, second)]),
        quota(Algorithm::LeakyBucket, &[(6, second)]),
        quota(Algorithm::TokenBucket, &[(5, second), (60, Nanos::MINUTE)]),
    ];
    let mut directions = (0, 0);
    for (seed, candidate) in (1_u64..).zip(candidates) {
        let alone = limit("api", candidate.clone());
        let (said, truth) = raced(seed, tried(candidate), alone);
        assert_eq!(complaint(&said, &truth), None, "seed {seed}");
        assert_eq!((said.missed, said.unknown), (0, 0));
        assert!(!truth.by_key.is_empty(), "seed {seed} shows no difference");
        directions.0 += truth.would_deny;
        directions.1 += truth.would_allow;
    }
    assert!(directions.0 > 100 && directions.1 > 100, "{directions:?}");
}

#[test]
fn a_candidate_of_a_limit_that_punishes_and_waits_is_charged_by_the_same_terms() {
    let punishing = |quota| LimitRule {
        penalty: Penalty::Count.into(),
        overdraft: 5,
        ..limit("api", quota)
    };
    let patient = |quota| LimitRule {
        wait: Some(Nanos::from_millis(300).into()),
        ..limit("api", quota)
    };
    for with in [punishing, patient] {
        let own = LimitRule {
            candidate: Some(per_second(7)),
            ..with(per_second(5))
        };
        let (said, truth) = raced(42, own, with(per_second(7)));
        assert_eq!(complaint(&said, &truth), None);
        assert!(truth.would_allow > 0);
    }
}

#[test]
fn control_a_candidate_that_is_charged_only_with_the_enforced_quota_is_noticed() {
    // What would be counted if the candidate were asked only about what the quota admits.
    let (said, mut truth) = raced(7, tried(per_second(8)), limit("api", per_second(8)));
    truth.compared -= truth.would_allow;
    truth.would_allow = 0;
    assert!(complaint(&said, &truth).is_some());
    // And if the two were taken for each other's keys.
    let (mut said, truth) = raced(7, tried(per_second(8)), limit("api", per_second(8)));
    let (first, second) = said.top_keys.split_at_mut(1);
    std::mem::swap(&mut first[0].key, &mut second[0].key);
    assert!(complaint(&said, &truth).is_some());
}

#[test]
fn only_what_the_limit_itself_decides_is_compared_and_nothing_else_is_charged() {
    let (engine, _clock) = engine(vec![tried(per_second(100)), limit("other", per_second(2))]);
    let alice = TestCaller::named("alice");
    for _ in 0..20 {
        let _verdict = engine.decide(&alice);
    }
    assert_eq!(
        numbers(&of(&engine)),
        (2, 0, 0),
        "the rest was refused by the other"
    );
    let _look = engine.peek(&alice);
    assert_eq!(of(&engine).compared, 2, "a look is no request");
}

#[test]
fn a_limit_in_shadow_is_compared_by_what_it_would_have_said() {
    let mut own = tried(per_second(3));
    own.mode = Mode::Shadow;
    let (engine, _clock) = engine(vec![own]);
    for _ in 0..10 {
        assert!(engine.decide(&TestCaller::named("alice")).is_admitted());
    }
    assert_eq!(numbers(&of(&engine)), (10, 2, 0));
    assert_eq!(engine.totals("api").unwrap().would_deny, 5);
}

#[test]
fn limits_that_share_a_bucket_share_the_candidates_state_and_one_in_shadow_charges_nothing_to_it() {
    let sharing = |name: &str, method: &str, mode| {
        let mut one = tried(per_second(3));
        one.name = Box::<str>::from(name).into();
        one.matching = crate::testing::matching("method", method);
        one.bucket = Some(Box::<str>::from("all").into());
        one.mode = mode;
        one
    };
    let with = |mode| {
        let limits = vec![
            sharing("api", "GET", Mode::Enforce),
            sharing("posts", "POST", mode),
        ];
        let (engine, _clock) = engine(limits);
        for method in ["POST", "POST", "GET", "GET"] {
            let _verdict = engine.decide(&TestCaller::named("alice").with("method", method));
        }
        numbers(&of(&engine))
    };
    assert_eq!(
        with(Mode::Enforce),
        (2, 1, 0),
        "the second GET is the fourth"
    );
    assert_eq!(with(Mode::Shadow), (2, 0, 0), "posts are charged to nobody");
}

#[test]
fn tiers_are_not_compared_with_what_stands_for_the_limits_own_quota() {
    let mut own = tried(per_second(1));
    own.tiers = Some(Tiers {
        by: Attribute::parse("header.plan").unwrap().into(),
        tiers: vec![(Box::<str>::from("pro").into(), per_second(50))],
    });
    let (engine, _clock) = engine(vec![own]);
    for plan in ["pro", "free"] {
        for _ in 0..4 {
            let _verdict = engine.decide(&TestCaller::named("alice").with("header.plan", plan));
        }
    }
    assert_eq!(numbers(&of(&engine)), (4, 3, 0));
}

#[test]
fn places_of_a_candidate_are_given_back_with_those_of_the_limit() {
    let own = LimitRule {
        candidate: Some(places(2)),
        ..limit("api", places(3))
    };
    let (engine, _clock) = engine(vec![own]);
    let alice = TestCaller::named("alice");
    let mut held: Vec<_> = (0..4).map(|_| engine.decide(&alice)).collect();
    assert_eq!(
        numbers(&of(&engine)),
        (4, 1, 0),
        "the fourth is refused by both"
    );
    for verdict in &mut held {
        if let Some(ticket) = verdict.take_ticket() {
            engine.respond(ticket, &200).unwrap();
        }
    }
    assert!(engine.decide(&alice).is_admitted());
    assert_eq!(numbers(&of(&engine)), (5, 1, 0));
}

#[test]
fn responses_are_charged_to_a_candidate_as_to_its_limit() {
    let mut own = tried(per_second(2));
    own.count = Count::Responses(vec![StatusClass::Code(401)]);
    let (engine, _clock) = engine(vec![own]);
    let answer = |status: u16| {
        let mut verdict = engine.decide(&TestCaller::named("alice"));
        if let Some(ticket) = verdict.take_ticket() {
            engine.respond(ticket, &status).unwrap();
        }
        verdict.outcome()
    };
    for _ in 0..10 {
        assert_eq!(answer(200), Outcome::Allow);
    }
    for _ in 0..5 {
        assert_eq!(answer(401), Outcome::Allow);
    }
    assert_eq!(
        numbers(&of(&engine)),
        (15, 3, 0),
        "after two the candidate would refuse"
    );
    assert!(!answer(401).is_admitted());
}

#[test]
fn every_denial_is_charged_to_a_candidate_that_counts_denials_whoever_denied() {
    let with = |candidate: u64| {
        let minute = |units| quota(Algorithm::TokenBucket, &[(units, Nanos::MINUTE)]);
        let denials = LimitRule {
            count: Count::Denials,
            candidate: Some(minute(candidate)),
            ..limit("api", minute(3))
        };
        let mut insists = limit("insists", per_second(90));
        insists.matching = crate::testing::matching("method", "POST");
        insists.key[0].missing = tollgate_policy::model::OnMissing::Deny;
        insists.key[0].attribute = Attribute::parse("header.token").unwrap().into();
        vec![denials, limit("fast", per_second(2)), insists]
    };
    // Two are admitted, 8 denied by the limit on requests, 2 for want of a key.
    let asked = |candidate| {
        let (engine, clock) = engine(with(candidate));
        let alice = TestCaller::named("alice");
        for _ in 0..10 {
            let _verdict = engine.decide(&alice);
        }
        for _ in 0..2 {
            assert!(
                !engine
                    .decide(&alice.clone().with("method", "POST"))
                    .is_admitted()
            );
        }
        clock.advance(Nanos::SECOND);
        assert!(
            !engine.decide(&alice).is_admitted(),
            "three denials were too many"
        );
        let said = of(&engine);
        (said.would_deny, said.would_allow)
    };
    assert_eq!(asked(10), (0, 0), "ten were used up as well");
    assert_eq!(asked(11), (0, 1));
}

#[test]
fn estimates_of_a_candidate_are_settled_with_those_of_its_limit() {
    let mut own = tried(per_second(40));
    own.quota = per_second(80);
    own.cost = Cost::Response {
        header: "x-used".into(),
        estimate: 20,
        at_most: 100,
    };
    struct Used;
    impl crate::Response for Used {
        fn status(&self) -> u16 {
            200
        }
        fn header(&self, _name: &str) -> Option<&[u8]> {
            Some(b"1")
        }
    }
    let (engine, _clock) = engine(vec![own]);
    for _ in 0..20 {
        let mut verdict = engine.decide(&TestCaller::named("alice"));
        engine
            .respond(verdict.take_ticket().unwrap(), &Used)
            .unwrap();
    }
    assert_eq!(numbers(&of(&engine)), (20, 0, 0));
}

#[test]
fn a_comparison_goes_on_over_reloads_until_a_quota_in_it_changes() {
    let (engine, _clock) = engine(vec![tried(per_second(3))]);
    let ask = |engine: &TestEngine| {
        for _ in 0..4 {
            let _verdict = engine.decide(&TestCaller::named("alice"));
        }
    };
    ask(&engine);
    engine
        .replace(rules(vec![
            limit("more", per_second(90)),
            tried(per_second(3)),
        ]))
        .unwrap();
    assert_eq!(of(&engine).compared, 4);
    engine.replace(rules(vec![tried(per_second(2))])).unwrap();
    assert_eq!(of(&engine).compared, 0);
    assert!(engine.divergence("nobody").is_none());
    engine
        .replace(rules(vec![limit("api", per_second(5))]))
        .unwrap();
    assert!(engine.divergence("api").is_none());
    assert!(engine.divergences().is_empty());
}

#[test]
fn the_policys_threshold_makes_the_verdict() {
    let with = |hundredths| {
        let policy = Policy {
            divergence_threshold: Percent::from_hundredths(hundredths),
            ..policy(vec![tried(per_second(4))])
        };
        Rules::compile(&policy, [7; 16]).unwrap()
    };
    let (engine, clock) = engine_with(with(200));
    let ask = |engine: &Engine<_>, times: u64| {
        for _ in 0..times {
            clock.advance(Nanos::from_millis(1_000));
            for _ in 0..5 {
                let _verdict = engine.decide(&TestCaller::named("alice"));
            }
        }
    };
    ask(&engine, 10);
    assert_eq!(of(&engine).agreement, Agreement::Inconclusive);
    ask(&engine, 90);
    let said = of(&engine);
    assert_eq!(numbers(&said), (500, 100, 0));
    assert_eq!(said.agreement, Agreement::Diverges);
    assert_eq!(
        (said.top_keys[0].key.as_str(), said.top_keys[0].would_deny),
        ("alice", 100)
    );
    engine.replace(with(5_000)).unwrap();
    let said = of(&engine);
    assert_eq!(said.agreement, Agreement::Agrees);
    assert_eq!(said.threshold, Percent::from_hundredths(5_000));
}

#[test]
fn keys_that_the_policy_hashes_are_told_as_digests() {
    let mut own = tried(per_second(1));
    own.key[0].hash = true;
    let (engine, _clock) = engine(vec![own]);
    for _ in 0..3 {
        let _verdict = engine.decide(&TestCaller::named("secret"));
    }
    let said = of(&engine);
    assert_eq!(said.top_keys.len(), 1);
    assert!(
        said.top_keys[0].key.starts_with('#'),
        "{}",
        said.top_keys[0].key
    );
    assert!(!format!("{said:?}").contains("secret"));
}
