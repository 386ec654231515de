//! A warm decision does not allocate: counted for each thread by this binary's allocator.

use tollgate_core::Nanos;
use tollgate_policy::attributes::Attribute;
use tollgate_policy::model::{Algorithm, LimitRule, Mode, Penalty, Percent, Tiers};
use tollgate_testkit::allocation::{CountingAllocator, calls};

use crate::control::{Attribution, Switch};
use crate::testing::{TestCaller, engine, key, limit, matching, per_second, quota};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The allocations of 200 warm decisions, and how many of them were admitted.
fn counted(limits: Vec<LimitRule>) -> (u64, u64) {
    let (engine, _clock) = engine(limits);
    let caller = TestCaller::named("alice")
        .with("header.plan", "pro")
        .with("method", "POST")
        .with("path", "/v1/items/7");
    assert!(engine.decide(&caller).is_admitted());
    let mut admitted = 0;
    let calls = calls(|| {
        for _ in 0..200 {
            admitted += u64::from(engine.decide(&caller).is_admitted());
        }
    });
    (calls, admitted)
}

#[test]
fn control_the_allocator_counts() {
    assert!(calls(|| drop(std::hint::black_box(vec![1]))) >= 2);
}

#[test]
fn five_matching_buckets_allocate_nothing_admitted_or_denied() {
    let limits = (0..5).map(|n| limit(&format!("limit-{n}"), per_second(50 + n)));
    assert_eq!(counted(limits.collect()), (0, 49));
}

#[test]
fn five_limits_of_every_kind_allocate_nothing_admitted_or_denied() {
    let minute = Nanos::MINUTE;
    let mut tiers = limit("tiers", per_second(10));
    tiers.tiers = Some(Tiers {
        by: Attribute::parse("header.plan").unwrap().into(),
        tiers: vec![(Box::<str>::from("pro").into(), per_second(90))],
    });
    let mut routed = limit("post", quota(Algorithm::FixedWindow, &[(80, minute)]));
    routed.matching = matching("method", "POST");
    let mut shadow = limit("shadow", quota(Algorithm::SlidingWindow, &[(20, minute)]));
    shadow.mode = Mode::Shadow;
    let mut punishing = limit("block", quota(Algorithm::LeakyBucket, &[(50, minute)]));
    punishing.penalty = Penalty::Block(minute).into();
    let mut patient = limit("wait", per_second(70));
    patient.key = key(&[]);
    patient.wait = Some(Nanos::from_secs(2).into());
    let limits = vec![tiers, routed, shadow, punishing, patient];
    assert_eq!(counted(limits), (0, 49));
}

#[test]
fn candidates_rollouts_and_overrides_allocate_nothing() {
    let minute = Nanos::MINUTE;
    let mut tried = limit("tried", per_second(50));
    tried.candidate = Some(quota(Algorithm::SlidingWindow, &[(30, minute)]));
    let mut shadow = limit("shadow", per_second(40));
    shadow.mode = Mode::Shadow;
    shadow.candidate = Some(quota(
        Algorithm::FixedWindow,
        &[(60, minute), (99, Nanos::HOUR)],
    ));
    let mut shared = limit("share", per_second(60));
    shared.enforce = Percent::from_hundredths(5_000);
    let (engine, _clock) = engine(vec![tried, shadow, shared, limit("given", per_second(2))]);
    let by = Attribution {
        who: "ada",
        why: "a test",
    };
    let control = engine.control();
    control
        .override_key("given", &["alice"], "70/s", None, by)
        .unwrap();
    control.block_key("given", &["mallory"], None, by).unwrap();
    control.block_address("10.0.0.0/8", None, by).unwrap();
    control
        .switch(
            Some("share"),
            Switch::enforced_for(Percent::from_hundredths(9_000)),
            by,
        )
        .unwrap();
    let alice = TestCaller::named("alice").from("192.0.2.1");
    let others = [
        TestCaller::named("mallory").from("192.0.2.1"),
        TestCaller::named("bob").from("10.0.0.1"),
    ];
    assert!(engine.decide(&alice).is_admitted());
    let mut admitted = 0;
    let calls = calls(|| {
        for _ in 0..200 {
            admitted += u64::from(engine.decide(&alice).is_admitted());
            for other in &others {
                assert!(!engine.decide(other).is_admitted());
            }
        }
    });
    assert_eq!((calls, admitted), (0, 49));
    let differ = |name: &str| {
        let divergence = engine.divergence(name).unwrap();
        (divergence.would_deny, divergence.would_allow)
    };
    assert_eq!(
        (differ("tried"), differ("shadow")),
        ((20, 0), (0, 10)),
        "keys were recorded"
    );
}

#[test]
fn a_request_that_no_limit_applies_to_allocates_nothing() {
    assert_eq!(counted(Vec::new()), (0, 200));
}
