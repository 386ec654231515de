//! Overrides: a key gets another quota.

use super::*;

#[test]
fn a_key_gets_another_quota_for_a_while() {
    let (engine, clock) = engine(vec![limit("api", per_second(2))]);
    let control = engine.control();
    let minute = Some(Nanos::MINUTE);
    control
        .override_key("api", &["alice"], "10/s", minute, OPERATOR)
        .unwrap();
    assert_eq!(
        (admitted(&engine, "alice", 20), admitted(&engine, "bob", 20)),
        (10, 2)
    );
    control
        .override_key("api", &["alice"], "10/s burst 30", minute, OPERATOR)
        .unwrap();
    clock.advance(Nanos::from_secs(10));
    assert_eq!(admitted(&engine, "alice", 50), 30);
    control
        .override_key("api", &["alice"], "unlimited", minute, OPERATOR)
        .unwrap();
    assert_eq!(admitted(&engine, "alice", 50), 50);
    assert_eq!(
        control.operator_state().overrides.len(),
        1,
        "replaced, not added"
    );
    clock.advance(Nanos::MINUTE);
    assert_eq!(
        admitted(&engine, "alice", 50),
        2,
        "the override has expired"
    );
    assert!(control.operator_state().overrides.is_empty());
    control
        .override_key("api", &["alice"], "0/s", None, OPERATOR)
        .unwrap();
    assert_eq!(admitted(&engine, "alice", 5), 0);
    control
        .remove_override("api", &["alice"], OPERATOR)
        .unwrap();
    assert_eq!(
        control.remove_override("api", &["alice"], OPERATOR),
        Err(OperatorError::NotFound { kind: "override" })
    );
    clock.advance(Nanos::SECOND);
    assert_eq!(admitted(&engine, "alice", 5), 2);
}

#[test]
fn an_override_keeps_the_debt_and_the_algorithm_of_the_limit() {
    let minute = Nanos::MINUTE;
    let quotas = [
        quota(Algorithm::TokenBucket, &[(10, minute)]),
        quota(Algorithm::LeakyBucket, &[(10, minute)]),
        quota(Algorithm::FixedWindow, &[(10, minute)]),
        quota(Algorithm::SlidingWindow, &[(10, minute)]),
        quota(Algorithm::SlidingLog, &[(10, minute)]),
    ];
    for quota in quotas {
        let algorithm = quota.value.algorithm;
        let (engine, _clock) = engine(vec![limit("api", quota)]);
        assert_eq!(admitted(&engine, "alice", 20), 10, "{algorithm:?}");
        engine
            .control()
            .override_key("api", &["alice"], "25/min", None, OPERATOR)
            .unwrap();
        let more = admitted(&engine, "alice", 50);
        // A bucket's debt keeps its length in time; other algorithms keep their count.
        let is_bucket = matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
        assert_eq!(more, if is_bucket { 0 } else { 15 }, "{algorithm:?}");
    }
}

#[test]
fn overrides_of_permits_windows_and_waits() {
    let (permits, _clock) = engine(vec![limit("api", places(1))]);
    permits
        .control()
        .override_key("api", &["alice"], "3", None, OPERATOR)
        .unwrap();
    assert_eq!(
        (admitted(&permits, "alice", 5), admitted(&permits, "bob", 5)),
        (3, 1)
    );

    let two = quota(
        Algorithm::SlidingWindow,
        &[(2, Nanos::SECOND), (50, Nanos::HOUR)],
    );
    let (windows, clock) = engine(vec![limit("api", two)]);
    windows
        .control()
        .override_key("api", &["alice"], "60/h, 9/s", None, OPERATOR)
        .unwrap();
    assert_eq!(admitted(&windows, "alice", 20), 9, "in any order");
    clock.advance(Nanos::from_secs(2));
    windows
        .control()
        .override_key("api", &["alice"], "12/h", None, OPERATOR)
        .unwrap();
    assert_eq!(
        admitted(&windows, "alice", 20),
        3,
        "the other window is not limited"
    );

    let mut waiting = limit("api", per_second(1));
    waiting.wait = Some(Nanos::from_secs(2).into());
    let (waits, _clock) = engine(vec![waiting]);
    waits
        .control()
        .override_key("api", &["alice"], "2/s", None, OPERATOR)
        .unwrap();
    assert_eq!(
        admitted(&waits, "alice", 20),
        6,
        "two at once, four within the wait"
    );
}

/// Regression: if the only remaining check was a distinct value that was already recorded, the decision ended there and
/// skipped the shadow limits.
#[test]
fn shadow_limits_are_decided_when_an_unlimited_key_repeats_a_distinct_value() {
    let mut paths = limit("paths", per_second(100));
    paths.distinct = Some(tollgate_policy::attributes::Attribute::Path.into());
    let mut shadow = limit("shadow", per_second(100));
    shadow.mode = tollgate_policy::model::Mode::Shadow;
    let (engine, _clock) = engine(vec![paths, shadow]);
    engine
        .control()
        .override_key("paths", &["alice"], "unlimited", None, OPERATOR)
        .unwrap();
    let alice = TestCaller::named("alice").with("path", "/one");
    for _ in 0..3 {
        assert!(engine.decide(&alice).is_admitted());
    }
    assert_eq!(engine.totals("shadow").unwrap().allowed, 3);
}
