//! Every policy that compiles can be explained, with any request, without a panic. Must not know: exact texts.

use std::cell::Cell;

use proptest::test_runner::{Config, TestRunner};
use tollgate_core::Timestamp;
use tollgate_core::limit::{Op, Quota, State};

use crate::explain::{explain, explain_request};
use crate::rules::{KeyBuffer, MatchedRules, MeterRef, Rules, SelectedQuota};
use crate::tests::arbitrary::{any_policy, any_request};

/// Failing cases become tests of their own, so no file keeps seeds.
fn runner(cases: u32) -> TestRunner {
    TestRunner::new(Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    })
}

#[test]
fn every_policy_that_compiles_can_be_explained() {
    let mut runner = runner(600);
    let compiled = Cell::new(0);
    runner
        .run(&(any_policy(), any_request()), |(policy, request)| {
            let rules = match Rules::compile(&policy, [3; 16]) {
                Ok(rules) => rules,
                Err(diagnostics) => {
                    assert!(!diagnostics.is_empty());
                    assert_eq!(explain(&policy), Err(diagnostics), "for the same reasons");
                    return Ok(());
                }
            };
            compiled.set(compiled.get() + 1);
            let explanation = explain(&policy).unwrap();
            assert_eq!(explanation.limits.len(), policy.limits.len());
            assert!(!explanation.to_string().is_empty());
            serde_json::to_string(&explanation).unwrap();
            let explanation = explain_request(&policy, &rules, &request);
            assert_eq!(explanation.limits.len(), policy.limits.len());
            assert!(!explanation.to_string().is_empty());
            serde_json::to_string(&explanation).unwrap();
            Ok(())
        })
        .unwrap();
    assert!(compiled.get() > 100, "only {} compiled", compiled.get());
}

#[test]
fn the_explanation_of_a_request_agrees_with_the_rules() {
    let mut runner = runner(400);
    let (applied, not) = (Cell::new(0), Cell::new(0));
    runner
        .run(&(any_policy(), any_request()), |(policy, request)| {
            let Ok(rules) = Rules::compile(&policy, [3; 16]) else {
                return Ok(());
            };
            let explanation = explain_request(&policy, &rules, &request);
            let mut matched = MatchedRules::new();
            rules.match_rules(&request, &mut matched);
            for (index, limit) in explanation.limits.iter().enumerate() {
                let is_matched = matched.rules().contains(&index);
                let all_hold = limit.conditions.iter().all(|condition| condition.held);
                assert!(is_matched || !limit.applies, "applies only if it is found");
                assert!(
                    all_hold || !is_matched,
                    "is found only if every condition holds"
                );
                assert!(
                    limit.applies || limit.reason.is_some(),
                    "has a reason if it does not apply"
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
fn every_selected_quota_can_decide() {
    let mut runner = runner(400);
    runner
        .run(&(any_policy(), any_request()), |(policy, request)| {
            let Ok(rules) = Rules::compile(&policy, [3; 16]) else {
                return Ok(());
            };
            let mut matched = MatchedRules::new();
            rules.match_rules(&request, &mut matched);
            let mut buffer = KeyBuffer::new();
            for (rule, compiled) in rules.rules().iter().enumerate() {
                for (index, meter) in compiled.meters.iter().enumerate() {
                    let at = MeterRef { rule, meter: index };
                    rules.write_key(at, &request, &matched, &mut buffer);
                    let limit = match rules.select_quota(at, &request, &matched, buffer.as_bytes())
                    {
                        SelectedQuota::Index(listed) => meter.quotas[listed],
                        SelectedQuota::Computed(limit) => limit,
                        SelectedQuota::Unlimited => continue,
                    };
                    // Concurrency has no spend operation; all other algorithms do.
                    let now = Timestamp::from_secs(1_000_000);
                    let cost = rules.cost(rule, &request, &matched);
                    let answer = limit.decide(&State::default(), now, Op::Spend(cost));
                    let holds_places = matches!(limit.quota(), Quota::Concurrency(_));
                    assert_ne!(answer.is_ok(), holds_places);
                }
            }
            Ok(())
        })
        .unwrap();
}
