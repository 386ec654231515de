//! Random policies of every field, such that a reader accepts most of them.
//!
//! Must not know: how policies are written or read.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use tollgate_core::{Nanos, QuotaUnit};

use crate::attributes::Attribute;
use crate::model::{
    Algorithm, Amount, Burst, ComputedRate, Condition, Consistency, Cost, Count, DenyRule, Glob,
    Group, GroupSelection, IpNet, KeyPart, Level, LimitRule, Match, Mode, OnMissing,
    OnStoreFailure, Penalty, Percent, Period, Policy, QuotaOverride, QuotaSpec, RateSpec,
    StatusClass, Template, Test, Tiers, WhenFull,
};

/// A text that a value may have: plain, or such that only quotes and escapes keep it whole.
fn text() -> impl Strategy<Value = Box<str>> {
    prop_oneof![
        4 => "[a-z][a-z0-9-]{0,8}",
        1 => select(vec!["absent", "present", "null", "10", "true", "a: b", "#x", "é\"'\\", "- a", "unlimited"])
            .prop_map(str::to_owned),
    ]
    .prop_map(Into::into)
}

fn word() -> impl Strategy<Value = Box<str>> {
    "[a-z][a-z0-9_-]{0,10}".prop_map(Into::into)
}

/// An attribute that may be a part of a key.
fn attribute() -> impl Strategy<Value = Attribute> {
    prop_oneof![
        Just(Attribute::Ip),
        Just(Attribute::Method),
        Just(Attribute::Host),
        Just(Attribute::Route),
        word().prop_map(Attribute::Header),
        word().prop_map(Attribute::Query),
        word().prop_map(Attribute::Cookie),
        word().prop_map(Attribute::Claim),
        word().prop_map(Attribute::Descriptor),
    ]
}

/// An attribute whose value is any text.
fn texts_attribute() -> impl Strategy<Value = Attribute> {
    prop_oneof![
        word().prop_map(Attribute::Header),
        word().prop_map(Attribute::Query),
        word().prop_map(Attribute::Claim),
        word().prop_map(Attribute::Descriptor),
    ]
}

fn network() -> impl Strategy<Value = IpNet> {
    prop_oneof![
        (any::<u32>(), 1..=32_u8)
            .prop_map(|(address, bits)| network_of(Ipv4Addr::from(address).into(), bits)),
        // Not below ::ffff:0:0/96, which would be another way to write IPv4.
        (any::<u128>(), 8..=128_u8).prop_map(|(address, bits)| network_of(
            Ipv6Addr::from(address | 1 << 125).into(),
            bits
        )),
    ]
}

fn network_of(address: IpAddr, bits: u8) -> IpNet {
    IpNet::new(address, bits).unwrap().trunc()
}

fn template() -> impl Strategy<Value = Template> {
    (
        "[a-z]{1,6}",
        select(vec!["", "/{id}", "/{id}/x", "/{*rest}"]),
    )
        .prop_map(|(first, rest)| Template(format!("/{first}{rest}").into()))
}

fn glob() -> impl Strategy<Value = Glob> {
    ("[a-z]{1,4}", select(vec!["*", "?", "**", "*x"]))
        .prop_map(|(first, rest)| Glob(format!("{first}{rest}").into()))
}

/// At least one of something, each once.
fn several<T: Ord + Clone + std::fmt::Debug>(
    one: impl Strategy<Value = T>,
) -> impl Strategy<Value = Vec<T>> {
    proptest::collection::btree_set(one, 1..4).prop_map(|set| set.into_iter().collect())
}

fn some_test() -> impl Strategy<Value = Test> {
    let positive = prop_oneof![
        several(text()).prop_map(Test::OneOf),
        vec(glob(), 1..2).prop_map(Test::Glob),
    ]
    .boxed();
    prop_oneof![
        positive.clone(),
        positive.prop_map(|inner| Test::Not(Box::new(inner))),
        Just(Test::Present),
        Just(Test::Absent),
    ]
}

