//! Random policies with all fields, most of which are valid.
//!
//! Must not know: how policies are written or read.

mod matching;
mod overload;
mod quotas;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use tollgate_core::Nanos;

use crate::attributes::Attribute;
use crate::model::{
    Amount, Consistency, Cost, Count, DenyRule, DuplicateRule, DuplicateSetting, GatewaySpec,
    Group, GroupSelection, JwtSettings, KeyPart, Level, LimitRule, Located, Mode, OnStoreFailure,
    PathCase, PathParameters, PathSettings, Penalty, Percent, Policy, QuotaOverride, QuotaSpec,
    RateSpec, RouteSpec, Shares, StatusClass, Tiers, UpstreamSpec, WeightedAddress, WhenFull,
};
use matching::{key, matching, template, text, texts_attribute, word};
use quotas::{LOCAL, candidate_beside, own_quota, quota, rate_quota, same_kind, span, unlimited};

fn cost() -> impl Strategy<Value = Cost> {
    prop_oneof![
        3 => Just(Cost::Fixed(1)),
        1 => (1..9_u64).prop_map(Cost::Fixed),
        1 => (texts_attribute(), btree_map(word().prop_map(|w| format!("v{w}").into()), 1..9_u64, 1..3), 1..9_u64)
            .prop_map(|(attribute, values, otherwise)| Cost::ByValue {
                attribute,
                values: values.into_iter().collect(),
                otherwise,
            }),
        1 => (texts_attribute(), 1..3_u64, 3..9_u64).prop_map(|(attribute, at_least, at_most)| Cost::Attribute {
            attribute,
            at_least,
            at_most,
            otherwise: at_least,
        }),
        1 => (word(), 1..5_u64, 5..9_u64).prop_map(|(header, estimate, at_most)| Cost::Response {
            header,
            estimate,
            at_most,
        }),
        1 => (1..5_u64, 5..9_u64).prop_map(|(estimate, at_most)| Cost::ResponseBody { estimate, at_most }),
    ]
    // In a box: the tree of all strategies would not fit on a test's stack.
    .boxed()
}

fn count() -> impl Strategy<Value = Count> {
    prop_oneof![
        4 => Just(Count::Requests),
        1 => Just(Count::Denials),
        1 => Just(Count::Responses(vec![StatusClass::Code(401), StatusClass::Class(5)])),
    ]
}

/// The fields about quota, key and cost.
fn amounts() -> impl Strategy<Value = LimitRule> {
    let tier_names = proptest::collection::btree_set(text(), 0..3);
    (
        (matching(0), key(0), own_quota(), any::<u8>()),
        (texts_attribute(), tier_names, option::of(vec(text(), 3))),
        (cost(), count()),
        option::of(rate_quota()),
    )
        .prop_map(
            |((matching, key, own, seed), (by, names, values), (cost, count), candidate)| {
                let tiers: Vec<_> = names
                    .into_iter()
                    .enumerate()
                    .map(|(index, name)| {
                        let quota = if index == 2 {
                            unlimited(&own)
                        } else {
                            same_kind(&own, 5)
                        };
                        (name.into(), quota.into())
                    })
                    .collect();
                let overrides = values
                    .filter(|_| {
                        !key.is_empty()
                            && key.iter().all(|part| part.attribute.value != Attribute::Ip)
                    })
                    .map(|values| QuotaOverride {
                        key: values
                            .into_iter()
                            .take(key.len())
                            .collect::<Vec<_>>()
                            .into(),
                        quota: same_kind(&own, 7).into(),
                    })
                    .into_iter()
                    .collect();
                let mut limit = minimal_limit(key, own);
                limit.matching = matching;
                limit.tiers = (!tiers.is_empty()).then(|| Tiers {
                    by: by.into(),
                    tiers,
                });
                limit.overrides = overrides;
                // Real policies rarely combine these fields, and many combinations are invalid.
                match seed % 10 {
                    0 => limit.cost = cost,
                    1 => limit.count = count,
                    2 => {
                        let other =
                            candidate.map(|other| candidate_beside(&limit.quota.value, other));
                        limit.candidate = other.map(Into::into);
                    }
                    3 => limit.local = Some(quota(Amount::Rates(vec![LOCAL.into()])).into()),
                    4 => limit.distinct = Some(Attribute::Path.into()),
                    5 => limit.colocate = limit.key.first().map(|part| part.attribute.clone()),
                    6 => limit.bucket = Some(Box::<str>::from("shared").into()),
                    8 => divide(&mut limit),
                    7 => limit.spillover = Some(quota(Amount::Rates(vec![LOCAL.into()])).into()),
                    _ => {}
                }
                limit
            },
        )
}

