//! Waits, penalties, blocks, limits on denials, missing keys, lists, and a store that does not answer.

use tollgate_core::compose;
use tollgate_core::{Nanos, Outcome, Timestamp};
use tollgate_policy::model::{
    Algorithm, BlockSteps, Burst, Count, DenyRule, LimitRule, Located, Mode, OnMissing,
    OnStoreFailure, Penalty,
};
use tollgate_policy::rules::Rules;
use tollgate_store::{
    IdentifiedLimit, QuotaCheck, Store, StoreError, StoreErrorKind, StoreKey, StoreReply,
};

use crate::testing::{
    START, TestCaller, engine, engine_with, key, limit, matching, per_second, policy, quota, rules,
};
use crate::{DenialReason, Engine, StateStore};

fn minute(units: u64) -> LimitRule {
    limit(
        "api",
        quota(Algorithm::TokenBucket, &[(units, Nanos::MINUTE)]),
    )
}

fn deny(span: Nanos) -> Outcome {
    Outcome::Deny { retry_after: span }
}

#[test]
fn a_block_outlasts_the_limit_and_then_ends() {
    let mut api = limit("api", per_second(1));
    api.penalty = Penalty::Block(Nanos::MINUTE).into();
    let (engine, clock) = engine(vec![api]);
    let alice = TestCaller::named("alice");
    assert!(engine.decide(&alice).is_admitted());
    let first = engine.decide(&alice);
    assert_eq!(first.outcome(), deny(Nanos::MINUTE));
    assert_eq!(first.reason(), Some(DenialReason::Blocked));
    clock.advance(Nanos::from_secs(59));
    let last = engine.decide(&alice);
    assert_eq!(
        last.outcome(),
        deny(Nanos::SECOND),
        "a denial does not extend the block"
    );
    assert_eq!(last.reason(), Some(DenialReason::Blocked));
    assert!(engine.decide(&TestCaller::named("bob")).is_admitted());
    clock.advance(Nanos::SECOND);
    assert!(engine.decide(&alice).is_admitted());
}

/// The second of two requests that are denied at once finds the key blocked, so it is no second offence.
#[test]
fn blocks_grow_with_each_offence_and_offences_are_forgotten_one_after_another() {
    let mut api = limit("api", per_second(1));
    let lengths = [Nanos::MINUTE, Nanos::HOUR];
    api.penalty = Penalty::Escalate(BlockSteps::new(&lengths, Nanos::DAY).unwrap()).into();
    let (engine, clock) = engine(vec![api]);
    let alice = TestCaller::named("alice");
    let offend = || {
        assert!(engine.decide(&alice).is_admitted());
        engine.decide(&alice).outcome()
    };
    assert_eq!(offend(), deny(Nanos::MINUTE));
    assert_eq!(engine.decide(&alice).outcome(), deny(Nanos::MINUTE));
    assert!(engine.decide(&TestCaller::named("bob")).is_admitted());
    for _ in 0..3 {
        clock.advance(Nanos::HOUR);
        assert_eq!(offend(), deny(Nanos::HOUR), "the longest step repeats");
    }
    // Two offences are remembered, for two days in all.
    clock.advance(Nanos::from_secs(2 * 86_400));
    assert_eq!(offend(), deny(Nanos::MINUTE));
}

/// Two limits share one bucket. The smaller burst decides a request that both match, and neither forgives what the other admitted.
#[test]
fn sharers_of_a_bucket_have_their_own_bursts() {
    let sharer = |name: &str, burst: u64| {
        let mut one = limit(name, quota(Algorithm::TokenBucket, &[(60, Nanos::MINUTE)]));
        one.quota.value.burst = Some(Burst::Units(burst).into());
        one.bucket = Some(Located::from(Box::<str>::from("items")));
        one
    };
    let (engine, clock) = engine(vec![sharer("wide", 10), sharer("narrow", 3)]);
    let alice = TestCaller::named("alice");
    let admitted = (0..20).filter(|_| engine.decide(&alice).is_admitted());
    assert_eq!(admitted.count(), 3, "the smaller burst");
    let denied = engine.decide(&alice);
    assert_eq!(denied.rule_name(), Some("narrow"));
    clock.advance(Nanos::SECOND);
    assert!(engine.decide(&alice).is_admitted());
    assert_eq!(engine.decide(&alice).outcome(), deny(Nanos::SECOND));
}

