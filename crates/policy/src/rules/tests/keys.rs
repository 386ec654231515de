//! Different requests have different keys, and every key fits into the buffer.

use std::net::IpAddr;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use crate::attributes::Attribute;
use crate::model::{KeyPart, LimitRule, Match, OnMissing};
use crate::rules::{
    DraftLimit, KEY_CAPACITY, KeyBuffer, KeyOutcome, KeySpec, MAX_KEY_PARTS, MatchedRules,
    MeterRef, Rules, RulesDraft,
};
use crate::tests::fixtures::{MINUTE, Request, attribute, bucket, key as parts, limit, policy};

/// The rules of one limit with this key.
fn keyed_by(key_spec: KeySpec) -> Rules {
    let compiled = Rules::compile(&policy(vec![limit("l", bucket(10, MINUTE))]), SECRET).unwrap();
    let rule = compiled.rules.into_vec().pop().unwrap();
    let draft = RulesDraft {
        limits: vec![DraftLimit {
            rule,
            matching: Match::default(),
            group: None,
            keys: vec![key_spec],
        }],
        ..RulesDraft::default()
    };
    Rules::new(draft, SECRET).unwrap()
}

const SECRET: [u8; 16] = *b"0123456789abcdef";
const FIRST: MeterRef = MeterRef { rule: 0, meter: 0 };

fn key_of(rules: &Rules, meter: MeterRef, request: &Request) -> (KeyOutcome, Vec<u8>) {
    let mut matched = MatchedRules::new();
    rules.match_rules(request, &mut matched);
    let mut buffer = KeyBuffer::new();
    let keyed = rules.write_key(meter, request, &matched, &mut buffer);
    assert!(buffer.as_bytes().len() <= KEY_CAPACITY);
    (keyed, buffer.as_bytes().to_vec())
}

fn key(key_spec: &KeySpec, values: &[(&str, &str)]) -> Vec<u8> {
    let (keyed, key) = key_of(&keyed_by(key_spec.clone()), FIRST, &Request::with(values));
    assert_eq!(keyed, KeyOutcome::Complete);
    key
}

/// A request whose header `h<n>` has the n-th value.
fn tuple(values: &[Option<Vec<u8>>]) -> Request {
    let values = values.iter().enumerate();
    Request {
        ip: None,
        values: values
            .filter_map(|(n, value)| Some((attribute(&format!("header.h{n}")), value.clone()?)))
            .collect(),
    }
}

fn recipe_of(count: usize) -> KeySpec {
    let names: Vec<String> = (0..count).map(|n| format!("header.h{n}")).collect();
    KeySpec::new(parts(&names.iter().map(String::as_str).collect::<Vec<_>>()))
}