/// Divides a plain quota, because shares exclude tiers, overrides and other algorithms.
fn divide(limit: &mut LimitRule) {
    limit.quota = quota(Amount::Rates(vec![LOCAL.into()])).into();
    (limit.tiers, limit.overrides) = (None, Vec::new());
    let share = |(name, part): (&str, u16)| {
        let name = Box::<str>::from(name);
        (name.into(), Percent::from_hundredths(part).into())
    };
    limit.shares = Some(Shares {
        by: Attribute::Method.into(),
        shares: [("A", 2_500), ("B", 7_500)].map(share).into(),
    });
}

/// A limit with levels.
fn levels() -> impl Strategy<Value = LimitRule> {
    vec((word(), rate_quota()), 2..4).prop_map(|levels| {
        let mut limit = minimal_limit(Vec::new(), quota(Amount::Unlimited));
        limit.levels = levels
            .into_iter()
            .enumerate()
            .map(|(index, (name, quota))| Level {
                name: Box::<str>::from(format!("{name}{index}")).into(),
                key: vec![KeyPart::new(
                    Attribute::Claim(format!("{name}{index}").into()).into(),
                )],
                quota: quota.into(),
            })
            .collect();
        limit
    })
}

/// A limit with required fields only.
pub(super) fn minimal_limit(key: Vec<KeyPart>, quota: QuotaSpec) -> LimitRule {
    LimitRule {
        key,
        ..LimitRule::new(Box::from("l"), quota.into())
    }
}

/// Sets one of the fields about enforcement and denials, or none.
fn with_action(mut limit: LimitRule, seed: u8, span: Nanos, text: Box<str>) -> LimitRule {
    match seed % 16 {
        0 => limit.mode = Mode::Shadow,
        1 => limit.mode = Mode::Off,
        2 => limit.enforce = Percent::from_hundredths(u16::from(seed) * 13),
        3 => limit.wait = Some(span.into()),
        4 => limit.penalty = Penalty::Count.into(),
        5 => limit.penalty = Penalty::Block(span).into(),
        6 => {
            // Only charges after the request can go into debt.
            limit.charge_always = true;
            limit.overdraft = u64::from(seed) + 1;
        }
        7 => limit.charge_always = true,
        8 => limit.on_store_failure = OnStoreFailure::Open,
        9 => limit.on_store_failure = OnStoreFailure::Closed,
        10 => limit.consistency = Consistency::Leased.into(),
        11 => limit.consistency = Consistency::Async(span).into(),
        12 => limit.status = 503,
        13 => limit.when_full = Some(WhenFull::Forget),
        14 => limit.when_full = Some(WhenFull::Refuse),
        _ => limit.message = Some(text),
    }
    limit
}

fn limit() -> impl Strategy<Value = LimitRule> {
    let limit = prop_oneof![5 => amounts(), 1 => levels()];
    (
        limit,
        any::<(u8, u8)>(),
        span(),
        text(),
        option::of(select(vec!["aws", "g2"])),
    )
        .prop_map(|(limit, (first, second), span, message, group)| {
            let mut limit = with_action(limit, first, span, message.clone());
            if second % 2 == 0 {
                limit = with_action(limit, second, span, message);
            }
            limit.group = group.map(|group| Box::<str>::from(group).into());
            limit
        })
}

