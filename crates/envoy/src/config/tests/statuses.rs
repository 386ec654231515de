//! How the statuses of descriptors are combined into one reply.

use tollgate_core::Timestamp;

use super::test_server::{TestRequest, TestServer};
use crate::config::{
    Descriptor, DescriptorEntry, LimitOverride, Metadata, Modes, RlsRequest, WindowUnit,
};

const RULES: &str = "
domain: d
descriptors:
  - { key: one, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: many, rate_limit: { unit: day, requests_per_unit: 100 } }
  - { key: free, rate_limit: { unlimited: true } }
  - { key: dark, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: quota, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: gift, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 100 } }
  - { key: darkquota, quota_mode: true, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }
";

/// The overall code of the second request, when the counters of `one`, `quota` and so on are exhausted.
fn overall(modes: Modes, text: &str) -> String {
    let mut server = TestServer::from_text(RULES);
    server.modes = modes;
    server.check(0, "d", text);
    let reply = server.check(0, "d", text);
    reply.split_once(':').unwrap().0.to_owned()
}

fn overall_code(text: &str) -> String {
    overall(Modes::default(), text)
}

#[test]
fn one_exceeded_limit_denies_the_request() {
    assert_eq!(overall_code("one=x"), "OVER");
    assert_eq!(overall_code("many=x"), "OK");
    assert_eq!(overall_code("many=x|one=x"), "OVER");
    assert_eq!(overall_code("one=x|many=x|free=x|nothing=x"), "OVER");
}

#[test]
fn each_descriptor_is_charged_on_its_own() {
    let mut server = TestServer::from_text(RULES);
    server.expect(
        0,
        "one=x|many=x",
        "OK: OK 0/1 day 86400s | OK 99/100 day 86400s",
    );
    server.expect(
        0,
        "one=x|many=x",
        "OVER: OVER 0/1 day 86400s | OK 98/100 day 86400s",
    );
    server.expect(0, "many=x", "OK: OK 97/100 day 86400s");
}

#[test]
fn an_unlimited_rule_admits_without_a_limit() {
    let mut server = TestServer::from_text(RULES);
    for _ in 0..3 {
        server.expect(0, "free=x", "OK: OK unlimited");
    }
    server.expect(0, "free=x,more=y", "OK: OK free");
}

#[test]
fn a_rule_in_shadow_mode_counts_and_never_denies() {
    let mut server = TestServer::from_text(RULES);
    server.expect(0, "dark=x", "OK: OK 0/1 day 86400s");
    server.expect(0, "dark=x", "OK: OK 0/1 day 86400s");
    let test_request = TestRequest::parse("d", "dark=x");
    let exceeded = test_request.with(|request| {
        server.decide(Timestamp::EPOCH, request, |_, reply| {
            reply.statuses()[0].exceeded
        })
    });
    assert!(exceeded, "the status reports the exceeded shadow limit");
    assert_eq!(overall_code("dark=x|one=x"), "OVER");
}

#[test]
fn rules_in_quota_mode_deny_only_together() {
    assert_eq!(overall_code("quota=x"), "OVER");
    assert_eq!(overall_code("quota=x|gift=x"), "OK");
    assert_eq!(overall_code("quota=x|quota=y"), "OVER");
    assert_eq!(
        overall_code("quota=x|many=x"),
        "OVER",
        "other rules do not count as quotas"
    );
    assert_eq!(overall_code("gift=x|one=x"), "OVER");
    assert_eq!(overall_code("quota=x|gift=x|one=x"), "OVER");
    assert_eq!(
        overall_code("quota=x|darkquota=x"),
        "OK",
        "a rule in shadow mode admits"
    );
    assert_eq!(
        overall_code("quota=x|free=x"),
        "OVER",
        "an unlimited rule is not a quota"
    );
    let mut server = TestServer::from_text(RULES);
    server.check(0, "d", "quota=x");
    server.expect(
        0,
        "quota=x|gift=x",
        "OK: OVER 0/1 day 86400s | OK 99/100 day 86400s",
    );
}

#[test]
fn in_global_quota_mode_every_rule_is_a_quota() {
    let modes = Modes {
        quota_mode: true,
        ..Modes::default()
    };
    assert_eq!(overall(modes, "one=x"), "OVER");
    assert_eq!(overall(modes, "one=x|many=x"), "OK");
    assert_eq!(
        overall(modes, "one=x|nothing=x"),
        "OK",
        "also descriptors without a rule"
    );
    assert_eq!(
        overall(modes, "one=x|free=x"),
        "OVER",
        "but not unlimited rules"
    );
}

