//! Compiles handwritten policies and checks the rules.

mod shared_states;

use tollgate_core::limit::{Limit, Quota, State};
use tollgate_core::{Nanos, Timestamp};

use crate::model::{
    Algorithm, Amount, Level, LimitRule, Located, Penalty, QuotaOverride, QuotaSpec, Tiers,
};
use crate::rules::{
    KeyBuffer, KeyOutcome, MatchedRules, MeterRef, MeterRole, Rules, SelectedQuota,
};
use crate::source::SourceLocation;
use crate::tests::fixtures::{
    HOUR, MINUTE, Request, SECOND, attribute, bucket, computed, key, limit, policy, quota,
    quota_of_amount,
};

const SECRET: [u8; 16] = [7; 16];

fn rules(limits: Vec<LimitRule>) -> Rules {
    Rules::compile(&policy(limits), SECRET).unwrap()
}

fn messages(limits: Vec<LimitRule>) -> Vec<String> {
    let diagnostics = Rules::compile(&policy(limits), SECRET).unwrap_err();
    diagnostics.iter().map(|p| p.message.to_string()).collect()
}

fn identities(rules: &Rules) -> Vec<String> {
    // The last rule is the built-in limit of preflights.
    let own = rules.rules().iter().take(rules.preflight_rule().unwrap());
    let meters = own.flat_map(|rule| &rule.meters);
    meters.map(|meter| meter.identity.to_string()).collect()
}

fn tiers(by: &str, tiers: &[(&str, Located<QuotaSpec>)]) -> Option<Tiers> {
    let tiers = tiers
        .iter()
        .map(|(name, quota)| (Box::<str>::from(*name).into(), quota.clone()));
    Some(Tiers {
        by: attribute(by).into(),
        tiers: tiers.collect(),
    })
}

fn level(name: &str, parts: &[&str], quota: Located<QuotaSpec>) -> Level {
    Level {
        name: Box::<str>::from(name).into(),
        key: key(parts),
        quota,
    }
}

fn quota_override(values: &[&str], quota: Located<QuotaSpec>) -> QuotaOverride {
    QuotaOverride {
        key: values
            .iter()
            .map(|value| Box::from(*value))
            .collect::<Vec<_>>()
            .into(),
        quota,
    }
}

/// The quota of a request at each meter of the first rule.
fn selected_quotas(rules: &Rules, request: &Request) -> Vec<SelectedQuota> {
    let mut matched = MatchedRules::new();
    rules.match_rules(request, &mut matched);
    let mut buffer = KeyBuffer::new();
    let first = MeterRef { rule: 0, meter: 0 };
    assert_eq!(
        rules.write_key(first, request, &matched, &mut buffer),
        KeyOutcome::Complete
    );
    (0..rules.rules()[0].meters.len())
        .map(|meter| {
            rules.select_quota(
                MeterRef { rule: 0, meter },
                request,
                &matched,
                buffer.as_bytes(),
            )
        })
        .collect()
}

/// The quota of a request at the first meter of the first rule.
fn quota_for(rules: &Rules, request: &Request) -> Limit {
    match selected_quotas(rules, request)[0] {
        SelectedQuota::Index(index) => rules.rules()[0].meters[0].quotas[index],
        SelectedQuota::Computed(limit) => limit,
        SelectedQuota::Unlimited => panic!("it is limited"),
    }
}

fn capacity(limit: &Limit) -> u64 {
    limit
        .status(&State::default(), Timestamp::from_secs(1))
        .limit
}

#[test]
fn every_meter_of_a_limit_has_its_own_identity() {
    let mut login = limit(
        "login",
        quota(Algorithm::TokenBucket, &[(10, MINUTE), (100, HOUR)]),
    );
    login.key = key(&["ip"]);
    login.penalty = Penalty::Block(Nanos::from_secs(600)).into();
    login.local = Some(bucket(2_000, SECOND));
    login.candidate = Some(quota(Algorithm::SlidingWindow, &[(10, MINUTE), (90, HOUR)]));
    let mut scans = limit("scans", bucket(1_000, SECOND));
    scans.id = Some(7.into());
    scans.distinct = Some(attribute("path").into());
    let rules = rules(vec![login, scans]);
    assert_eq!(
        identities(&rules),
        [
            "login",
            "login#2",
            "login!local",
            "login!candidate",
            "login!candidate#2",
            "login!block",
            "id:7",
            "id:7!seen",
        ]
    );
    let roles: Vec<_> = rules.rules()[0]
        .meters
        .iter()
        .map(|meter| meter.role)
        .collect();
    use MeterRole::{Block, Candidate, Local, Main};
    assert_eq!(roles, [Main, Main, Local, Candidate, Candidate, Block]);
    let block = &rules.rules()[0].meters[5].quotas[0];
    let Quota::TokenBucket(block) = block.quota() else {
        panic!("a block is a bucket of one");
    };
    assert_eq!(
        (block.limit(), block.interval()),
        (1, Nanos::from_secs(600))
    );
    let numbers: Vec<_> = rules.rules()[1]
        .meters
        .iter()
        .map(|meter| meter.fixed_id)
        .collect();
    assert_eq!(numbers, [Some(7), None]);
}

