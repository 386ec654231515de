//! Policies made by hand against the rules that they become.

use tollgate_core::limit::{Limit, Op, Quota, State};
use tollgate_core::{Nanos, Timestamp};

use crate::model::{
    Algorithm, Amount, Level, LimitRule, Located, Penalty, QuotaOverride, QuotaSpec, Tiers,
};
use crate::rules::{
    KeyBuffer, KeyOutcome, MatchedRules, MeterRef, MeterRole, Rules, SelectedQuota,
};
use crate::source::SourceLocation;
use crate::tests::fixtures::{
    DAY, HOUR, MINUTE, Request, SECOND, attribute, bucket, computed, key, limit, policy, quota,
    quota_of_amount,
};

const SECRET: [u8; 16] = [7; 16];

fn rules(limits: Vec<LimitRule>) -> Rules {
    Rules::compile(&policy(limits), SECRET).unwrap()
}

fn messages(limits: Vec<LimitRule>) -> Vec<String> {
    let problems = Rules::compile(&policy(limits), SECRET).unwrap_err();
    problems.iter().map(|p| p.message.to_string()).collect()
}

fn identities(rules: &Rules) -> Vec<String> {
    let meters = rules.rules().iter().flat_map(|rule| &rule.meters);
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

fn overriding(values: &[&str], quota: Located<QuotaSpec>) -> QuotaOverride {
    QuotaOverride {
        key: values
            .iter()
            .map(|value| Box::from(*value))
            .collect::<Vec<_>>()
            .into(),
        quota,
    }
}

/// What a request gets at each meter of the first rule.
fn chosen(rules: &Rules, request: &Request) -> Vec<SelectedQuota> {
    let mut found = MatchedRules::new();
    rules.match_rules(request, &mut found);
    let mut buffer = KeyBuffer::new();
    let first = MeterRef { rule: 0, meter: 0 };
    assert_eq!(
        rules.write_key(first, request, &found, &mut buffer),
        KeyOutcome::Complete
    );
    (0..rules.rules()[0].meters.len())
        .map(|meter| {
            rules.select_quota(
                MeterRef { rule: 0, meter },
                request,
                &found,
                buffer.as_bytes(),
            )
        })
        .collect()
}

/// The quota that a request gets at the first meter of the first rule.
fn quota_for(rules: &Rules, request: &Request) -> Limit {
    match chosen(rules, request)[0] {
        SelectedQuota::Index(index) => rules.rules()[0].meters[0].quotas[index],
        SelectedQuota::Computed(limit) => limit,
        SelectedQuota::Unlimited => panic!("it is limited"),
    }
}

fn most(limit: &Limit) -> u64 {
    limit
        .status(&State::default(), Timestamp::from_secs(1))
        .limit
}

#[test]
fn every_part_of_a_limit_has_a_state_with_an_identity_of_its_own() {
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
fn a_hierarchy_has_a_state_per_level_whose_keys_grow() {
    let mut org = limit("api", bucket(1, SECOND));
    org.levels = vec![
        level("org", &["claim.org"], bucket(10_000, MINUTE)),
        level("project", &["claim.project"], bucket(1_000, MINUTE)),
    ];
    let rules = rules(vec![org]);
    assert_eq!(identities(&rules), ["api/org", "api/project"]);
    assert_eq!(rules.rules()[0].meters[1].level.as_deref(), Some("project"));
    let request = Request::with(&[("claim.org", "acme"), ("claim.project", "web")]);
    let mut found = MatchedRules::new();
    rules.match_rules(&request, &mut found);
    let key = |meter| {
        let mut buffer = KeyBuffer::new();
        rules.write_key(MeterRef { rule: 0, meter }, &request, &found, &mut buffer);
        buffer.as_bytes().to_vec()
    };
    assert!(key(1).starts_with(&key(0)) && key(1).len() > key(0).len());
}

#[test]
fn an_override_comes_before_a_tier_and_a_tier_before_the_limits_own() {
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
    api.overrides = vec![overriding(&["abc", "192.0.2.7"], bucket(9_000, MINUTE))];
    let rules = rules(vec![api]);
    let get = |key, plan| {
        Request::with(&[
            ("header.x-api-key", key),
            ("header.x-plan", plan),
            ("ip", "192.0.2.7"),
        ])
    };
    assert_eq!(most(&quota_for(&rules, &get("k", "none"))), 100);
    assert_eq!(most(&quota_for(&rules, &get("k", "pro"))), 5_000);
    assert_eq!(most(&quota_for(&rules, &get("abc", "pro"))), 9_000);
    assert_eq!(
        chosen(&rules, &get("k", "partner")),
        [SelectedQuota::Unlimited]
    );
}

#[test]
fn windows_of_tiers_find_those_of_the_same_period_and_strangers_count_apart() {
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
    let of = |plan| chosen(&rules, &Request::with(&[("header.x-plan", plan)]));
    use SelectedQuota::{Index, Unlimited};
    assert_eq!(of("none"), [Index(0), Index(0), Unlimited]);
    assert_eq!(of("pro"), [Index(1), Index(1), Unlimited]);
    assert_eq!(of("trial"), [Unlimited, Unlimited, Index(0)]);
}

/// How much a client gets in one instant that spends as a rich key and then asks again and again as a poor one, while the
/// clock stands still but for the refill of the poor quota.
fn minted(rich: Limit, poor: Limit) -> u64 {
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
    // A denial writes a clamped state back. Two seconds later the clamp of the poor quota alone would have passed.
    spend(&poor, now);
    now = now.after(Nanos::from_secs(2));
    for _ in 0..5_000 {
        spend(&rich, now);
    }
    admitted
}

#[test]
fn changing_between_tiers_mints_nothing_because_all_share_the_largest_ceiling() {
    let (rich, poor) = (bucket(5_000, MINUTE), bucket(1, SECOND));
    let mut api = limit("api", poor.clone());
    api.tiers = tiers("header.x-plan", &[("pro", rich.clone())]);
    let rules = rules(vec![api]);
    let shared = &rules.rules()[0].meters[0].quotas;
    assert_eq!(minted(shared[1], shared[0]), 5_000 + 166);
    // Without sharing, the poor quota forgives what the rich one has lent.
    let apart = |spec: &Located<QuotaSpec>| super::quota::build_limits(spec, 0).unwrap()[0];
    assert!(minted(apart(&rich), apart(&poor)) > 9_000);
}

#[test]
fn a_computed_quota_follows_its_attribute_within_its_bounds() {
    let spec = quota_of_amount(
        Algorithm::TokenBucket,
        computed(5_000, 50, "claim.repos", 12_500, HOUR),
    );
    let rules = rules(vec![limit("api", spec)]);
    let of = |repos| {
        most(&quota_for(
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
    assert_eq!(most(&quota_for(&rules, &Request::default())), 5_000);
}

#[test]
fn every_computed_quota_accepts_what_any_other_has_lent() {
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
        ["`edit` shares the bucket `messages` with `send` but has another quota"]
    );
}

#[test]
fn the_whole_policy_and_a_limit_are_each_free_to_relax() {
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
fn what_cannot_be_honoured_is_refused_all_at_once() {
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
        overriding(&["a", "b"], bucket(1, SECOND)),
        overriding(&["nowhere"], bucket(1, SECOND)),
    ];
    second.distinct = Some(attribute("path").into());
    let mut third = limit("c", bucket(1, SECOND));
    third.levels = vec![level("org", &["claim.org"], bucket(5, SECOND))];
    third.tiers = tiers("header.x-plan", &[("pro", bucket(5, SECOND))]);
    let again = limit("c", bucket(1, SECOND));
    let mut found = messages(vec![first, second, third, again]);
    found.sort();
    assert_eq!(
        found,
        [
            "`c` has the same `name` as `c`, so both would count in one place",
            "`distinct` counts different values in one window, and this limit has several",
            "`rate` cannot be 20,000/min: it is more than this algorithm can count",
            "`tiers` cannot stand beside `levels`: it would not be clear which level is meant",
            "an override of `b` gives 2 values, and its key has 1 parts",
            "an override of `b` has a value for `ip` that is no address",
        ]
    );
}
