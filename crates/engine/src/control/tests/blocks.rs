//! Blocks of keys, addresses and networks.

use super::*;

#[test]
fn keys_of_any_level_are_blocked_until_the_block_ends() {
    let mut tree = limit("tree", per_second(9));
    let level = |name: &str, attribute: &str| tollgate_policy::model::Level {
        name: Box::<str>::from(name).into(),
        key: key(&[attribute]),
        quota: per_second(9),
    };
    tree.key = Vec::new();
    tree.levels = vec![level("org", "header.org"), level("user", "header.user")];
    let (engine, clock) = engine(vec![tree]);
    let decide =
        |org: &str, user: &str| engine.decide(&TestCaller::named(user).with("header.org", org));
    let control = engine.control();
    control
        .block_key("tree", &["acme"], Some(Nanos::MINUTE), OPERATOR)
        .unwrap();
    control
        .block_key("tree", &["other", "bob"], None, OPERATOR)
        .unwrap();
    let verdict = decide("acme", "anyone");
    let retry_after = Nanos::MINUTE;
    assert_eq!(
        (verdict.outcome(), verdict.reason()),
        (Outcome::Deny { retry_after }, Some(DenialReason::Blocked))
    );
    assert_eq!(
        (verdict.status(), verdict.rule_name()),
        (Some(429), Some("tree"))
    );
    assert_eq!(decide("other", "bob").outcome(), Outcome::Never);
    assert!(decide("other", "alice").is_admitted());
    assert_eq!(engine.totals("tree").unwrap().denied, 2);
    clock.advance(Nanos::MINUTE);
    assert!(decide("acme", "anyone").is_admitted());
    control
        .unblock_key("tree", &["other", "bob"], OPERATOR)
        .unwrap();
    assert!(decide("other", "bob").is_admitted());
    assert!(control.operator_state().blocks.is_empty());
}

#[test]
fn addresses_and_networks_are_blocked_regardless_of_the_policy() {
    let (engine, clock) = engine(Vec::new());
    let decide = |ip: &str| engine.decide(&TestCaller::default().from(ip));
    let control = engine.control();
    control
        .block_address("203.0.113.7", Some(Nanos::MINUTE), OPERATOR)
        .unwrap();
    control.block_address("10.0.0.0/8", None, OPERATOR).unwrap();
    control
        .block_address("2001:db8::/32", None, OPERATOR)
        .unwrap();
    let verdict: Verdict = decide("203.0.113.7");
    assert_eq!(
        (verdict.status(), verdict.reason()),
        (Some(403), Some(DenialReason::Blocked))
    );
    for blocked in ["10.255.0.1", "::ffff:10.0.0.1", "2001:db8:1::1"] {
        assert_eq!(decide(blocked).outcome(), Outcome::Never, "{blocked}");
    }
    for free in ["203.0.113.8", "11.0.0.1", "2001:db9::1"] {
        assert!(decide(free).is_admitted(), "{free}");
    }
    clock.advance(Nanos::MINUTE);
    assert!(decide("203.0.113.7").is_admitted());
    control.unblock_address("10.0.0.0/8", OPERATOR).unwrap();
    assert!(decide("10.255.0.1").is_admitted());
}

#[test]
fn blocks_are_bounded_and_expired_ones_make_room() {
    let (engine, clock) = engine(Vec::new());
    let block = |n: usize| Block::Address {
        address: format!("10.{}.{}.{}", n / 65_536, n / 256 % 256, n % 256),
        until: Some(START.after(Nanos::MINUTE).as_nanos()),
    };
    let full = OperatorState {
        blocks: (0..MAX_BLOCKS).map(block).collect(),
        ..OperatorState::default()
    };
    let control = engine.control();
    control.restore(full.clone(), OPERATOR).unwrap();
    let error = control
        .block_address("192.0.2.1", None, OPERATOR)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "there are 10000 blocks already, which is the maximum; remove some first"
    );
    let mut more = full;
    more.blocks.push(block(MAX_BLOCKS));
    assert!(control.restore(more, OPERATOR).is_err());
    clock.advance(Nanos::MINUTE);
    control.block_address("192.0.2.1", None, OPERATOR).unwrap();
    assert_eq!(control.operator_state().blocks.len(), 1);
}