#[test]
fn a_denial_by_another_limit_does_not_block_the_key() {
    let mut api = minute(100);
    api.penalty = Penalty::Block(Nanos::HOUR).into();
    let (engine, clock) = engine(vec![api, limit("narrow", per_second(1))]);
    let alice = TestCaller::named("alice");
    while engine.decide(&alice).is_admitted() {}
    clock.advance(Nanos::SECOND);
    assert!(engine.decide(&alice).is_admitted());
}

#[test]
fn a_limit_on_denials_stops_clients_that_are_denied_too_often() {
    let mut denials = limit(
        "denials",
        quota(Algorithm::FixedWindow, &[(3, Nanos::HOUR)]),
    );
    denials.count = Count::Denials;
    let (engine, clock) = engine(vec![denials, limit("api", per_second(1))]);
    let alice = TestCaller::named("alice");
    for _ in 0..3 {
        clock.advance(Nanos::SECOND);
        assert!(engine.decide(&alice).is_admitted());
        assert!(!engine.decide(&alice).is_admitted());
    }
    clock.advance(Nanos::SECOND);
    let verdict = engine.decide(&alice);
    assert_eq!(verdict.rule_name(), Some("denials"));
    assert!(engine.decide(&TestCaller::named("bob")).is_admitted());
}

#[test]
fn a_missing_attribute_is_shared_skipped_or_denied() {
    let with = |missing| {
        let mut api = limit("api", per_second(1));
        api.key[0].missing = missing;
        let (engine, _clock) = engine(vec![api]);
        engine
    };
    let anonymous = TestCaller::default();
    let shared = with(OnMissing::Shared);
    assert!(shared.decide(&anonymous).is_admitted());
    assert!(!shared.decide(&anonymous).is_admitted());
    let skipping = with(OnMissing::Skip);
    for _ in 0..3 {
        let verdict = skipping.decide(&anonymous);
        assert!(verdict.is_admitted() && verdict.limits().is_empty());
    }
    let denying = with(OnMissing::Deny);
    let verdict = denying.decide(&anonymous);
    assert_eq!(verdict.outcome(), Outcome::Never);
    assert_eq!(verdict.reason(), Some(DenialReason::MissingKey));
    assert_eq!(
        (verdict.status(), verdict.rule_name()),
        (Some(429), Some("api"))
    );
    assert_eq!(denying.totals("api").unwrap().denied, 1);
}

#[test]
fn lists_decide_before_limits() {
    let mut all = policy(vec![limit("api", per_second(1))]);
    all.exempt = vec![matching("header.user", "probe")];
    all.deny = vec![DenyRule {
        matching: matching("header.user", "mallory"),
        status: 451,
        message: Some("not here".into()),
    }];
    let (engine, _clock) = engine_with(Rules::compile(&all, [7; 16]).unwrap());
    for _ in 0..3 {
        assert!(engine.decide(&TestCaller::named("probe")).is_admitted());
    }
    let verdict = engine.decide(&TestCaller::named("mallory"));
    assert_eq!(verdict.outcome(), Outcome::Never);
    assert_eq!(verdict.reason(), Some(DenialReason::Listed));
    assert_eq!(
        (verdict.status(), verdict.message()),
        (Some(451), Some("not here"))
    );
}

#[test]
fn limits_that_share_a_bucket_charge_a_request_once_at_the_higher_cost() {
    let with = |name: &str, cost| {
        let mut rule = limit(name, quota(Algorithm::TokenBucket, &[(10, Nanos::MINUTE)]));
        rule.bucket = Some(Box::<str>::from("messages").into());
        rule.cost = tollgate_policy::model::Cost::Fixed(cost);
        rule
    };
    let (engine, _clock) = engine(vec![with("send", 2), with("edit", 3)]);
    let verdict = engine.decide(&TestCaller::named("alice"));
    assert_eq!(verdict.limits().len(), 1);
    assert_eq!(verdict.limits()[0].status.remaining, 7);
}

#[test]
fn a_limit_in_shadow_charges_nothing_to_a_bucket_that_an_enforced_one_shares() {
    let with = |name: &str, mode| {
        let mut rule = minute(10);
        rule.name = Box::<str>::from(name).into();
        rule.bucket = Some(Box::<str>::from("messages").into());
        rule.mode = mode;
        rule
    };
    let (engine, _clock) = engine(vec![
        with("send", Mode::Enforce),
        with("edit", Mode::Shadow),
    ]);
    let alice = TestCaller::named("alice");
    assert!(engine.decide(&alice).is_admitted());
    assert_eq!(engine.peek(&alice).limits()[0].status.remaining, 9);
}

