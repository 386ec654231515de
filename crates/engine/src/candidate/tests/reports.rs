//! What a comparison reports: over reloads, its agreement, and its keys.

use super::*;

#[test]
fn a_comparison_continues_over_reloads_until_one_of_its_quotas_changes() {
    let (engine, _clock) = engine(vec![with_candidate(per_second(3))]);
    let decide = |engine: &TestEngine| {
        for _ in 0..4 {
            let _verdict = engine.decide(&TestCaller::named("alice"));
        }
    };
    decide(&engine);
    engine
        .replace(rules(vec![
            limit("more", per_second(90)),
            with_candidate(per_second(3)),
        ]))
        .unwrap();
    assert_eq!(divergence(&engine).compared, 4);
    engine
        .replace(rules(vec![with_candidate(per_second(2))]))
        .unwrap();
    assert_eq!(divergence(&engine).compared, 0);
    assert!(engine.divergence("nobody").is_none());
    engine
        .replace(rules(vec![limit("api", per_second(5))]))
        .unwrap();
    assert!(engine.divergence("api").is_none());
    assert!(engine.divergences().is_empty());
}

#[test]
fn the_policys_threshold_decides_the_agreement() {
    let with = |hundredths| {
        let policy = Policy {
            divergence_threshold: Percent::from_hundredths(hundredths),
            ..policy(vec![with_candidate(per_second(4))])
        };
        Rules::compile(&policy, [7; 16]).unwrap()
    };
    let (engine, clock) = engine_with(with(200));
    let decide = |engine: &Engine<_>, times: u64| {
        for _ in 0..times {
            clock.advance(Nanos::from_millis(1_000));
            for _ in 0..5 {
                let _verdict = engine.decide(&TestCaller::named("alice"));
            }
        }
    };
    decide(&engine, 10);
    assert_eq!(divergence(&engine).agreement, Agreement::Inconclusive);
    decide(&engine, 90);
    let reported = divergence(&engine);
    assert_eq!(totals(&reported), (500, 100, 0));
    assert_eq!(reported.agreement, Agreement::Diverges);
    assert_eq!(
        (
            reported.top_keys[0].key.as_str(),
            reported.top_keys[0].would_deny
        ),
        ("alice", 100)
    );
    engine.replace(with(5_000)).unwrap();
    let reported = divergence(&engine);
    assert_eq!(reported.agreement, Agreement::Agrees);
    assert_eq!(reported.threshold, Percent::from_hundredths(5_000));
}

#[test]
fn keys_that_the_policy_hashes_are_reported_as_digests() {
    let mut own = with_candidate(per_second(1));
    own.key[0].hash = true;
    let (engine, _clock) = engine(vec![own]);
    for _ in 0..3 {
        let _verdict = engine.decide(&TestCaller::named("secret"));
    }
    let reported = divergence(&engine);
    assert_eq!(reported.top_keys.len(), 1);
    assert!(
        reported.top_keys[0].key.starts_with('#'),
        "{}",
        reported.top_keys[0].key
    );
    assert!(!format!("{reported:?}").contains("secret"));
}