fn condition() -> impl Strategy<Value = Condition> {
    let negated = |test: Test, not: bool| if not { Test::Not(Box::new(test)) } else { test };
    prop_oneof![
        (texts_attribute(), some_test())
            .prop_map(|(attribute, test)| Condition { attribute, test }),
        several(select(vec!["GET", "POST", "PURGE"])).prop_map(|methods| Condition {
            attribute: Attribute::Method,
            test: Test::OneOf(methods.into_iter().map(Into::into).collect()),
        }),
        (several(network()), any::<bool>()).prop_map(move |(networks, not)| Condition {
            attribute: Attribute::Ip,
            test: negated(Test::Within(networks), not),
        }),
        several(template()).prop_map(|templates| Condition {
            attribute: Attribute::Route,
            test: Test::Route(templates),
        }),
        vec(glob(), 1..2).prop_map(|globs| Condition {
            attribute: Attribute::Host,
            test: Test::Glob(globs),
        }),
    ]
}

/// Conditions on different attributes.
fn matching(fewest: usize) -> impl Strategy<Value = Match> {
    vec(condition(), fewest..4).prop_map(|conditions| {
        let by_attribute: BTreeMap<_, _> = conditions
            .into_iter()
            .map(|condition| (condition.attribute.clone(), condition))
            .collect();
        Match {
            conditions: by_attribute.into_values().map(Into::into).collect(),
        }
    })
}

fn key_part() -> impl Strategy<Value = KeyPart> {
    (
        attribute(),
        any::<(bool, bool)>(),
        (8..=32_u8, 32..=128_u8),
        select(vec![OnMissing::Shared, OnMissing::Skip, OnMissing::Deny]),
    )
        .prop_map(|(attribute, (lower, hash), (v4, v6), missing)| {
            let address = attribute == Attribute::Ip;
            KeyPart {
                lower: lower && !address,
                hash,
                v4_bits: if address { v4 } else { 32 },
                v6_bits: if address { v6 } else { 64 },
                missing,
                ..KeyPart::new(attribute.into())
            }
        })
}

fn key(fewest: usize) -> impl Strategy<Value = Vec<KeyPart>> {
    vec(key_part(), fewest..3).prop_map(|parts| {
        let by_attribute: BTreeMap<_, _> = parts
            .into_iter()
            .map(|part| (part.attribute.value.clone(), part))
            .collect();
        by_attribute.into_values().collect()
    })
}

fn span() -> impl Strategy<Value = Nanos> {
    select(vec![1_u64, 10, 60, 90, 900, 3_600, 86_400, 604_800]).prop_map(Nanos::from_secs)
}

fn rate() -> impl Strategy<Value = RateSpec> {
    let period = prop_oneof![9 => span().prop_map(Period::Span), 1 => Just(Period::Year)];
    (100..1_000_000_u64, period).prop_map(|(units, period)| RateSpec { units, period })
}

/// A quota that counts over time.
fn rate_quota() -> impl Strategy<Value = QuotaSpec> {
    let bucket =
        (rate(), option::of(1_000_000..2_000_000_u64)).prop_map(|(rate, burst)| QuotaSpec {
            burst: burst.map(|units| Burst::Units(units).into()),
            ..quota(Amount::Rates(vec![rate.into()]))
        });
    let auto = rate().prop_map(|rate| QuotaSpec {
        burst: Some(Burst::Auto.into()),
        ..quota(Amount::Rates(vec![rate.into()]))
    });
    let windows = (
        100..1_000_u64,
        select(vec![Period::Month, Period::Span(Nanos::from_secs(86_400))]),
        -14 * 4..14 * 4_i16,
    )
        .prop_map(|(units, period, quarters)| QuotaSpec {
            algorithm: Algorithm::FixedWindow,
            utc_offset_minutes: quarters * 15,
            ..quota(Amount::Rates(vec![RateSpec { units, period }.into()]))
        });
    let other = (
        100..1_000_u64,
        span(),
        select(vec![
            Algorithm::SlidingWindow,
            Algorithm::SlidingLog,
            Algorithm::LeakyBucket,
        ]),
    )
        .prop_map(|(units, span, algorithm)| QuotaSpec {
            algorithm,
            ..quota(Amount::Rates(vec![
                RateSpec {
                    units,
                    period: Period::Span(span),
                }
                .into(),
            ]))
        });
    let several = (100..1_000_u64, 2_000..9_000_u64).prop_map(|(second, hour)| {
        let rate = |units, secs| {
            RateSpec {
                units,
                period: Period::Span(Nanos::from_secs(secs)),
            }
            .into()
        };
        quota(Amount::Rates(vec![rate(second, 1), rate(hour, 3_600)]))
    });
    prop_oneof![bucket, auto, windows, other, several]
}