/// A cost above the burst is never admitted, so there is no time to wait. It was not penalised either: a client could go on for free.
#[test]
fn penalties_meet_denials_that_waiting_does_not_end() {
    let alice = TestCaller::named("alice");
    let with = |penalty: Penalty| {
        let mut rule = minute(10);
        rule.penalty = penalty.into();
        engine(vec![rule])
    };
    let (blocking, clock) = with(Penalty::Block(Nanos::HOUR));
    assert_eq!(
        blocking.decide_with_cost(&alice, 11).outcome(),
        Outcome::Never
    );
    let blocked = blocking.decide(&alice);
    assert_eq!(blocked.reason(), Some(DenialReason::Blocked));
    assert_eq!(blocked.outcome(), deny(Nanos::HOUR));
    assert_eq!(
        blocking.decide_with_cost(&alice, 11).outcome(),
        Outcome::Never,
        "the end of the block does not help it"
    );
    clock.advance(Nanos::HOUR);
    assert!(blocking.decide(&alice).is_admitted());
    let (counting, _clock) = with(Penalty::Count);
    assert_eq!(
        counting.decide_with_cost(&alice, 11).outcome(),
        Outcome::Never
    );
    assert_eq!(counting.decide(&alice).outcome(), deny(Nanos::from_secs(6)));
    // Negative control: without a penalty a denied request changes nothing.
    let (free, _clock) = with(Penalty::None);
    assert_eq!(free.decide_with_cost(&alice, 11).outcome(), Outcome::Never);
    assert!(free.decide_with_cost(&alice, 10).is_admitted());
}

/// nginx' dry-run test, with two locations of one zone: 100 requests against a burst of 5 would deny 95. Ours charged nothing to a
/// shared bucket in shadow, so it would deny none.
#[test]
fn limits_in_shadow_charge_their_shared_bucket_unless_one_is_enforced() {
    let with = |name: &str, mode| {
        let mut rule = minute(5);
        rule.name = Box::<str>::from(name).into();
        rule.bucket = Some(Box::<str>::from("zone").into());
        rule.mode = mode;
        rule
    };
    let alice = TestCaller::named("alice");
    // Both match every request: it is charged once, and the first limit reports it.
    let (both, _clock) = engine(vec![
        with("send", Mode::Shadow),
        with("edit", Mode::Shadow),
        with("off", Mode::Off),
    ]);
    for _ in 0..100 {
        assert!(both.decide(&alice).is_admitted());
    }
    assert_eq!(both.totals("send").unwrap().would_deny, 95);
    assert_eq!(both.totals("edit").unwrap().would_deny, 0);
    // A peek finds the bucket empty and changes nothing.
    assert!(both.peek(&alice).is_admitted());
    assert_eq!(both.totals("send").unwrap().would_deny, 95);
}

#[test]
fn the_callers_cost_overrides_the_policys() {
    let (engine, _clock) = engine(vec![minute(10)]);
    let alice = TestCaller::named("alice");
    assert_eq!(engine.peek_with_cost(&alice, 11).outcome(), Outcome::Never);
    assert_eq!(
        engine.decide_with_cost(&alice, 8).limits()[0]
            .status
            .remaining,
        2
    );
    assert!(!engine.decide_with_cost(&alice, 3).is_admitted());
    assert!(engine.decide_with_cost(&alice, 0).is_admitted());
}

#[test]
fn limits_that_are_off_are_not_checked_and_shadow_limits_are_only_counted() {
    let with = |name: &str, mode| LimitRule {
        mode,
        ..limit(name, per_second(1))
    };
    let (engine, _clock) = engine(vec![with("off", Mode::Off), with("shadow", Mode::Shadow)]);
    let alice = TestCaller::named("alice");
    for _ in 0..4 {
        let verdict = engine.decide(&alice);
        assert_eq!(verdict.outcome(), Outcome::Allow);
        assert_eq!((verdict.limits().len(), verdict.reason()), (1, None));
    }
    let shadow = engine.totals("shadow").unwrap();
    assert_eq!(
        (shadow.allowed, shadow.would_deny, shadow.denied),
        (1, 3, 0)
    );
    assert_eq!(engine.totals("off").unwrap(), crate::LimitTotals::default());
}

#[test]
fn shadow_limits_are_not_listed_when_a_request_is_denied() {
    let mut shadow = minute(5);
    shadow.mode = Mode::Shadow;
    let (engine, _clock) = engine(vec![shadow, limit("narrow", per_second(1))]);
    let alice = TestCaller::named("alice");
    let admitted = (0..10).filter(|_| engine.decide(&alice).is_admitted());
    assert_eq!(admitted.count(), 1);
    let verdict = engine.peek_with_cost(&alice, 0);
    assert_eq!(
        verdict.limits()[1].status.remaining,
        4,
        "charged for the admitted request"
    );
}

