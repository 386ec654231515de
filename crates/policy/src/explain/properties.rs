//! Whatever compiles explains, whatever the request, and nothing panics. Must not know: any one sentence.

use std::cell::Cell;

use proptest::test_runner::{Config, TestRunner};
use tollgate_core::Timestamp;
use tollgate_core::limit::{Op, Quota, State};

use super::{explain, explain_request};
use crate::rules::{KeyBuffer, MatchedRules, MeterRef, Rules, SelectedQuota};
use crate::tests::arbitrary::{any_policy, any_request};

/// What a run finds is shown in full and becomes a case of its own, so no file remembers seeds.
fn runner(cases: u32) -> TestRunner {
    TestRunner::new(Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    })
}

#[test]
fn any_policy_that_compiles_explains_and_never_panics() {
    let mut runner = runner(600);
    let compiled = Cell::new(0);
    runner
        .run(&(any_policy(), any_request()), |(policy, request)| {
            let rules = match Rules::compile(&policy, [3; 16]) {
                Ok(rules) => rules,
                Err(problems) => {
                    assert!(!problems.is_empty());
                    assert_eq!(explain(&policy), Err(problems), "for the same reasons");
                    return Ok(());
                }
            };
            compiled.set(compiled.get() + 1);
            let explanation = explain(&policy).unwrap();
            assert_eq!(explanation.limits.len(), policy.limits.len());
            assert!(!explanation.to_string().is_empty());
            serde_json::to_string(&explanation).unwrap();
            let seen = explain_request(&policy, &rules, &request);
            assert_eq!(seen.limits.len(), policy.limits.len());
            assert!(!seen.to_string().is_empty());
            serde_json::to_string(&seen).unwrap();
            Ok(())
        })
        .unwrap();
    assert!(compiled.get() > 100, "only {} compiled", compiled.get());
}

#[test]
fn what_is_explained_of_a_request_is_what_the_rules_find() {
    let mut runner = runner(400);
    let (applied, not) = (Cell::new(0), Cell::new(0));
    runner
        .run(&(any_policy(), any_request()), |(policy, request)| {
            let Ok(rules) = Rules::compile(&policy, [3; 16]) else {
                return Ok(());
            };
            let seen = explain_request(&policy, &rules, &request);
            let mut found = MatchedRules::new();
            rules.match_rules(&request, &mut found);
            for (index, limit) in seen.limits.iter().enumerate() {
                let is_found = found.rules().contains(&index);
                let all_hold = limit.conditions.iter().all(|condition| condition.held);
                assert!(is_found || !limit.applies, "applies only if it is found");
                assert!(
                    all_hold || !is_found,
                    "is found only if every condition holds"
                );
                assert!(
                    limit.applies || limit.reason.is_some(),
                    "says why it does not apply"
                );
                let counter = if limit.applies { &applied } else { &not };
                counter.set(counter.get() + 1);
            }
            Ok(())
        })
        .unwrap();
    let (applied, not) = (applied.get(), not.get());
    assert!(applied > 10 && not > 10, "{applied} applied, {not} did not");
}

#[test]
fn every_quota_that_is_chosen_can_be_decided_by() {
    let mut runner = runner(400);
    runner
        .run(&(any_policy(), any_request()), |(policy, request)| {
            let Ok(rules) = Rules::compile(&policy, [3; 16]) else {
                return Ok(());
            };
            let mut found = MatchedRules::new();
            rules.match_rules(&request, &mut found);
            let mut buffer = KeyBuffer::new();
            for (rule, compiled) in rules.rules().iter().enumerate() {
                for (index, meter) in compiled.meters.iter().enumerate() {
                    let at = MeterRef { rule, meter: index };
                    rules.write_key(at, &request, &found, &mut buffer);
                    let limit = match rules.select_quota(at, &request, &found, buffer.as_bytes()) {
                        SelectedQuota::Index(listed) => meter.quotas[listed],
                        SelectedQuota::Computed(limit) => limit,
                        SelectedQuota::Unlimited => continue,
                    };
                    // Concurrency knows no spending; everything else does.
                    let now = Timestamp::from_secs(1_000_000);
                    let cost = rules.cost(rule, &request, &found);
                    let answer = limit.decide(&State::default(), now, Op::Spend(cost));
                    let holds_places = matches!(limit.quota(), Quota::Concurrency(_));
                    assert_ne!(answer.is_ok(), holds_places);
                }
            }
            Ok(())
        })
        .unwrap();
}