/// A policy with any field set.
pub(super) fn policy() -> impl Strategy<Value = Policy> {
    let deny =
        (matching(1), 400..600_u16, option::of(text())).prop_map(|(matching, status, message)| {
            DenyRule {
                matching,
                status,
                message,
            }
        });
    (
        vec((limit(), any::<bool>()), 1..4),
        (vec(matching(1), 0..2), vec(deny, 0..2)),
        vec(template(), 0..2),
        (
            select(vec![Mode::Enforce, Mode::Shadow, Mode::Off]),
            option::of(1..99_u32),
            1..=10_000_u16,
        ),
        select(vec![
            None,
            Some(GroupSelection::Narrowest),
            Some(GroupSelection::All),
        ]),
    )
        .prop_map(
            |(limits, (exempt, deny), routes, (mode, nodes, threshold), apply)| Policy {
                paths: path_settings(threshold),
                duplicates: duplicates(threshold),
                jwt: jwt(threshold),
                preflights: preflights(threshold),
                priorities: overload::priorities(threshold),
                overload: overload::overload(threshold),
                retries: overload::retries(threshold),
                limits: limits
                    .into_iter()
                    .zip(1..)
                    .map(|((mut limit, with_id), number)| {
                        limit.name = Box::<str>::from(format!("limit-{number}")).into();
                        limit.id = with_id.then(|| number.into());
                        limit
                    })
                    .collect(),
                exempt,
                deny,
                groups: apply
                    .map(|apply| Group {
                        name: Box::<str>::from("aws").into(),
                        apply,
                    })
                    .into_iter()
                    .collect(),
                routes: routes.into_iter().take(1).map(Into::into).collect(),
                mode,
                nodes,
                divergence_threshold: Percent::from_hundredths(threshold),
                gateway: gateway(threshold),
            },
        )
}

fn jwt(number: u16) -> Option<JwtSettings> {
    (!number.is_multiple_of(3)).then(|| JwtSettings {
        keys: vec![Located::from(vec![("kty".into(), "OKP".into())])],
        keys_file: (number % 3 > 1).then(|| Box::<str>::from("keys.json").into()),
        issuers: vec!["https://a.example".into(); usize::from(number % 2)],
        audiences: vec!["api".into(); usize::from(number % 4)],
        from: Attribute::Cookie("token".into()),
        leeway: Nanos::from_secs(u64::from(number % 300)),
        max_bytes: 64 + u32::from(number),
    })
}

fn preflights(number: u16) -> Option<Located<RateSpec>> {
    let rate = RateSpec {
        units: u64::from(number),
        ..Policy::PREFLIGHTS
    };
    (!number.is_multiple_of(2)).then(|| rate.into())
}

/// Sometimes a gateway with two upstreams.
fn gateway(number: u16) -> Option<GatewaySpec> {
    let address = |text: &str| crate::grammar::parse_upstream_address(text).unwrap();
    let mut gateway = GatewaySpec::single(address("http://127.0.0.1:3000"));
    if number.is_multiple_of(2) {
        let mut second = UpstreamSpec::new(Box::<str>::from("second").into());
        second.retries = u32::from(number % 11);
        second.retry_budget = Percent::from_hundredths(number);
        second.addresses = vec![WeightedAddress {
            address: address("unix:/run/second.sock"),
            weight: u32::from(number % 9 + 1),
        }];
        let mut route = RouteSpec::new(second.name.clone());
        route.path = "/second".into();
        route.strip_prefix = number.is_multiple_of(4);
        route.host = Some("*.a.example".into());
        route.max_body_size = (!number.is_multiple_of(5)).then_some(u64::from(number) << 10);
        gateway.upstreams.push(second);
        gateway.routes.push(route);
    }
    gateway.max_body_size = (!number.is_multiple_of(7)).then_some(number.into());
    (!number.is_multiple_of(3)).then_some(gateway)
}

fn path_settings(number: u16) -> PathSettings {
    PathSettings {
        case: [PathCase::Any, PathCase::Sensitive, PathCase::Insensitive][usize::from(number % 3)],
        parameters: [
            PathParameters::Any,
            PathParameters::Keep,
            PathParameters::Strip,
        ][usize::from(number / 3 % 3)],
    }
}

fn duplicates(number: u16) -> Vec<DuplicateSetting> {
    let rules = [
        DuplicateRule::First,
        DuplicateRule::Last,
        DuplicateRule::Joined,
        DuplicateRule::Refused,
    ];
    ["header.x-api-key", "query.q", "cookie.c"]
        .iter()
        .zip(rules.iter().cycle().skip(usize::from(number % 4)))
        .take(usize::from(number % 5).min(3))
        .map(|(name, rule)| DuplicateSetting {
            attribute: Attribute::parse(name).unwrap().into(),
            rule: *rule,
        })
        .collect()
}