#[test]
fn a_local_bucket_denies_before_the_limit() {
    let mut api = minute(100);
    api.local = Some(per_second(2));
    let (engine, _clock) = engine(vec![api]);
    let alice = TestCaller::named("alice");
    assert!(engine.decide(&alice).is_admitted());
    assert!(engine.decide(&alice).is_admitted());
    let verdict = engine.decide(&alice);
    assert_eq!(verdict.outcome(), deny(Nanos::from_millis(500)));
    assert_eq!(verdict.limits()[0].status.remaining, 98);
}

/// A store that never answers.
struct FailingStore;

impl Store for FailingStore {
    fn decide(
        &self,
        _: &[QuotaCheck<'_>],
        _: &mut [StoreReply],
    ) -> Result<compose::BatchOutcome, StoreError> {
        Err(StoreError::new(
            StoreErrorKind::Unreachable,
            "store unavailable",
        ))
    }
}

impl StateStore for FailingStore {
    fn now(&self) -> Timestamp {
        START
    }

    fn erase(&self, _: &StoreKey<'_>, _: &IdentifiedLimit) -> bool {
        false
    }
}

#[test]
fn without_a_store_each_limits_on_store_failure_decides() {
    let with = |on_store_failure| {
        let api = LimitRule {
            on_store_failure,
            ..limit("api", per_second(1))
        };
        let open = LimitRule {
            on_store_failure: OnStoreFailure::Open,
            key: key(&[]),
            ..limit("other", per_second(1))
        };
        let engine = Engine::new(rules(vec![open, api]), FailingStore).unwrap();
        let verdict = engine.decide(&TestCaller::named("alice"));
        assert!(verdict.degraded().store);
        assert_eq!(engine.totals("api").unwrap().errors, 1);
        verdict
    };
    assert!(with(OnStoreFailure::Open).is_admitted());
    assert!(with(OnStoreFailure::Local).is_admitted());
    let closed = with(OnStoreFailure::Closed);
    assert_eq!(
        (closed.status(), closed.reason()),
        (Some(503), Some(DenialReason::Capacity))
    );
    assert_eq!(closed.rule_name(), Some("api"));
}

/// 33 limits on one request answered 503 for ever, although `check` said ok: a batch had room for 32 checks. So did any
/// number up to the maximum, and with it every policy that grows.
#[test]
fn as_many_quotas_as_a_batch_has_are_decided_all_or_nothing() {
    for count in [32_u64, 33, 64, 65, 128] {
        let limits = (0..count).map(|n| limit(&format!("limit-{n}"), per_second(1 + n)));
        let (engine, clock) = engine(limits.rev().collect());
        let alice = TestCaller::named("alice");
        assert!(engine.decide(&alice).is_admitted(), "{count} limits");
        let denied = engine.decide(&alice);
        assert_eq!(denied.status(), Some(429), "{count} limits");
        assert_eq!(denied.rule_name(), Some("limit-0"));
        assert_eq!(denied.limits().len(), usize::try_from(count).unwrap());
        // The denied request charged none of the others.
        let remaining = denied.limits().iter().map(|state| state.status.remaining);
        assert_eq!(
            remaining.collect::<Vec<_>>(),
            (0..count).rev().collect::<Vec<_>>()
        );
        clock.advance(Nanos::SECOND);
        assert!(engine.decide(&alice).is_admitted(), "{count} limits, later");
    }
}

/// 100 limits of which one applied answered 503 for ever: the others were skipped because the request lacks their key,
/// and took room all the same.
#[test]
fn limits_that_are_skipped_for_a_missing_key_take_no_room() {
    let limits = (0..100).map(|n| {
        let mut one = limit(&format!("limit-{n}"), per_second(1));
        one.key = key(&[&format!("header.h{n}")]);
        one.key[0].missing = OnMissing::Skip;
        one
    });
    let (engine, _clock) = engine(limits.collect());
    let request = TestCaller::default().with("header.h7", "x");
    let admitted = engine.decide(&request);
    assert!(admitted.is_admitted());
    assert_eq!(admitted.limits().len(), 1);
    let denied = engine.decide(&request);
    assert_eq!(
        (denied.status(), denied.rule_name()),
        (Some(429), Some("limit-7"))
    );
    let every_key = (0..100).fold(TestCaller::default(), |request, n| {
        request.with(&format!("header.h{n}"), "y")
    });
    let admitted = engine.decide(&every_key);
    assert_eq!(
        (admitted.is_admitted(), admitted.limits().len()),
        (true, 100)
    );
}
