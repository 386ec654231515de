//! Tests of the exact texts, and properties of all explanations.

mod properties;

use tollgate_core::{Nanos, QuotaUnit};

use super::{explain, explain_request};
use crate::model::{
    Algorithm, Amount, Burst, Condition, Consistency, Cost, Count, Level, LimitRule, Match, Mode,
    OnMissing, Penalty, Percent, Period, QuotaOverride, StatusClass, Template, Test, Tiers,
};
use crate::rules::Rules;
use crate::tests::fixtures::{
    DAY, HOUR, MINUTE, Request, SECOND, attribute, bucket, computed, key, limit, policy, quota,
    quota_of_amount,
};

fn condition(name: &str, test: Test) -> crate::source::Located<Condition> {
    Condition {
        attribute: attribute(name),
        test,
    }
    .into()
}

fn login() -> LimitRule {
    let mut login = limit("login", quota(Algorithm::SlidingWindow, &[(10, MINUTE)]));
    login.matching = Match {
        conditions: vec![
            condition("method", Test::OneOf(vec!["POST".into()])),
            condition("route", Test::Route(vec![Template("/login".into())])),
        ],
    };
    login.key = key(&["ip"]);
    login.penalty = Penalty::Block(Nanos::from_secs(600)).into();
    login
}

fn per_user() -> LimitRule {
    let mut user = limit("per-user", bucket(1_000, MINUTE));
    user.quota.value.burst = Some(Burst::Units(200).into());
    user.key = key(&["header.x-api-key"]);
    user.key[0].hash = true;
    user.key[0].missing = OnMissing::Skip;
    user.tiers = Some(Tiers {
        by: attribute("header.x-plan").into(),
        tiers: vec![
            (Box::<str>::from("free").into(), bucket(100, MINUTE)),
            (
                Box::<str>::from("partner").into(),
                quota_of_amount(Algorithm::TokenBucket, Amount::Unlimited),
            ),
        ],
    });
    user.overrides = vec![QuotaOverride {
        key: vec![Box::from("k1")].into(),
        quota: bucket(9_000, MINUTE),
    }];
    user.cost = Cost::ByValue {
        attribute: attribute("method"),
        values: vec![("POST".into(), 5)],
        otherwise: 1,
    };
    user
}

/// The description of one quota.
fn words(quota: crate::source::Located<crate::model::QuotaSpec>) -> String {
    let explained = explain(&policy(vec![limit("x", quota)])).unwrap();
    explained.limits[0].quotas[0].words.clone()
}

#[test]
fn the_readme_example_is_current() {
    let mut user = limit("user", bucket(1_000, MINUTE));
    user.quota.value.burst = Some(Burst::Units(200).into());
    let explained = explain(&policy(vec![user])).unwrap();
    assert_eq!(
        explained.limits[0].quotas[0].words,
        "at most 200 at once, then one every 60 ms; never more than 1,200 in any minute"
    );
}

/// A single server printed round trips, nodes and Redis, and its reader wondered which Redis.
#[test]
fn without_a_fleet_there_are_no_words_about_one() {
    let policy = policy(vec![login(), per_user()]);
    let explained = explain(&policy).unwrap();
    let with = explained.to_string();
    let without = explained.without_fleet().to_string();
    for word in ["over-admission", "round trip", "store", "node", "Redis"] {
        assert!(with.contains(word), "{word}: {with}");
        assert!(!without.contains(word), "{word}: {without}");
    }
    assert!(without.contains(" bytes a key in memory\n"), "{without}");
}

