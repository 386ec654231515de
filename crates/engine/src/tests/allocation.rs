//! A warm decision allocates nothing: counted by the allocator of this binary, thread by thread.

use tollgate_core::Nanos;
use tollgate_policy::attributes::Attribute;
use tollgate_policy::model::{Algorithm, LimitRule, Mode, Penalty, Tiers};
use tollgate_testkit::allocation::{Counting, calls};

use crate::testing::{Caller, engine, key, limit, matching, per_second, quota};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often 200 decisions call the allocator once one was made, and how many of them were admitted.
fn counted(limits: Vec<LimitRule>) -> (u64, u64) {
    let (engine, _clock) = engine(limits);
    let caller = Caller::named("alice")
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
        by: Attribute::named("header.plan").unwrap().into(),
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
fn a_request_that_no_limit_applies_to_allocates_nothing() {
    assert_eq!(counted(Vec::new()), (0, 200));
}