#[test]
fn a_hierarchy_has_one_state_per_level_with_growing_keys() {
    let mut org = limit("api", bucket(1, SECOND));
    org.levels = vec![
        level("org", &["claim.org"], bucket(10_000, MINUTE)),
        level("project", &["claim.project"], bucket(1_000, MINUTE)),
    ];
    let rules = rules(vec![org]);
    assert_eq!(identities(&rules), ["api/org", "api/project"]);
    assert_eq!(rules.rules()[0].meters[1].level.as_deref(), Some("project"));
    let request = Request::with(&[("claim.org", "acme"), ("claim.project", "web")]);
    let mut matched = MatchedRules::new();
    rules.match_rules(&request, &mut matched);
    let key = |meter| {
        let mut buffer = KeyBuffer::new();
        rules.write_key(MeterRef { rule: 0, meter }, &request, &matched, &mut buffer);
        buffer.as_bytes().to_vec()
    };
    assert!(key(1).starts_with(&key(0)) && key(1).len() > key(0).len());
}

#[test]
fn an_override_comes_before_a_tier_and_a_tier_before_the_own_quota() {
    let mut api = limit("api", bucket(100, MINUTE));
    api.key = key(&["header.x-api-key", "ip"]);
    api.tiers = tiers(
        "header.x-plan",
        &[
            ("pro", bucket(5_000, MINUTE)),
            (
                "partner",
                quota_of_amount(Algorithm::TokenBucket, Amount::Unlimited),
            ),
        ],
    );
    api.overrides = vec![quota_override(&["abc", "192.0.2.7"], bucket(9_000, MINUTE))];
    let rules = rules(vec![api]);
    let get = |key, plan| {
        Request::with(&[
            ("header.x-api-key", key),
            ("header.x-plan", plan),
            ("ip", "192.0.2.7"),
        ])
    };
    assert_eq!(capacity(&quota_for(&rules, &get("k", "none"))), 100);
    assert_eq!(capacity(&quota_for(&rules, &get("k", "pro"))), 5_000);
    assert_eq!(capacity(&quota_for(&rules, &get("abc", "pro"))), 9_000);
    assert_eq!(
        selected_quotas(&rules, &get("k", "partner")),
        [SelectedQuota::Unlimited]
    );
}

#[test]
fn a_computed_quota_follows_its_attribute_within_its_bounds() {
    let spec = quota_of_amount(
        Algorithm::TokenBucket,
        computed(5_000, 50, "claim.repos", 12_500, HOUR),
    );
    let rules = rules(vec![limit("api", spec)]);
    let of = |repos| {
        capacity(&quota_for(
            &rules,
            &Request::with(&[("claim.repos", repos)]),
        ))
    };
    assert_eq!(of("0"), 5_000);
    assert_eq!(of("10"), 5_500);
    assert_eq!(of("150"), 12_500);
    assert_eq!(of("99999999999999999999999"), 12_500);
    assert_eq!(of("many"), 5_000);
    assert_eq!(of("-3"), 5_000);
    assert_eq!(capacity(&quota_for(&rules, &Request::default())), 5_000);
}

#[test]
fn limits_that_share_a_bucket_share_its_state_and_its_id() {
    let with = |name, units| {
        let mut limit = limit(name, bucket(units, SECOND));
        limit.bucket = Some(Box::<str>::from("messages").into());
        limit
    };
    let rules = rules(vec![with("send", 5), with("edit", 5)]);
    assert_eq!(identities(&rules), ["@messages", "@messages"]);
    assert_eq!(rules.rules()[0].bucket, rules.rules()[1].bucket);
    assert_eq!(
        messages(vec![with("send", 5), with("edit", 6)]),
        ["`edit` shares the bucket `messages` with `send` but has a different quota"]
    );
}

#[test]
fn the_more_permissive_of_policy_mode_and_limit_mode_applies() {
    use crate::model::Mode;
    for (all, own, holds) in [
        (Mode::Enforce, Mode::Shadow, Mode::Shadow),
        (Mode::Shadow, Mode::Enforce, Mode::Shadow),
        (Mode::Off, Mode::Shadow, Mode::Off),
    ] {
        let mut api = limit("api", bucket(5, SECOND));
        api.mode = own;
        let mut policy = policy(vec![api]);
        policy.mode = all;
        assert_eq!(
            Rules::compile(&policy, SECRET).unwrap().rules()[0].mode,
            holds
        );
    }
}

#[test]
fn all_unsupported_parts_are_reported_at_once() {
    let mut first = limit("a", quota(Algorithm::SlidingLog, &[(20_000, MINUTE)]));
    first.name.location = SourceLocation {
        line: 2,
        column: 1,
        width: 1,
    };
    let mut second = limit(
        "b",
        quota(Algorithm::TokenBucket, &[(1, SECOND), (9, MINUTE)]),
    );
    second.key = key(&["ip"]);
    second.overrides = vec![
        quota_override(&["a", "b"], bucket(1, SECOND)),
        quota_override(&["nowhere"], bucket(1, SECOND)),
    ];
    second.distinct = Some(attribute("path").into());
    let mut third = limit("c", bucket(1, SECOND));
    third.levels = vec![level("org", &["claim.org"], bucket(5, SECOND))];
    third.tiers = tiers("header.x-plan", &[("pro", bucket(5, SECOND))]);
    let again = limit("c", bucket(1, SECOND));
    let mut matched = messages(vec![first, second, third, again]);
    matched.sort();
    assert_eq!(
        matched,
        [
            "`c` has the same `name` as `c`, so both would share one state",
            "`distinct` supports one window, and this limit has several",
            "`rate` cannot be 20,000/min: it is above the maximum of this algorithm",
            "`tiers` cannot be combined with `levels`",
            "an override of `b` has 2 values, and its key has 1 parts",
            "an override of `b` has an invalid address for `ip`",
        ]
    );
}