#[test]
fn every_algorithm_has_a_description() {
    let cases = [
        (
            Algorithm::TokenBucket,
            3,
            SECOND,
            "at most 3 at once, then one every 333.333334 ms; never more than 5 in any second",
        ),
        (
            Algorithm::LeakyBucket,
            10,
            SECOND,
            "at most 10 at once, then one every 100 ms; never more than 20 in any second, up to twice the rate in a window",
        ),
        (
            Algorithm::LeakyQueue,
            10,
            SECOND,
            "one every 100 ms, with up to 10 waiting for at most 1 s; never admits more than 11 in any second",
        ),
        (
            Algorithm::FixedWindow,
            100,
            MINUTE,
            "at most 100 in each minute, and up to 200 around the end of a minute, up to twice the rate in a window; windows begin at whole multiples of 1 min since 1970, UTC",
        ),
        (
            Algorithm::FixedWindow,
            1_000_000,
            Period::Month,
            "at most 1,000,000 in each calendar month, and up to 2,000,000 around the end of a calendar month, up to twice the rate in a window; months begin at midnight, UTC",
        ),
        (
            Algorithm::SlidingWindow,
            1_000,
            MINUTE,
            "about 1,000 in any minute, estimated from two counters; never more than 1,999 in any minute, whatever the timing",
        ),
        (
            Algorithm::SlidingLog,
            5,
            Period::Span(Nanos::from_secs(900)),
            "never more than 5 in any 15 min, exactly",
        ),
        (
            Algorithm::TokenBucket,
            1_000,
            Period::Month,
            "at most 1,000 at once, then one every 43 min 12 s; never more than 2,000 in any 30 d, up to twice the rate in a window (a month counts as 30 days)",
        ),
        (Algorithm::TokenBucket, 0, SECOND, "denies everything"),
    ];
    for (algorithm, units, period, expected) in cases {
        assert_eq!(words(quota(algorithm, &[(units, period)])), expected);
    }
}

#[test]
fn concurrency_and_computed_quotas_have_a_description() {
    let permits = Amount::Concurrency {
        permits: 20,
        lease: Nanos::MINUTE,
    };
    assert_eq!(
        words(quota_of_amount(Algorithm::Concurrency, permits)),
        "at most 20 at the same time, each held for at most 1 min unless it is renewed"
    );
    assert_eq!(
        words(quota_of_amount(
            Algorithm::TokenBucket,
            computed(5_000, 50, "claim.repos", 12_500, HOUR)
        )),
        "5,000 per hour and 50 more for each of claim.repos, up to 12,500 per hour: \
         at the least at most 5,000 at once, then one every 720 ms; never more than 10,000 in any hour, up to twice the rate in a window; \
         at the most at most 12,500 at once, then one every 288 ms; never more than 25,000 in any hour, up to twice the rate in a window"
    );
    let mut bytes = bucket(3_000_000, SECOND);
    bytes.value.unit = QuotaUnit::Bytes;
    assert_eq!(
        words(bytes),
        "at most 3,000,000 bytes at once, then 10 bytes every 3.334 µs; never more than 5,999,400 bytes in any second"
    );
    let year = quota(Algorithm::FixedWindow, &[(5, Period::Year)]);
    let explained = explain(&policy(vec![limit("x", year)])).unwrap();
    assert!(
        explained.limits[0].fleet[1]
            .contains("at most 2 at once, 2 per calendar year, by a token bucket")
    );
    let mut day = quota(Algorithm::FixedWindow, &[(5, DAY)]);
    day.value.utc_offset_minutes = -330;
    assert!(words(day).ends_with("days begin at midnight, at UTC-05:30"));
}

#[test]
fn the_explanation_of_a_policy_matches_the_golden_file() {
    let mut global = limit("everyone", bucket(10_000, SECOND));
    global.consistency = Consistency::Async(Nanos::SECOND).into();
    global.mode = Mode::Shadow;
    let mut scans = limit(
        "scans",
        quota(Algorithm::TokenBucket, &[(10, SECOND), (100, HOUR)]),
    );
    scans.key = key(&["ip"]);
    scans.count = Count::Responses(vec![StatusClass::Code(401), StatusClass::Class(4)]);
    scans.enforce = Percent::from_hundredths(2_500);
    let mut policy = policy(vec![login(), per_user(), global, scans]);
    policy.nodes = Some(3);
    policy.exempt = vec![Match {
        conditions: vec![condition("header.x-internal", Test::Present)],
    }];
    let text = explain(&policy).unwrap().to_string();
    assert_eq!(text, include_str!("policy.golden.txt"), "\n{text}");
}

