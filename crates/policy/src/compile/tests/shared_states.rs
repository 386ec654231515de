//! Tiers share states by period, and no client gains quota by changing its tier.

use tollgate_core::limit::{Limit, Op, Quota, State};
use tollgate_core::{Nanos, Timestamp};

use super::{identities, quota_for, rules, selected_quotas, tiers};
use crate::compile::quota::build_limits;
use crate::model::{Algorithm, Located, QuotaSpec};
use crate::rules::SelectedQuota;
use crate::tests::fixtures::{
    DAY, HOUR, MINUTE, Request, SECOND, bucket, computed, limit, quota, quota_of_amount,
};

#[test]
fn windows_of_tiers_share_states_by_period() {
    let mut api = limit(
        "api",
        quota(Algorithm::FixedWindow, &[(10, SECOND), (1_000, HOUR)]),
    );
    api.tiers = tiers(
        "header.x-plan",
        &[
            (
                "pro",
                quota(Algorithm::FixedWindow, &[(5_000, HOUR), (100, SECOND)]),
            ),
            ("trial", quota(Algorithm::FixedWindow, &[(50, DAY)])),
        ],
    );
    let rules = rules(vec![api]);
    assert_eq!(identities(&rules), ["api", "api#2", "api#3"]);
    let of = |plan| selected_quotas(&rules, &Request::with(&[("header.x-plan", plan)]));
    use SelectedQuota::{Index, Unlimited};
    assert_eq!(of("none"), [Index(0), Index(0), Unlimited]);
    assert_eq!(of("pro"), [Index(1), Index(1), Unlimited]);
    assert_eq!(of("trial"), [Unlimited, Unlimited, Index(0)]);
}

/// How much a client gets that alternates between a rich and a poor tier within two seconds.
fn admitted_by_alternating(rich: Limit, poor: Limit) -> u64 {
    let mut state = State::default();
    let mut now = Timestamp::from_secs(1_000);
    let mut admitted = 0;
    let mut spend = |limit: &Limit, now| {
        let answer = limit.decide(&state, now, Op::Spend(1)).unwrap();
        if let Some(edit) = answer.next {
            state.apply(edit);
        }
        if answer.outcome.is_admitted() {
            admitted += 1;
        }
    };
    for _ in 0..5_000 {
        spend(&rich, now);
    }
    // A denial writes a clamped state. After two seconds the clamp of the poor quota alone would have expired.
    spend(&poor, now);
    now = now.after(Nanos::from_secs(2));
    for _ in 0..5_000 {
        spend(&rich, now);
    }
    admitted
}

#[test]
fn changing_between_tiers_gains_no_quota() {
    let (rich, poor) = (bucket(5_000, MINUTE), bucket(1, SECOND));
    let mut api = limit("api", poor.clone());
    api.tiers = tiers("header.x-plan", &[("pro", rich.clone())]);
    let rules = rules(vec![api]);
    let shared = &rules.rules()[0].meters[0].quotas;
    assert_eq!(admitted_by_alternating(shared[1], shared[0]), 5_000 + 166);
    // Without a shared ceiling, the poor quota forgives the debt of the rich one.
    let apart = |spec: &Located<QuotaSpec>| build_limits(spec, 0).unwrap()[0];
    assert!(admitted_by_alternating(apart(&rich), apart(&poor)) > 9_000);
}

#[test]
fn all_computed_quotas_share_one_ceiling() {
    for (algorithm, base, each, at_most, overdraft) in [
        (Algorithm::TokenBucket, 7, 3, 1_000, 0),
        (Algorithm::TokenBucket, 0, 1, 77, 5),
        (Algorithm::LeakyQueue, 7, 3, 1_000, 2),
        (Algorithm::LeakyBucket, 1, 1, 997, 0),
    ] {
        let spec = quota_of_amount(algorithm, computed(base, each, "claim.n", at_most, SECOND));
        let mut api = limit("api", spec);
        api.overdraft = overdraft;
        let rules = rules(vec![api]);
        let ceiling = |limit: &Limit| match limit.quota() {
            Quota::TokenBucket(bucket) => bucket.ceiling(),
            Quota::LeakyBucket(bucket) => bucket.ceiling(),
            other => panic!("{other:?}"),
        };
        let all: Vec<_> = (0..at_most)
            .map(|n| quota_for(&rules, &Request::with(&[("claim.n", &n.to_string())])))
            .map(|limit| ceiling(&limit))
            .collect();
        assert!(all.iter().all(|one| *one == all[0]), "{algorithm:?} {base}");
    }
}

#[test]
fn sliding_windows_of_tiers_share_one_resolution() {
    let sliding = |units| quota(Algorithm::SlidingWindow, &[(units, HOUR)]);
    let mut api = limit("api", sliding(10));
    api.tiers = tiers("header.x-plan", &[("pro", sliding(4_000_000))]);
    let rules = rules(vec![api]);
    let counters: Vec<_> = rules.rules()[0].meters[0]
        .quotas
        .iter()
        .map(|limit| match limit.quota() {
            Quota::SlidingCounter(counter) => (counter.ceiling(), counter.tick()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(counters[0], counters[1]);
    assert_eq!(counters[0].0, 4_000_000);
}
