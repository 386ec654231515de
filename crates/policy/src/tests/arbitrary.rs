//! Random policies and requests for property tests: mostly valid, sometimes at the limits, sometimes invalid.
//!
//! Must not know: what is asserted of them.

use proptest::prelude::*;
use proptest::sample::select;
use tollgate_core::{Nanos, QuotaUnit};

use crate::model::{
    Algorithm, Amount, Burst, Condition, Consistency, Cost, Count, DenyRule, Glob, Group,
    GroupSelection, IpNet, KeyPart, Level, LimitRule, Located, Match, Mode, OnMissing,
    OnStoreFailure, Penalty, Percent, Period, Policy, QuotaOverride, QuotaSpec, StatusClass,
    Template, Test, Tiers,
};
use crate::tests::fixtures::{Request, attribute, computed, limit, quota, quota_of_amount};

const ATTRIBUTES: [&str; 8] = [
    "ip",
    "method",
    "host",
    "route",
    "header.x-plan",
    "header.x-api-key",
    "claim.repos",
    "query.page",
];
const VALUES: [&str; 8] = [
    "GET",
    "POST",
    "free",
    "pro",
    "12",
    "",
    "a.example.com",
    "é\u{0}x",
];

/// Usual numbers, and the limits of the type.
fn units() -> impl Strategy<Value = u64> {
    prop_oneof![
        20 => 0_u64..2_000,
        2 => 0_u64..5_000_000_000,
        1 => select(vec![0, 1, u64::from(u32::MAX), u64::MAX - 1, u64::MAX]),
    ]
}

fn period() -> impl Strategy<Value = Period> {
    prop_oneof![
        20 => select(vec![1, 60, 900, 3_600, 86_400, 604_800]).prop_map(|s| Period::Span(Nanos::from_secs(s))),
        1 => any::<u64>().prop_map(|n| Period::Span(Nanos::from_nanos(n))),
        1 => Just(Period::Month),
        1 => Just(Period::Span(Nanos::YEAR)),
        1 => Just(Period::Year),
    ]
}

fn length() -> impl Strategy<Value = Nanos> {
    prop_oneof![
        9 => (1_u64..100_000).prop_map(Nanos::from_millis),
        1 => any::<u64>().prop_map(Nanos::from_nanos),
    ]
}

/// Any quota, valid or not.
pub(crate) fn any_quota() -> impl Strategy<Value = Located<QuotaSpec>> {
    let algorithm = select(vec![
        Algorithm::TokenBucket,
        Algorithm::LeakyBucket,
        Algorithm::LeakyQueue,
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::SlidingLog,
    ]);
    let rates = prop::collection::vec((units(), period()), 1..3);
    let of_rates = (algorithm.clone(), rates).prop_map(|(how, rates)| quota(how, &rates));
    let at_once = (0_u64..100, length()).prop_map(|(permits, lease)| {
        quota_of_amount(
            Algorithm::Concurrency,
            Amount::Concurrency { permits, lease },
        )
    });
    let of_request = (algorithm, units(), units(), units(), period()).prop_map(
        |(how, base, each, more, period)| {
            quota_of_amount(
                how,
                computed(base, each, "claim.repos", base.saturating_add(more), period),
            )
        },
    );
    let unlimited = Just(quota_of_amount(Algorithm::TokenBucket, Amount::Unlimited));
    let amount = prop_oneof![8 => of_rates, 1 => at_once, 2 => of_request, 1 => unlimited];
    let burst = prop_oneof![
        6 => Just(None),
        1 => Just(Some(Burst::Auto)),
        2 => units().prop_map(|units| Some(Burst::Units(units))),
    ];
    let unit = select(vec![
        QuotaUnit::Requests,
        QuotaUnit::Bytes,
        QuotaUnit::Tokens,
    ]);
    (amount, burst, unit, -900_i16..900).prop_map(|(mut quota, burst, unit, minutes)| {
        let has_burst = matches!(
            quota.value.algorithm,
            Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::LeakyQueue
        );
        // A burst of other algorithms is rare.
        let is_explicit = has_burst || minutes % 11 == 0;
        quota.value.burst = burst.filter(|_| is_explicit).map(Located::from);
        quota.value.unit = unit;
        quota.value.utc_offset_minutes = if minutes % 5 == 0 { minutes } else { 0 };
        quota
    })
}

