//! The contents of a verdict: reasons, the binding limit, names of levels, and the near-limit counter.

use tollgate_core::{Nanos, Outcome};
use tollgate_policy::model::{Algorithm, Level, LimitRule, Policy};
use tollgate_policy::rules::Rules;

use crate::DenialReason;
use crate::testing::{TestCaller, engine, engine_with, key, limit, matching, per_second, quota};

fn reason_of(algorithm: Algorithm, period: Nanos) -> Option<DenialReason> {
    let (engine, _clock) = engine(vec![limit("api", quota(algorithm, &[(1, period)]))]);
    let alice = TestCaller::named("alice");
    while engine.decide(&alice).outcome() == Outcome::Allow {}
    engine.decide(&alice).reason()
}

#[test]
fn the_reason_is_quota_for_windows_of_a_day_or_longer_and_rate_for_shorter_ones() {
    let almost = Nanos::from_secs(86_399);
    for algorithm in [
        Algorithm::TokenBucket,
        Algorithm::LeakyBucket,
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::SlidingLog,
    ] {
        assert_eq!(
            reason_of(algorithm, almost),
            Some(DenialReason::Rate),
            "{algorithm:?}"
        );
        assert_eq!(
            reason_of(algorithm, Nanos::DAY),
            Some(DenialReason::Quota),
            "{algorithm:?}"
        );
    }
}

#[test]
fn the_violated_level_is_named() {
    let level = |name: &str, part, units| Level {
        name: Box::<str>::from(name).into(),
        key: key(&[part]),
        quota: per_second(units),
    };
    let tree = LimitRule {
        key: Vec::new(),
        levels: vec![
            level("org", "header.org", 3),
            level("user", "header.user", 2),
        ],
        ..limit("tree", per_second(1))
    };
    let (engine, _clock) = engine(vec![tree]);
    let decide = |user| engine.decide(&TestCaller::named(user).with("header.org", "north"));
    assert!(decide("alice").is_admitted());
    assert!(decide("alice").is_admitted());
    let verdict = decide("alice");
    let binding = verdict.binding().unwrap();
    assert_eq!(verdict.level(binding), Some("user"));
    assert!(decide("bob").is_admitted());
    let verdict = decide("bob");
    assert_eq!(verdict.level(verdict.binding().unwrap()), Some("org"));
}

#[test]
fn the_limit_with_the_longest_wait_binds_and_without_a_denial_the_tightest() {
    let minute = |name, units| {
        limit(
            name,
            quota(Algorithm::TokenBucket, &[(units, Nanos::MINUTE)]),
        )
    };
    let (engine, _clock) = engine(vec![
        minute("wide", 60),
        minute("narrow", 2),
        minute("slow", 1),
    ]);
    let alice = TestCaller::named("alice");
    let name = |verdict: &crate::Verdict| {
        let binding = verdict.binding().unwrap();
        verdict.rule(binding).unwrap().name.to_string()
    };
    let first = engine.decide(&alice);
    assert_eq!((name(&first), first.rule_name()), ("slow".into(), None));
    let second = engine.decide(&alice);
    assert_eq!(
        (name(&second), second.rule_name()),
        ("slow".into(), Some("slow"))
    );
    assert_eq!((first.status(), second.status()), (None, Some(429)));
}

#[test]
fn a_key_that_has_used_four_fifths_is_near_the_limit() {
    let (engine, _clock) = engine(vec![limit(
        "api",
        quota(Algorithm::TokenBucket, &[(10, Nanos::HOUR)]),
    )]);
    let alice = TestCaller::named("alice");
    let near = || engine.totals("api").unwrap().near_limit;
    let admitted = |times| {
        (0..times)
            .filter(|_| engine.decide(&alice).is_admitted())
            .count()
    };
    assert_eq!((admitted(7), near()), (7, 0));
    assert_eq!(admitted(5), 3);
    assert_eq!(
        near(),
        3,
        "the eighth, ninth and tenth, and no denied request"
    );
}

#[test]
fn a_waiting_request_is_charged_once_and_counted() {
    let mut api = limit("api", per_second(1));
    api.wait = Some(Nanos::from_secs(2).into());
    let (engine, _clock) = engine(vec![api]);
    let alice = TestCaller::named("alice");
    let wait = |secs| Outcome::Wait(Nanos::from_secs(secs));
    let outcomes: Vec<Outcome> = (0..4).map(|_| engine.decide(&alice).outcome()).collect();
    let denied = Outcome::Deny {
        retry_after: Nanos::SECOND,
    };
    assert_eq!(outcomes, [Outcome::Allow, wait(1), wait(2), denied]);
    let totals = engine.totals("api").unwrap();
    assert_eq!((totals.allowed, totals.waited, totals.denied), (3, 2, 1));
}