#[test]
fn a_second_quota_is_explained_with_its_bound_and_its_round_trip() {
    let mut plan = limit("plan", bucket(10, MINUTE));
    let alone = explain(&policy(vec![plan.clone()])).unwrap();
    plan.spillover = Some(bucket(100, DAY));
    let both = explain(&policy(vec![plan])).unwrap();
    let quota = &both.limits[0].quotas[1];
    assert_eq!(
        quota.who,
        "spillover, charged when the limit's own quota has no room"
    );
    assert!(quota.words.starts_with("at most 100 at once"));
    let is_bound = |note: &String| note.ends_with("at most the sum of both is admitted");
    assert!(both.limits[0].notes.iter().any(is_bound));
    assert!(!alone.limits[0].notes.iter().any(is_bound));
    assert!(both.limits[0].fleet[0].ends_with("and one more for a request that spills over"));
    assert_eq!(
        both.limits[0].memory_bytes_per_key,
        2 * alone.limits[0].memory_bytes_per_key
    );
}

#[test]
fn a_hierarchy_names_its_levels_and_counts_its_slots() {
    let mut api = limit("api", bucket(1, SECOND));
    let level = |name: &str, part: &str, units| Level {
        name: Box::<str>::from(name).into(),
        key: key(&[part]),
        quota: bucket(units, MINUTE),
    };
    api.levels = vec![
        level("org", "claim.org", 10_000),
        level("project", "claim.project", 1_000),
    ];
    let apart = explain(&policy(vec![api.clone()])).unwrap();
    assert_eq!(apart.limits[0].round_trips, 2);
    assert_eq!(apart.limits[0].quotas[1].who, "level project");
    api.colocate = Some(attribute("claim.org").into());
    let near = explain(&policy(vec![api])).unwrap();
    assert_eq!(near.limits[0].round_trips, 1);
    assert_eq!(near.slots.len(), 1);
}

#[test]
fn limits_of_one_key_share_a_round_trip() {
    let keyed = |name, parts: &[&str]| {
        let mut limit = limit(name, bucket(5, SECOND));
        limit.key = key(parts);
        limit
    };
    let explained = explain(&policy(vec![
        keyed("a", &["ip"]),
        keyed("b", &["ip"]),
        keyed("c", &["header.x-api-key"]),
    ]))
    .unwrap();
    let slots: Vec<_> = explained
        .slots
        .iter()
        .map(|slot| slot.limits.join("+"))
        .collect();
    assert_eq!(slots, ["a+b", "c"]);
}

#[test]
fn leased_fixed_windows_take_a_round_trip_and_leased_buckets_do_not() {
    let trips = |quota| {
        let mut leased = limit("leased", quota);
        leased.consistency = Consistency::Leased.into();
        let explained = explain(&policy(vec![leased])).unwrap();
        (explained.limits[0].round_trips, explained.to_string())
    };
    let (of_bucket, words) = trips(bucket(10, MINUTE));
    assert_eq!(of_bucket, 0);
    assert!(
        words.contains("no round trip while a lease lasts"),
        "{words}"
    );
    let (of_window, words) = trips(quota(Algorithm::FixedWindow, &[(10, MINUTE)]));
    assert_eq!(of_window, 1);
    assert!(words.contains("1 round trip"), "{words}");
}

#[test]
fn async_limits_report_their_over_admission_bound() {
    let mut fleet = limit("x", bucket(10, SECOND));
    fleet.consistency = Consistency::Async(Nanos::from_secs(2)).into();
    let mut policy = policy(vec![fleet]);
    policy.nodes = Some(3);
    // (3 − 1) · (10 + 10/s · 2 s)
    let bound = explain(&policy).unwrap().limits[0].over_admission.clone();
    assert_eq!((bound.units, bound.per_node), (Some(60), 30));
    policy.nodes = None;
    let bound = explain(&policy).unwrap().limits[0].over_admission.clone();
    assert_eq!((bound.units, bound.per_node), (None, 30));
}