fn any_key() -> impl Strategy<Value = Vec<KeyPart>> {
    let missing = select(vec![OnMissing::Shared, OnMissing::Skip, OnMissing::Deny]);
    let part = (
        select(&ATTRIBUTES[..]),
        any::<[bool; 2]>(),
        0_u8..=32,
        0_u8..=128,
        missing,
    )
        .prop_map(|(name, [lower, hash], v4_bits, v6_bits, missing)| KeyPart {
            attribute: attribute(name).into(),
            lower,
            hash,
            v4_bits,
            v6_bits,
            missing,
        });
    prop::collection::vec(part, 0..3)
}

/// A match with this number of conditions.
fn any_match(how_many: std::ops::Range<usize>) -> impl Strategy<Value = Match> {
    let test = |name: &'static str| match name {
        "ip" => select(vec![0_u8, 8, 24, 32])
            .prop_map(|bits| {
                let address = [192, 0, 2, 7].into();
                Test::Within(vec![IpNet::new(address, bits).unwrap()])
            })
            .boxed(),
        "route" => select(vec!["/", "/api/{*rest}", "/items/{id}"])
            .prop_map(|template| Test::Route(vec![Template(template.into())]))
            .boxed(),
        _ => prop_oneof![
            select(&VALUES[..]).prop_map(|value| Test::OneOf(vec![value.into()])),
            select(vec!["*", "a*", "**z", "?"])
                .prop_map(|glob| Test::Glob(vec![Glob(glob.into())])),
            Just(Test::Present),
            Just(Test::Absent),
            select(&VALUES[..])
                .prop_map(|value| Test::Not(Box::new(Test::OneOf(vec![value.into()])))),
        ]
        .boxed(),
    };
    let condition = select(&ATTRIBUTES[..]).prop_flat_map(move |name| {
        test(name).prop_map(move |test| {
            Located::from(Condition {
                attribute: attribute(name),
                test,
            })
        })
    });
    prop::collection::vec(condition, how_many).prop_map(|conditions| Match { conditions })
}

fn any_cost() -> impl Strategy<Value = Cost> {
    prop_oneof![
        4 => Just(Cost::Fixed(1)),
        1 => units().prop_map(Cost::Fixed),
        1 => (units(), units()).prop_map(|(one, otherwise)| Cost::ByValue {
            attribute: attribute("method"),
            values: vec![("POST".into(), one)],
            otherwise,
        }),
        1 => (units(), units(), units()).prop_map(|(at_least, at_most, otherwise)| Cost::Attribute {
            attribute: attribute("claim.repos"),
            at_least,
            at_most,
            otherwise,
        }),
        1 => (units(), units()).prop_map(|(estimate, at_most)| Cost::Response {
            header: "x-used".into(),
            estimate,
            at_most,
        }),
        1 => (units(), units()).prop_map(|(estimate, at_most)| Cost::ResponseBody { estimate, at_most }),
    ]
    // In a box: the tree of all strategies would not fit on a test's stack.
    .boxed()
}

fn any_tiers() -> impl Strategy<Value = Option<Tiers>> {
    let tier = (select(vec!["free", "pro", "12"]), any_quota())
        .prop_map(|(name, quota)| (Box::<str>::from(name).into(), quota));
    prop::option::weighted(
        0.3,
        prop::collection::vec(tier, 1..3).prop_map(|tiers| Tiers {
            by: attribute("header.x-plan").into(),
            tiers,
        }),
    )
}

fn any_action() -> impl Strategy<Value = LimitRule> {
    let mode = select(vec![Mode::Enforce, Mode::Shadow, Mode::Off]);
    let penalty = prop_oneof![
        Just(Penalty::None),
        Just(Penalty::Count),
        length().prop_map(Penalty::Block)
    ];
    let consistency = prop_oneof![
        Just(Consistency::Exact),
        Just(Consistency::Leased),
        length().prop_map(Consistency::Async)
    ];
    let failure = select(vec![
        OnStoreFailure::Local,
        OnStoreFailure::Open,
        OnStoreFailure::Closed,
    ]);
    let count = select(vec![
        Count::Requests,
        Count::Denials,
        Count::Responses(vec![StatusClass::Code(401), StatusClass::Class(5)]),
    ]);
    let overdraft = prop_oneof![3 => Just(0), 1 => units()];
    let wait = prop::option::of(length());
    (
        mode,
        penalty,
        consistency,
        failure,
        count,
        overdraft,
        any_cost(),
        wait,
        0_u16..10_001,
    )
        .prop_map(
            |(mode, penalty, consistency, failure, count, overdraft, cost, wait, share)| {
                let mut rule = limit(
                    "x",
                    crate::tests::fixtures::bucket(1, Period::Span(Nanos::SECOND)),
                );
                rule.mode = mode;
                rule.penalty = penalty.into();
                rule.consistency = consistency.into();
                rule.on_store_failure = failure;
                rule.count = count;
                if share % 3 == 0 {
                    rule.refund = vec![StatusClass::Code(502), StatusClass::Class(5)];
                }
                rule.overdraft = overdraft;
                rule.charge_always = overdraft % 2 == 1;
                rule.cost = cost;
                rule.wait = wait.map(Located::from);
                rule.enforce = Percent::from_hundredths(share);
                rule
            },
        )
}