#[test]
fn the_debug_output_of_a_verdict_shows_no_key() {
    let (engine, _clock) = engine(vec![limit("api", per_second(1))]);
    let shown = format!(
        "{:?} {:?}",
        engine.decide(&TestCaller::named("secret")),
        engine
    );
    assert!(
        shown.contains("generation: 1") && !shown.contains("secret"),
        "{shown}"
    );
}

/// An overlong path can match anything, so an exemption for another reason must not admit it: the deny list may be
/// meant for one path only.
#[test]
fn an_overlong_path_is_denied_even_if_the_request_is_exempt() {
    let policy = Policy {
        limits: vec![LimitRule {
            matching: matching("path", "/login"),
            ..limit("login", per_second(1))
        }],
        exempt: vec![matching("header.user", "alice")],
        ..Policy::default()
    };
    let (engine, _clock) = engine_with(Rules::compile(&policy, [7; 16]).unwrap());
    let at = |path: &str| TestCaller::named("alice").with("path", path);
    assert_eq!(engine.decide(&at("/login")).outcome(), Outcome::Allow);
    let verdict = engine.decide(&at(&format!("//{}", "a".repeat(10_000))));
    assert_eq!(verdict.reason(), Some(DenialReason::Unreadable));
    assert_eq!(verdict.outcome(), Outcome::Never);
    assert_eq!(verdict.status(), Some(400));
}

/// A refund without a ticket applies to limits that count the cost of requests, up to their capacity, and to no others.
#[test]
fn refunds_apply_only_to_limits_that_count_costs() {
    let hourly = quota(Algorithm::TokenBucket, &[(10, Nanos::from_secs(3_600))]);
    let in_shadow = LimitRule {
        mode: tollgate_policy::model::Mode::Shadow,
        ..limit("shadow", hourly.clone())
    };
    let concurrency = limit("at-once", crate::testing::places(1));
    let (engine, _clock) = engine(vec![limit("api", hourly), concurrency, in_shadow]);
    let alice = TestCaller::named("alice");
    let remaining = |verdict: &crate::Verdict, name: &str| {
        let is = |state: &&crate::LimitState| &*verdict.rule(state).unwrap().name == name;
        let state = verdict.limits().iter().find(is);
        state.map(|state| state.status.remaining)
    };
    let mut spent = engine.decide_with_cost(&alice, 1);
    assert_eq!(remaining(&spent, "api"), Some(9));
    assert!(
        !engine.decide_with_cost(&alice, 1).is_admitted(),
        "the permit is held"
    );
    let refunded = engine.refund(&alice, 1);
    assert!(refunded.is_admitted());
    assert_eq!(remaining(&refunded, "api"), Some(10));
    assert_eq!(remaining(&refunded, "shadow"), Some(10));
    assert_eq!(
        remaining(&refunded, "at-once"),
        None,
        "the limit is not checked"
    );
    assert!(
        !engine.decide_with_cost(&alice, 1).is_admitted(),
        "the permit is not released"
    );
    engine.cancel(spent.take_ticket().unwrap()).unwrap();
    let more = engine.refund(&alice, 100);
    assert_eq!(remaining(&more, "api"), Some(10), "at most the capacity");
    assert_eq!(
        engine.totals("api").unwrap().allowed,
        1,
        "a refund is not a request"
    );
}

/// Regression: modes were kept for the first 32 matched limits only; all others were off.
#[test]
fn an_enforced_limit_behind_forty_shadow_limits_is_enforced() {
    let in_shadow = |n: u32| {
        let mut shadow = limit(&format!("shadow-{n}"), crate::testing::per_second(100));
        shadow.mode = tollgate_policy::model::Mode::Shadow;
        shadow
    };
    let mut limits: Vec<_> = (0..40).map(in_shadow).collect();
    limits.push(limit("last", crate::testing::per_second(1)));
    let (engine, _clock) = engine(limits);
    let alice = TestCaller::named("alice");
    assert!(engine.decide(&alice).is_admitted());
    assert_eq!(engine.decide(&alice).rule_name(), Some("last"));
}
