//! Keys are told apart whatever the requests say, and always fit.

use std::net::IpAddr;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::{
    DraftLimit, KEY_CAPACITY, KeyBuffer, KeyOutcome, KeySpec, MAX_KEY_PARTS, MatchedRules,
    MeterRef, Rules, RulesDraft,
};
use crate::attributes::Attribute;
use crate::model::{KeyPart, LimitRule, Match, OnMissing};
use crate::tests::fixtures::{MINUTE, Request, attribute, bucket, key as parts, limit, policy};

/// The rules of one limit whose only key is made like this.
fn keyed_by(recipe: KeySpec) -> Rules {
    let compiled = Rules::compile(&policy(vec![limit("l", bucket(10, MINUTE))]), SECRET).unwrap();
    let rule = compiled.rules.into_vec().pop().unwrap();
    let draft = RulesDraft {
        limits: vec![DraftLimit {
            rule,
            matching: Match::default(),
            group: None,
            keys: vec![recipe],
        }],
        ..RulesDraft::default()
    };
    Rules::new(draft, SECRET).unwrap()
}

const SECRET: [u8; 16] = *b"0123456789abcdef";
const FIRST: MeterRef = MeterRef { rule: 0, meter: 0 };

fn key_of(rules: &Rules, meter: MeterRef, request: &Request) -> (KeyOutcome, Vec<u8>) {
    let mut found = MatchedRules::new();
    rules.match_rules(request, &mut found);
    let mut buffer = KeyBuffer::new();
    let keyed = rules.write_key(meter, request, &found, &mut buffer);
    assert!(buffer.as_bytes().len() <= KEY_CAPACITY);
    (keyed, buffer.as_bytes().to_vec())
}

fn key(recipe: &KeySpec, values: &[(&str, &str)]) -> Vec<u8> {
    let (keyed, key) = key_of(&keyed_by(recipe.clone()), FIRST, &Request::with(values));
    assert_eq!(keyed, KeyOutcome::Complete);
    key
}

/// A request whose header `n` is the n-th of these.
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

/// What attackers send: nothing, empty, separators, our own encoding, NUL, bytes that are no text, and far too much.
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
    fn no_key_is_longer_than_its_room_and_a_longer_key_begins_with_the_shorter(
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
fn addresses_count_by_their_leading_bits_and_ipv4_is_ipv4_however_it_is_written() {
    let mut recipe = KeySpec::new(parts(&["ip"]));
    let ip = |recipe: &KeySpec, address: &str| key(recipe, &[("ip", address)]);
    assert_eq!(ip(&recipe, "10.1.2.3"), [1, 0, 4, 10, 1, 2, 3]);
    assert_eq!(ip(&recipe, "::ffff:10.1.2.3"), ip(&recipe, "10.1.2.3"));
    assert_ne!(ip(&recipe, "10.1.2.3"), ip(&recipe, "10.1.2.4"));
    assert_eq!(
        ip(&recipe, "2001:db8::1"),
        ip(&recipe, "2001:db8::ffff:1:2:3")
    );
    assert_ne!(ip(&recipe, "2001:db8::1"), ip(&recipe, "2001:db8:0:1::1"));
    recipe.parts[0].v4_bits = 24;
    recipe.parts[0].v6_bits = 0;
    assert_eq!(ip(&recipe, "10.1.2.3"), ip(&recipe, "10.1.2.255"));
    assert_ne!(ip(&recipe, "10.1.2.3"), ip(&recipe, "10.1.3.3"));
    assert_eq!(ip(&recipe, "::"), ip(&recipe, "ffff::"));
    assert_ne!(ip(&recipe, "::"), ip(&recipe, "0.0.0.0"));
}

#[test]
fn letters_count_alike_where_it_is_asked_for_and_in_hosts_always() {
    let mut recipe = KeySpec::new(parts(&["header.user", "host"]));
    let of = |recipe: &KeySpec, user: &str, host: &str| {
        key(recipe, &[("header.user", user), ("host", host)])
    };
    assert_ne!(of(&recipe, "Ann", "a"), of(&recipe, "ann", "a"));
    assert_eq!(of(&recipe, "ann", "A.Com"), of(&recipe, "ann", "a.com"));
    recipe.parts[0].lower = true;
    assert_eq!(of(&recipe, "Ann", "a"), of(&recipe, "ann", "a"));
    let long = "Ab".repeat(1_000);
    assert_eq!(
        of(&recipe, &long, "a"),
        of(&recipe, &long.to_lowercase(), "a")
    );
    recipe.parts[0].hash = true;
    assert_eq!(of(&recipe, "Ann", "a"), of(&recipe, "ann", "a"));
}

#[test]
fn a_hashed_part_shows_nothing_of_its_value_and_depends_on_the_secret() {
    let mut recipe = KeySpec::new(parts(&["header.token"]));
    recipe.parts[0].hash = true;
    let key = key(&recipe, &[("header.token", "secret")]);
    assert_eq!(key[..3], [2, 0, 16]);
    let mut buffer = KeyBuffer::new();
    recipe
        .write_key_of_values(&["secret"], SECRET, &mut buffer)
        .unwrap();
    assert_eq!(buffer.as_bytes(), key);
    recipe
        .write_key_of_values(&["secret"], [0; 16], &mut buffer)
        .unwrap();
    assert_ne!(buffer.as_bytes(), key);
}

/// The vector with a key and a message of bytes counting up, from the authors of `SipHash`.
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
fn a_missing_attribute_means_what_its_part_says_and_refusing_comes_first() {
    let keyed = |missing: &[OnMissing], request: &Request| {
        let mut recipe = recipe_of(missing.len());
        for (part, missing) in recipe.parts.iter_mut().zip(missing) {
            part.missing = *missing;
        }
        key_of(&keyed_by(recipe), FIRST, request).0
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
fn each_value_that_is_counted_has_a_key_of_its_own_and_each_path_one() {
    let recipe = KeySpec::new(parts(&["ip"])).with_distinct(Attribute::Path);
    let of = |path: &str| key(&recipe, &[("ip", "10.0.0.1"), ("path", path)]);
    assert_ne!(of("/a"), of("/b"));
    assert_eq!(of("/a/b"), of("//a/./%62/?q"));
    assert_eq!(of("/a").len(), 7 + 19);
    let long = format!("//{}", "x/".repeat(10_000));
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
fn a_key_that_a_policy_names_is_the_key_that_requests_have() {
    let mut recipe = KeySpec::new(parts(&["ip", "host", "header.plan"]));
    recipe.parts[0].v4_bits = 24;
    let mut buffer = KeyBuffer::new();
    recipe
        .write_key_of_values(&["10.0.0.0", "A.com", "pro"], SECRET, &mut buffer)
        .unwrap();
    let request = [
        ("ip", "10.0.0.77"),
        ("host", "a.COM"),
        ("header.plan", "pro"),
    ];
    assert_eq!(buffer.as_bytes(), key(&recipe, &request));
    assert_eq!(
        recipe.write_key_of_values(&["10.0.0.0"], SECRET, &mut buffer),
        None
    );
    assert_eq!(
        recipe.write_key_of_values(&["here", "a", "b"], SECRET, &mut buffer),
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