#[test]
fn the_explanation_of_a_request_matches_the_golden_file() {
    let policy = policy(vec![login(), per_user()]);
    let rules = Rules::compile(&policy, [7; 16]).unwrap();
    let request = Request::with(&[
        ("ip", "192.0.2.7"),
        ("method", "POST"),
        ("path", "/items"),
        ("header.x-api-key", "secret-key"),
        ("header.x-plan", "free"),
    ]);
    let text = explain_request(&policy, &rules, &request).to_string();
    assert_eq!(text, include_str!("request.golden.txt"), "\n{text}");
    assert!(!text.contains("secret-key"), "a hashed key is not shown");

    let without = Request::with(&[
        ("ip", "2001:db8::7"),
        ("method", "POST"),
        ("path", "/login/"),
    ]);
    let explanation = explain_request(&policy, &rules, &without);
    assert!(explanation.limits[0].applies);
    assert_eq!(explanation.limits[0].key[0].value, "2001:db8::/64");
    assert_eq!(
        explanation.limits[1].reason.as_deref(),
        Some("header.x-api-key is missing, and the limit is skipped without it")
    );
}

#[test]
fn the_explanation_of_a_request_has_its_computed_quota() {
    let spec = quota_of_amount(
        Algorithm::TokenBucket,
        computed(5_000, 50, "claim.repos", 12_500, HOUR),
    );
    let policy = policy(vec![limit("api", spec)]);
    let rules = Rules::compile(&policy, [7; 16]).unwrap();
    let explanation = explain_request(&policy, &rules, &Request::with(&[("claim.repos", "10")]));
    let quota = explanation.limits[0].quota.as_ref().unwrap();
    assert_eq!(quota.who, "everyone, computed by claim.repos");
    assert_eq!(quota.windows[0].units, 5_500);
}

#[test]
fn a_limit_that_never_denies_has_no_bound() {
    let mut meter = limit("tokens", bucket(100, MINUTE));
    meter.charge_always = true;
    meter.overdraft = 50;
    let explained = explain(&policy(vec![meter])).unwrap();
    let limit = &explained.limits[0];
    assert!(
        limit.quotas[0]
            .words
            .starts_with("never denies, only charges against: at most 100 at once")
    );
    assert_eq!(limit.quotas[0].windows[0].most_in_any_period, None);
    assert_eq!(
        limit.notes[0],
        "charges above the quota go into debt, down to 50"
    );
}

#[test]
fn overload_control_is_explained_with_its_classes_and_the_class_of_a_request() {
    let text = "
mode: shadow
priorities:
  - { name: critical, match: { route: /pay } }
  - { name: default }
overload: { utilization: enforce, reserve: shadow, reserved_share: 30% }
limits: none
";
    let load = |text: &str| crate::load(text, "p.yaml", crate::source::SourceFormat::Yaml).unwrap();
    let policy = load(text);
    let explained = explain(&policy).unwrap().to_string();
    assert_eq!(
        explained,
        "everything is in shadow: counted, never enforced
overload, in the gateway and the tower layer:
  utilization (shadow: counted, never enforced): while the process nears saturation, classes are shed from the last one; the first class never
  reserve (shadow: counted, never enforced): 30% of the learned concurrency limit is kept for the first class
  class critical: requests whose route is /pay
  class default: requests that no other class matches
no limits: every request is admitted
"
    );
    let class = |policy: &crate::model::Policy, path| {
        let rules = Rules::compile(policy, [7; 16]).unwrap();
        explain_request(policy, &rules, &Request::with(&[("path", path)])).class
    };
    assert_eq!(class(&policy, "/pay").as_deref(), Some("critical"));
    assert_eq!(class(&policy, "/x").as_deref(), Some("default"));
    // The switch of the whole policy covers shedding.
    let off = load(&text.replace("mode: shadow", "mode: off"));
    assert_eq!(explain(&off).unwrap().overload, None);
    assert_eq!(class(&off, "/pay"), None);
}
