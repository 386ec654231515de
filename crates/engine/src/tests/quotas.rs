//! Quotas that depend on the caller: tiers, overrides and computed rates, in policy syntax.

use tollgate_core::{Nanos, Outcome};
use tollgate_policy::rules::Rules;
use tollgate_policy::source::SourceFormat;

use crate::testing::{TestCaller, TestEngine, engine_with};
use tollgate_store::ManualClock;

fn engine(text: &str) -> (TestEngine, std::sync::Arc<ManualClock>) {
    let policy = tollgate_policy::load(text, "test.yaml", SourceFormat::Yaml).unwrap();
    engine_with(Rules::compile(&policy, [7; 16]).unwrap())
}

/// How many requests are admitted at once, and the outcome of the next one.
fn admitted(engine: &TestEngine, caller: &TestCaller) -> (u64, Outcome) {
    for count in 0..1_000 {
        let outcome = engine.decide(caller).outcome();
        if outcome != Outcome::Allow {
            return (count, outcome);
        }
    }
    (1_000, Outcome::Allow)
}

fn deny(after: Nanos) -> Outcome {
    Outcome::Deny { retry_after: after }
}

#[test]
fn an_override_comes_before_a_tier_and_a_tier_before_the_limits_own_quota() {
    let (engine, _clock) = engine(
        "
limits:
  - name: api
    key: header.user
    rate: 2/s
    tiers: { by: header.plan, pro: 4/s, partner: unlimited }
    overrides:
      - { key: vip, rate: 8/s }
      - { key: banned, rate: 0/s }
",
    );
    let half = deny(Nanos::from_millis(500));
    let quarter = deny(Nanos::from_millis(250));
    let eighth = deny(Nanos::from_millis(125));
    let caller = |user: &str, plan: &str| TestCaller::named(user).with("header.plan", plan);
    assert_eq!(admitted(&engine, &TestCaller::named("a")), (2, half));
    assert_eq!(admitted(&engine, &caller("b", "unheard of")), (2, half));
    assert_eq!(admitted(&engine, &caller("c", "pro")), (4, quarter));
    assert_eq!(
        admitted(&engine, &caller("d", "partner")),
        (1_000, Outcome::Allow)
    );
    assert_eq!(admitted(&engine, &caller("vip", "pro")), (8, eighth));
    assert_eq!(
        admitted(&engine, &caller("banned", "partner")),
        (0, Outcome::Never)
    );
}

/// The tiers of a limit share one state: a client that used up a small tier does not get the whole larger tier on top.
#[test]
fn changing_the_tier_between_requests_grants_no_extra_units() {
    let (engine, _clock) = engine(
        "
limits:
  - { name: api, key: header.user, rate: 2/s, tiers: { by: header.plan, pro: 4/s } }
",
    );
    let own = TestCaller::named("a");
    let pro = TestCaller::named("a").with("header.plan", "pro");
    let (used, _) = admitted(&engine, &own);
    let (more, _) = admitted(&engine, &pro);
    assert_eq!(used, 2);
    assert!(used + more <= 4, "{more} more than the largest tier");
    assert_eq!(admitted(&engine, &own).0, 0);
}

/// GitHub's scheme: a base, an amount for every repository, and a maximum.
#[test]
fn a_computed_quota_follows_its_attribute_within_its_bounds() {
    let (engine, _clock) = engine(
        "
limits:
  - { name: app, key: header.user, rate: \"10/s + 5/s × header.repos, at most 30/s\" }
",
    );
    let with = |user: &str, repos: &str| TestCaller::named(user).with("header.repos", repos);
    assert_eq!(admitted(&engine, &TestCaller::named("none")).0, 10);
    assert_eq!(admitted(&engine, &with("two", "2")).0, 20);
    assert_eq!(admitted(&engine, &with("many", "1000000")).0, 30);
    assert_eq!(
        admitted(&engine, &with("huge", "99999999999999999999999")).0,
        30
    );
    assert_eq!(admitted(&engine, &with("words", "two")).0, 10);
    assert_eq!(admitted(&engine, &with("negative", "-4")).0, 10);
}

/// Ten per second for one, five for the other: each waits by its own quota, and waiting requests are charged.
#[test]
fn waits_follow_the_tier() {
    let (engine, clock) = engine(
        "
limits:
  - { name: api, key: header.user, rate: 10/s, burst: 1, wait: 400ms, tiers: { by: header.plan, slow: { rate: 5/s, burst: 1 } } }
",
    );
    let fast = TestCaller::named("fast");
    let slow = TestCaller::named("slow").with("header.plan", "slow");
    let wait = |millis| Outcome::Wait(Nanos::from_millis(millis));
    for (caller, waits) in [(&fast, vec![100, 200, 300, 400]), (&slow, vec![200, 400])] {
        assert_eq!(engine.decide(caller).outcome(), Outcome::Allow);
        for millis in waits {
            assert_eq!(engine.decide(caller).outcome(), wait(millis));
        }
        let outcome = engine.decide(caller).outcome();
        assert!(matches!(outcome, Outcome::Deny { .. }), "{outcome:?}");
    }
    clock.advance(Nanos::from_millis(400));
    assert_eq!(engine.decide(&slow).outcome(), wait(200));
    assert_eq!(engine.decide(&fast).outcome(), wait(100));
}