#[test]
fn in_global_shadow_mode_nothing_is_denied_and_statuses_stay() {
    let mut server = TestServer::from_text(RULES);
    server.modes.shadow_mode = true;
    server.expect(0, "one=x", "OK: OK 0/1 day 86400s");
    server.expect(0, "one=x", "OK: OVER 0/1 day 86400s");
    let test_request = TestRequest::parse("d", "one=x");
    let shadowed = test_request
        .with(|request| server.decide(Timestamp::EPOCH, request, |_, reply| reply.shadowed));
    assert!(shadowed);
}

const REPLACING: &str = "
domain: d
descriptors:
  - { key: base, rate_limit: { unit: day, requests_per_unit: 1, name: base } }
  - { key: other, rate_limit: { unit: day, requests_per_unit: 1, name: other, replaces: [{ name: mutual }] } }
  - { key: mutual, rate_limit: { unit: day, requests_per_unit: 1, name: mutual, replaces: [{ name: other }] } }
  - { key: vip, rate_limit: { unit: day, requests_per_unit: 9, name: vip, replaces: [{ name: base }, { name: other }] } }
  - { key: staff, rate_limit: { unlimited: true, name: staff, replaces: [{ name: base }] } }
  - { key: boss, rate_limit: { unit: day, requests_per_unit: 5, replaces: [{ name: staff }, { name: vip }] } }
";

#[test]
fn a_replaced_limit_is_neither_evaluated_nor_charged() {
    let mut server = TestServer::from_text(REPLACING);
    for left in (6..9).rev() {
        let expected = format!("OK: OK free | OK {left}/9 day 86400s 'vip'");
        server.expect(0, "base=x|vip=x", &expected);
    }
    server.expect(0, "base=x", "OK: OK 0/1 day 86400s 'base'");
    server.expect(0, "base=x", "OVER: OVER 0/1 day 86400s 'base'");
    server.expect(0, "vip=x|base=x", "OK: OK 5/9 day 86400s 'vip' | OK free");
}

#[test]
fn an_unlimited_rule_replaces_others_and_is_not_replaced() {
    let mut server = TestServer::from_text(REPLACING);
    server.expect(0, "base=x|staff=x", "OK: OK free | OK unlimited");
    server.expect(0, "staff=x|boss=x", "OK: OK unlimited | OK 4/5 day 86400s");
}

#[test]
fn limits_that_replace_each_other_are_both_dropped_and_a_replaced_one_still_replaces() {
    let mut server = TestServer::from_text(REPLACING);
    server.expect(0, "other=x|mutual=x", "OK: OK free | OK free");
    server.expect(
        0,
        "base=x|vip=x|boss=x",
        "OK: OK free | OK free | OK 4/5 day 86400s",
    );
}

#[test]
fn only_limits_of_the_same_request_are_replaced_and_never_overrides() {
    let mut server = TestServer::from_text(REPLACING);
    server.expect(0, "vip=x", "OK: OK 8/9 day 86400s 'vip'");
    server.expect(0, "base=x", "OK: OK 0/1 day 86400s 'base'");
    server.expect(
        0,
        "base=y 3/day|vip=x",
        "OK: OK 2/3 day 86400s | OK 7/9 day 86400s 'vip'",
    );
    server.expect(
        0,
        "base=z|vip=x 3/day",
        "OK: OK 0/1 day 86400s 'base' | OK 0/3 day 86400s",
    );
}

#[test]
fn the_tightest_limit_is_reported() {
    let mut server = TestServer::from_text(RULES);
    let mut tightest = |text: &str| {
        TestRequest::parse("d", text)
            .with(|request| server.decide(Timestamp::EPOCH, request, |_, reply| reply.tightest))
    };
    assert_eq!(tightest("nothing=x|free=x"), None);
    assert_eq!(tightest("many=x|one=x|gift=x"), Some(1));
    assert_eq!(tightest("one=x|quota=x"), Some(0), "the one that denies");
    assert_eq!(
        tightest("one=x|one=y|one=x"),
        Some(2),
        "the last that denies"
    );
}