/// Hostile values: absent, empty, separators, our own encoding, NUL, invalid UTF-8, too long.
fn nasty() -> impl Strategy<Value = Option<Vec<u8>>> {
    let small = vec(
        select(&[0_u8, 1, 2, 3, b'a', b':', b'|', b'/', 0xff, 0xc3][..]),
        0..5,
    );
    let long = (
        select(&[100_usize, 190, 200, 206, 207, 300, 512, 65_535, 65_536][..]),
        select(b"ab\0"),
    );
    prop_oneof![
        2 => Just(None),
        6 => small.prop_map(Some),
        3 => long.prop_map(|(len, byte)| Some(vec![byte; len])),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn s_34_different_attributes_make_different_keys_and_the_same_make_the_same(
        (one, other) in (1..=4_usize).prop_flat_map(|count| (vec(nasty(), count), vec(nasty(), count))),
    ) {
        let rules = keyed_by(recipe_of(one.len()));
        let (_, a) = key_of(&rules, FIRST, &tuple(&one));
        let (_, b) = key_of(&rules, FIRST, &tuple(&other));
        prop_assert_eq!(a == b, one == other);
        prop_assert_eq!(a, key_of(&rules, FIRST, &tuple(&one)).1);
    }

    #[test]
    fn every_key_fits_its_buffer_and_a_longer_key_begins_with_the_shorter(
        values in vec(nasty(), MAX_KEY_PARTS),
        hash in any::<bool>(),
        distinct in option::of(Just(attribute("header.h0"))),
    ) {
        let mut longest = recipe_of(MAX_KEY_PARTS);
        longest.parts.iter_mut().for_each(|part| part.hash = hash);
        let mut shorter = longest.clone();
        shorter.parts.truncate(MAX_KEY_PARTS / 2);
        longest.distinct = distinct;
        let request = tuple(&values);
        let (_, all) = key_of(&keyed_by(longest), FIRST, &request);
        let (_, half) = key_of(&keyed_by(shorter), FIRST, &request);
        prop_assert!(all.starts_with(&half));
    }
}

#[test]
fn control_parts_that_are_joined_without_lengths_are_mixed_up() {
    let joined = |values: &[Option<Vec<u8>>]| -> Vec<u8> {
        values.iter().flatten().flatten().copied().collect()
    };
    let one = [Some(b"a:".to_vec()), Some(b"b".to_vec())];
    let other = [Some(b"a".to_vec()), Some(b":b".to_vec())];
    assert_eq!(joined(&one), joined(&other));
    let rules = keyed_by(recipe_of(2));
    assert_ne!(
        key_of(&rules, FIRST, &tuple(&one)),
        key_of(&rules, FIRST, &tuple(&other))
    );
}

#[test]
fn a_digest_cannot_be_sent_as_a_value() {
    let rules = keyed_by(recipe_of(1));
    let long = vec![b'x'; 10_000];
    let digest = rules.digest(&long).to_vec();
    let (_, of_long) = key_of(&rules, FIRST, &tuple(&[Some(long)]));
    let (_, of_digest) = key_of(&rules, FIRST, &tuple(&[Some(digest.clone())]));
    assert_eq!(of_long[3..], digest);
    assert_ne!(of_long, of_digest);
}

#[test]
fn keys_use_the_leading_bits_of_addresses_and_unmap_ipv4() {
    let mut key_spec = KeySpec::new(parts(&["ip"]));
    let ip = |key_spec: &KeySpec, address: &str| key(key_spec, &[("ip", address)]);
    assert_eq!(ip(&key_spec, "10.1.2.3"), [1, 0, 4, 10, 1, 2, 3]);
    assert_eq!(ip(&key_spec, "::ffff:10.1.2.3"), ip(&key_spec, "10.1.2.3"));
    assert_ne!(ip(&key_spec, "10.1.2.3"), ip(&key_spec, "10.1.2.4"));
    assert_eq!(
        ip(&key_spec, "2001:db8::1"),
        ip(&key_spec, "2001:db8::ffff:1:2:3")
    );
    assert_ne!(
        ip(&key_spec, "2001:db8::1"),
        ip(&key_spec, "2001:db8:0:1::1")
    );
    key_spec.parts[0].v4_bits = 24;
    key_spec.parts[0].v6_bits = 0;
    assert_eq!(ip(&key_spec, "10.1.2.3"), ip(&key_spec, "10.1.2.255"));
    assert_ne!(ip(&key_spec, "10.1.2.3"), ip(&key_spec, "10.1.3.3"));
    assert_eq!(ip(&key_spec, "::"), ip(&key_spec, "ffff::"));
    assert_ne!(ip(&key_spec, "::"), ip(&key_spec, "0.0.0.0"));
}

#[test]
fn lower_ignores_case_and_hosts_always_do() {
    let mut key_spec = KeySpec::new(parts(&["header.user", "host"]));
    let of = |key_spec: &KeySpec, user: &str, host: &str| {
        key(key_spec, &[("header.user", user), ("host", host)])
    };
    assert_ne!(of(&key_spec, "Ann", "a"), of(&key_spec, "ann", "a"));
    assert_eq!(of(&key_spec, "ann", "A.Com"), of(&key_spec, "ann", "a.com"));
    key_spec.parts[0].lower = true;
    assert_eq!(of(&key_spec, "Ann", "a"), of(&key_spec, "ann", "a"));
    let long = "Ab".repeat(1_000);
    assert_eq!(
        of(&key_spec, &long, "a"),
        of(&key_spec, &long.to_lowercase(), "a")
    );
    key_spec.parts[0].hash = true;
    assert_eq!(of(&key_spec, "Ann", "a"), of(&key_spec, "ann", "a"));
}

#[test]
fn a_hashed_part_is_a_digest_keyed_by_the_secret() {
    let mut key_spec = KeySpec::new(parts(&["header.token"]));
    key_spec.parts[0].hash = true;
    let key = key(&key_spec, &[("header.token", "secret")]);
    assert_eq!(key[..3], [2, 0, 16]);
    let mut buffer = KeyBuffer::new();
    key_spec
        .write_key_of_values(&["secret"], SECRET, &mut buffer)
        .unwrap();
    assert_eq!(buffer.as_bytes(), key);
    key_spec
        .write_key_of_values(&["secret"], [0; 16], &mut buffer)
        .unwrap();
    assert_ne!(buffer.as_bytes(), key);
}

/// The test vector of the `SipHash` authors: the key is the bytes counting up, the message is empty.
#[test]
fn digests_are_siphash_2_4_of_128_bits() {
    let secret = std::array::from_fn(|n| u8::try_from(n).unwrap());
    let rules = Rules::new(RulesDraft::default(), secret).unwrap();
    let empty = [
        0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02,
        0x93,
    ];
    assert_eq!(rules.digest(b""), empty);
}

#[test]
fn a_missing_attribute_has_the_outcome_of_its_part_and_deny_comes_first() {
    let keyed = |missing: &[OnMissing], request: &Request| {
        let mut key_spec = recipe_of(missing.len());
        for (part, missing) in key_spec.parts.iter_mut().zip(missing) {
            part.missing = *missing;
        }
        key_of(&keyed_by(key_spec), FIRST, request).0
    };
    let nothing = tuple(&[]);
    assert_eq!(keyed(&[OnMissing::Shared], &nothing), KeyOutcome::Complete);
    assert_eq!(keyed(&[OnMissing::Skip], &nothing), KeyOutcome::Skip);
    assert_eq!(keyed(&[OnMissing::Deny], &nothing), KeyOutcome::Deny);
    assert_eq!(
        keyed(
            &[OnMissing::Skip, OnMissing::Deny, OnMissing::Skip],
            &nothing
        ),
        KeyOutcome::Deny
    );
    assert_eq!(
        keyed(&[OnMissing::Shared, OnMissing::Skip], &nothing),
        KeyOutcome::Skip
    );
    let first = tuple(&[Some(Vec::new())]);
    assert_eq!(
        keyed(&[OnMissing::Deny, OnMissing::Skip], &first),
        KeyOutcome::Skip
    );
    assert_eq!(keyed(&[OnMissing::Deny], &first), KeyOutcome::Complete);
}

#[test]
fn each_distinct_value_has_its_own_key_and_spellings_of_a_path_share_one() {
    let key_spec = KeySpec::new(parts(&["ip"])).with_distinct(Attribute::Path);
    let of = |path: &str| key(&key_spec, &[("ip", "10.0.0.1"), ("path", path)]);
    assert_ne!(of("/a"), of("/b"));
    for spelling in [
        "//a/./%62/?q",
        "/a%2Fb",
        "/a\\b",
        "/a;x/b;y=1",
        "/a/b%2f",
        "/x/%2e%2e/a%5Cb",
    ] {
        assert_eq!(of("/a/b"), of(spelling), "{spelling}");
    }
    assert_ne!(of("/a/b"), of("/A/b"), "keys keep the case");
    assert_eq!(of("/a").len(), 7 + 19);
    let long = format!("//{}", "x/".repeat(4_000));
    assert_ne!(of(&long), of(&format!("{long}y")));
    let by_address = KeySpec::new(Vec::new()).with_distinct(Attribute::Ip);
    assert_ne!(
        key(&by_address, &[("ip", "10.0.0.1")]),
        key(&by_address, &[("ip", "10.0.0.2")])
    );
    assert_ne!(
        key(&by_address, &[]),
        key(&by_address, &[("ip", "10.0.0.2")])
    );
}

#[test]
fn the_key_of_an_override_equals_the_key_of_its_requests() {
    let mut key_spec = KeySpec::new(parts(&["ip", "host", "header.plan"]));
    key_spec.parts[0].v4_bits = 24;
    let mut buffer = KeyBuffer::new();
    key_spec
        .write_key_of_values(&["10.0.0.0", "A.com", "pro"], SECRET, &mut buffer)
        .unwrap();
    let request = [
        ("ip", "10.0.0.77"),
        ("host", "a.COM"),
        ("header.plan", "pro"),
    ];
    assert_eq!(buffer.as_bytes(), key(&key_spec, &request));
    assert_eq!(
        key_spec.write_key_of_values(&["10.0.0.0"], SECRET, &mut buffer),
        None
    );
    assert_eq!(
        key_spec.write_key_of_values(&["here", "a", "b"], SECRET, &mut buffer),
        None
    );
}

#[test]
fn the_key_of_a_level_begins_with_the_key_of_the_level_above() {
    let level = |name: &str, by: &str| crate::model::Level {
        name: Box::<str>::from(name).into(),
        key: parts(&[by]),
        quota: bucket(10, MINUTE),
    };
    let hierarchy = LimitRule {
        levels: vec![level("org", "claim.org"), level("project", "claim.project")],
        ..limit("api", bucket(10, MINUTE))
    };
    let rules = Rules::compile(&policy(vec![hierarchy]), SECRET).unwrap();
    let request = Request::with(&[("claim.org", &"o".repeat(300)), ("claim.project", "p")]);
    let key = |meter| key_of(&rules, MeterRef { rule: 0, meter }, &request).1;
    assert!(key(1).starts_with(&key(0)) && key(1).len() == key(0).len() + 4);
}

#[test]
fn masks_of_every_length_keep_exactly_their_bits() {
    for bits in 0..=128_u8 {
        let part = KeyPart {
            v4_bits: bits.min(32),
            v6_bits: bits,
            ..KeyPart::new(Attribute::Ip.into())
        };
        let ones = |ip: &str| {
            let ip: IpAddr = ip.parse().unwrap();
            let key = key(
                &KeySpec::new(vec![part.clone()]),
                &[("ip", &ip.to_string())],
            );
            key[3..].iter().map(|byte| byte.count_ones()).sum::<u32>()
        };
        assert_eq!(ones("255.255.255.255"), u32::from(bits.min(32)));
        assert_eq!(
            ones("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            u32::from(bits)
        );
    }
}