fn quota(amount: Amount) -> QuotaSpec {
    QuotaSpec {
        algorithm: Algorithm::TokenBucket,
        amount,
        burst: None,
        unit: QuotaUnit::Requests,
        utc_offset_minutes: 0,
    }
}

/// Any quota that a limit may have.
fn own_quota() -> impl Strategy<Value = QuotaSpec> {
    let at_once = (1..500_u64, span()).prop_map(|(places, lease)| QuotaSpec {
        algorithm: Algorithm::Concurrency,
        ..quota(Amount::Concurrency {
            permits: places,
            lease,
        })
    });
    let computed = (100..900_u64, 1..9_u64, texts_attribute()).prop_map(|(base, each, times)| {
        let rate = |units| {
            RateSpec {
                units,
                period: Period::Span(Nanos::from_secs(3_600)),
            }
            .into()
        };
        quota(Amount::Computed(ComputedRate {
            base: rate(base),
            each: rate(each),
            times,
            at_most: rate(base * 10),
        }))
    });
    prop_oneof![6 => rate_quota(), 1 => at_once, 1 => computed]
}

/// A quota of the same kind as another: tiers and overrides only change how much.
fn same_kind(own: &QuotaSpec, units: u64) -> QuotaSpec {
    let mut other = own.clone();
    match &mut other.amount {
        Amount::Rates(rates) => {
            for rate in rates {
                rate.value.units += units;
            }
        }
        Amount::Concurrency {
            permits: places, ..
        } => *places += units,
        Amount::Computed(computed) => computed.at_most.value.units += units,
        Amount::Unlimited => {}
    }
    other
}

fn unlimited(own: &QuotaSpec) -> QuotaSpec {
    QuotaSpec {
        amount: Amount::Unlimited,
        burst: None,
        ..own.clone()
    }
}

const LOCAL: RateSpec = RateSpec {
    units: 2_000_000,
    period: Period::Span(Nanos::from_secs(1)),
};

/// A candidate that takes over what a reader takes over: `burst: auto` holds for every bucket of a limit.
fn candidate_beside(own: &QuotaSpec, mut candidate: QuotaSpec) -> QuotaSpec {
    let auto = own.burst.filter(|burst| burst.value == Burst::Auto);
    if matches!(
        candidate.algorithm,
        Algorithm::TokenBucket | Algorithm::LeakyBucket
    ) {
        candidate.burst = candidate.burst.or(auto);
    }
    candidate
}

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
    ]
}

fn count() -> impl Strategy<Value = Count> {
    prop_oneof![
        4 => Just(Count::Requests),
        1 => Just(Count::Denials),
        1 => Just(Count::Responses(vec![StatusClass::Code(401), StatusClass::Class(5)])),
    ]
}

/// The fields that say how much and of what.
fn amounts() -> impl Strategy<Value = LimitRule> {
    let tier_names = proptest::collection::btree_set(text(), 0..3);
    (
        (matching(0), key(0), own_quota(), any::<u8>()),
        (texts_attribute(), tier_names, option::of(vec(text(), 3))),
        (cost(), count()),
        option::of(rate_quota()),
    )
        .prop_map(
            |((matching, key, own, dice), (by, names, values), (cost, count), candidate)| {
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
                // Most of these stand alone in real policies too, and together many contradict each other.
                match dice % 8 {
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
                    _ => {}
                }
                limit
            },
        )
}

/// A limit of levels.
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

/// A limit that says only what it must.
pub(super) fn minimal_limit(key: Vec<KeyPart>, quota: QuotaSpec) -> LimitRule {
    LimitRule {
        key,
        ..LimitRule::new(Box::from("l"), quota.into())
    }
}

/// Adds one of the fields that say what happens then, or none.
fn with_action(mut limit: LimitRule, dice: u8, span: Nanos, text: Box<str>) -> LimitRule {
    match dice % 16 {
        0 => limit.mode = Mode::Shadow,
        1 => limit.mode = Mode::Off,
        2 => limit.enforce = Percent::from_hundredths(u16::from(dice) * 13),
        3 => limit.wait = Some(span.into()),
        4 => limit.penalty = Penalty::Count.into(),
        5 => limit.penalty = Penalty::Block(span).into(),
        6 => {
            // Only what is charged afterwards can go into debt.
            limit.charge_always = true;
            limit.overdraft = u64::from(dice) + 1;
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

/// A policy of which every field may be set.
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
            },
        )
}