/// Any limit of this name, valid or not.
pub(crate) fn any_limit(name: String) -> impl Strategy<Value = LimitRule> {
    let alternatives = (
        prop::option::weighted(0.2, any_quota()),
        prop::option::weighted(0.2, any_quota()),
        prop::collection::vec((select(&VALUES[..]), any_quota()), 0..2),
        prop::collection::vec((any_key(), any_quota()), 0..3),
        any::<[bool; 4]>(),
    );
    (
        any_action(),
        any_quota(),
        any_key(),
        any_match(0..3),
        any_tiers(),
        alternatives,
    )
        .prop_map(
            move |(
                mut rule,
                quota,
                key,
                matching,
                tiers,
                (local, candidate, overrides, levels, flags),
            )| {
                let [has_levels, is_distinct, is_grouped, is_near] = flags;
                rule.name = Box::<str>::from(name.as_str()).into();
                rule.overrides = overrides
                    .into_iter()
                    .map(|(value, quota)| QuotaOverride {
                        key: vec![Box::from(value); key.len()].into(),
                        quota,
                    })
                    .collect();
                (rule.quota, rule.key, rule.matching, rule.tiers) = (quota, key, matching, tiers);
                (rule.local, rule.candidate) = (local, candidate);
                if has_levels && rule.tiers.is_none() && rule.overrides.is_empty() {
                    rule.levels = levels
                        .into_iter()
                        .enumerate()
                        .map(|(index, (key, quota))| Level {
                            name: Box::<str>::from(format!("l{index}")).into(),
                            key,
                            quota,
                        })
                        .collect();
                }
                rule.distinct = (is_distinct && is_near && rule.levels.is_empty())
                    .then(|| attribute("path").into());
                rule.group = is_grouped.then(|| Box::<str>::from("g").into());
                rule.colocate = is_near.then(|| attribute("header.x-api-key").into());
                rule
            },
        )
}

/// Any policy of a few limits.
pub(crate) fn any_policy() -> impl Strategy<Value = Policy> {
    let limits = (0_usize..4).prop_flat_map(|count| {
        (0..count)
            .map(|index| any_limit(format!("limit-{index}")))
            .collect::<Vec<_>>()
    });
    let lists = (
        prop::collection::vec(any_match(1..3), 0..2),
        prop::collection::vec(any_match(1..3), 0..2),
    );
    (limits, lists, prop::option::of(0_u32..6), any::<bool>()).prop_map(
        |(limits, (exempt, deny), nodes, is_narrow)| Policy {
            limits,
            exempt,
            deny: deny
                .into_iter()
                .map(|matching| DenyRule {
                    matching,
                    status: 403,
                    message: None,
                })
                .collect(),
            groups: vec![Group {
                name: Box::<str>::from("g").into(),
                apply: if is_narrow {
                    GroupSelection::Narrowest
                } else {
                    GroupSelection::All
                },
            }],
            nodes,
            ..Policy::default()
        },
    )
}

/// Any request.
pub(crate) fn any_request() -> impl Strategy<Value = Request> {
    let value = (select(&ATTRIBUTES[1..]), select(&VALUES[..]));
    let path = select(vec!["/", "/api/x", "/items/7/", "//a/../items/%37", "*"]);
    (
        prop::collection::vec(value, 0..5),
        path,
        any::<Option<std::net::IpAddr>>(),
    )
        .prop_map(|(values, path, ip)| {
            let mut request = Request::with(&values);
            request.values.push((attribute("path"), path.into()));
            request.ip = ip;
            request
        })
}
