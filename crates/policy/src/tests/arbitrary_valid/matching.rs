//! Random texts, attributes, conditions and keys.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::attributes::Attribute;
use crate::model::{Condition, Glob, IpNet, KeyPart, Match, OnMissing, Template, Test};

/// A text value: some need quotes and escapes.
pub(super) fn text() -> impl Strategy<Value = Box<str>> {
    prop_oneof![
        4 => "[a-z][a-z0-9-]{0,8}",
        1 => select(vec!["absent", "present", "null", "10", "true", "a: b", "#x", "é\"'\\", "- a", "unlimited"])
            .prop_map(str::to_owned),
    ]
    .prop_map(Into::into)
}

pub(super) fn word() -> impl Strategy<Value = Box<str>> {
    "[a-z][a-z0-9_-]{0,10}".prop_map(Into::into)
}

/// An attribute for a key.
pub(super) fn attribute() -> impl Strategy<Value = Attribute> {
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

/// An attribute with any text as value.
pub(super) fn texts_attribute() -> impl Strategy<Value = Attribute> {
    prop_oneof![
        word().prop_map(Attribute::Header),
        word().prop_map(Attribute::Query),
        word().prop_map(Attribute::Claim),
        word().prop_map(Attribute::Descriptor),
    ]
}

pub(super) fn network() -> impl Strategy<Value = IpNet> {
    prop_oneof![
        (any::<u32>(), 1..=32_u8)
            .prop_map(|(address, bits)| network_of(Ipv4Addr::from(address).into(), bits)),
        // Outside of ::ffff:0:0/96, which is IPv4.
        (any::<u128>(), 8..=128_u8).prop_map(|(address, bits)| network_of(
            Ipv6Addr::from(address | 1 << 125).into(),
            bits
        )),
    ]
}

pub(super) fn network_of(address: IpAddr, bits: u8) -> IpNet {
    IpNet::new(address, bits).unwrap().trunc()
}

pub(super) fn template() -> impl Strategy<Value = Template> {
    (
        "[a-z]{1,6}",
        select(vec!["", "/{id}", "/{id}/x", "/{*rest}"]),
    )
        .prop_map(|(first, rest)| Template(format!("/{first}{rest}").into()))
}

pub(super) fn glob() -> impl Strategy<Value = Glob> {
    ("[a-z]{1,4}", select(vec!["*", "?", "**", "*x"]))
        .prop_map(|(first, rest)| Glob(format!("{first}{rest}").into()))
}

/// At least one value, without duplicates.
pub(super) fn several<T: Ord + Clone + std::fmt::Debug>(
    one: impl Strategy<Value = T>,
) -> impl Strategy<Value = Vec<T>> {
    proptest::collection::btree_set(one, 1..4).prop_map(|set| set.into_iter().collect())
}

pub(super) fn some_test() -> impl Strategy<Value = Test> {
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

pub(super) fn condition() -> impl Strategy<Value = Condition> {
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
pub(super) fn matching(fewest: usize) -> impl Strategy<Value = Match> {
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

pub(super) fn key_part() -> impl Strategy<Value = KeyPart> {
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

pub(super) fn key(fewest: usize) -> impl Strategy<Value = Vec<KeyPart>> {
    vec(key_part(), fewest..3).prop_map(|parts| {
        let by_attribute: BTreeMap<_, _> = parts
            .into_iter()
            .map(|part| (part.attribute.value.clone(), part))
            .collect();
        by_attribute.into_values().collect()
    })
}