#[test]
fn the_metadata_of_rules_that_admit_are_merged() {
    let mut server = TestServer::from_text(
        "
domain: d
descriptors:
  - { key: a, value_to_metric: true, metadata: { who: a, deep: { x: 1 } }, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: b, metadata: { who: b, deep: { x: 2, y: 3 } }, rate_limit: { unit: day, requests_per_unit: 9 } }
  - { key: c, metadata: { who: c }, rate_limit: { unlimited: true } }
",
    );
    let mut metadata = |text: &str| {
        TestRequest::parse("d", text)
            .with(|request| server.decide(Timestamp::EPOCH, request, |_, reply| reply.metadata()))
    };
    let map = |entries: &[(&str, Metadata)]| {
        let own = entries
            .iter()
            .map(|(name, value)| ((*name).into(), value.clone()));
        Metadata::Map(own.collect())
    };
    let (x, y) = (("x", Metadata::Number(1.0)), ("y", Metadata::Number(3.0)));
    let both = map(&[
        ("who", Metadata::Text("a".into())),
        ("deep", map(&[x, y.clone()])),
    ]);
    assert_eq!(metadata("a=1|b=1"), Some(both));
    let only_b = map(&[
        ("who", Metadata::Text("b".into())),
        ("deep", map(&[("x", Metadata::Number(2.0)), y])),
    ]);
    assert_eq!(metadata("a=1|b=1"), Some(only_b), "a is over its limit now");
    assert_eq!(metadata("c=1|nothing=1"), None);
}

/// envoyproxy/ratelimit sends the request and nests the metadata of rules; ours put them on top, so that a name of a rule could pass
/// for `domain`.
#[test]
fn dynamic_metadata_have_the_shape_of_envoyproxy_ratelimit() {
    let mut server = TestServer::from_text(
        "
domain: d
descriptors:
  - { key: a, metadata: { domain: gold }, rate_limit: { unit: day, requests_per_unit: 1 } }
",
    );
    let entries = [
        DescriptorEntry::new("a", "1"),
        DescriptorEntry::new("b", ""),
    ];
    let mut descriptors = [
        Descriptor::new(&entries[..1]),
        Descriptor::new(&entries),
        Descriptor::new(&entries[1..]),
    ];
    descriptors[1].hits_addend = Some(0);
    descriptors[2].limit = Some(LimitOverride {
        requests_per_unit: 7,
        unit: WindowUnit::Minute,
    });
    let mut request = RlsRequest::new("d", &descriptors);
    request.hits_addend = 3;
    let text = |text: &str| Metadata::Text(text.into());
    let map = |entries: &[(&str, Metadata)]| {
        let own = entries
            .iter()
            .map(|(name, value)| ((*name).into(), value.clone()));
        Metadata::Map(own.collect())
    };
    let list = Metadata::List;
    let described = list(vec![
        map(&[("entries", list(vec![text("a=1")]))]),
        map(&[
            ("entries", list(vec![text("a=1"), text("b=")])),
            ("hitsAddend", Metadata::Number(0.0)),
        ]),
        map(&[
            ("entries", list(vec![text("b=")])),
            ("limit", text("requests_per_unit:7 unit:MINUTE")),
        ]),
    ]);
    let always = [
        ("domain", text("d")),
        ("descriptors", described),
        ("hitsAddend", Metadata::Number(3.0)),
    ];
    let mut decide = |request: &RlsRequest<'_>| {
        server.decide(Timestamp::EPOCH, request, |plan, reply| {
            (plan.dynamic_metadata(reply), reply.has_metadata())
        })
    };
    // Three hits are over the limit of one: the rule denies and adds nothing.
    assert_eq!(decide(&request), (map(&always), false));
    request.hits_addend = 0;
    let one = [DescriptorEntry::new("a", "2")];
    let one = [Descriptor::new(&one)];
    request.descriptors = &one;
    let admitted = map(&[
        ("domain", text("d")),
        (
            "descriptors",
            list(vec![map(&[("entries", list(vec![text("a=2")]))])]),
        ),
        ("metadata", map(&[("domain", text("gold"))])),
    ]);
    assert_eq!(decide(&request), (admitted, true));
}

#[test]
fn there_must_be_one_status_for_each_charge() {
    let server = TestServer::from_text(RULES);
    TestRequest::parse("d", "one=x|nothing=x").with(|request| {
        let plan = server.policy.plan(request).unwrap();
        let charge = plan.charges().next().unwrap();
        let status = charge
            .limit
            .status(&tollgate_core::limit::State::default(), Timestamp::EPOCH);
        let reply = |statuses: &[_]| {
            plan.reply(statuses, Timestamp::EPOCH, Modes::default())
                .is_some()
        };
        assert!(!reply(&[]));
        assert!(reply(&[status]));
        assert!(!reply(&[status, status]));
    });
}
