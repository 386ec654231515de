//! Matching and keying do not allocate: the test allocator counts allocations.

use tollgate_testkit::allocation::{CountingAllocator, calls};

use crate::attributes::Attribute;
use crate::model::{Condition, Glob, IpNet, LimitRule, Match, Policy, Template, Test};
use crate::rules::{KeyBuffer, MatchedRules, MeterRef, Rules};
use crate::tests::fixtures::{MINUTE, Request, attribute, bucket, key, limit, policy};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn the_allocator_counts() {
    assert!(calls(|| drop(std::hint::black_box(vec![1]))) >= 2);
}

/// A limit for each kind of condition, each with a key of many attributes.
fn every_kind() -> Policy {
    let network: IpNet = "10.0.0.0/8".parse().unwrap();
    let tests = [
        ("method", Test::OneOf(vec!["GET".into()])),
        ("host", Test::Glob(vec![Glob("*.example.com".into())])),
        ("path", Test::Glob(vec![Glob("/v?/**/*s".into())])),
        ("path", Test::OneOf(vec!["/v1/items".into()])),
        ("route", Test::Route(vec![Template("/v1/{*rest}".into())])),
        ("ip", Test::Within(vec![network])),
        ("ip", Test::Glob(vec![Glob("10.*".into())])),
        ("header.x", Test::Present),
        ("header.y", Test::Absent),
        (
            "header.x",
            Test::Not(Box::new(Test::OneOf(vec!["z".into()]))),
        ),
    ];
    let limits = tests.into_iter().enumerate().map(|(n, (name, test))| {
        let condition = Condition {
            attribute: attribute(name),
            test,
        };
        let mut parts = key(&["ip", "host", "route", "method", "header.x", "header.y"]);
        parts[4].hash = n % 2 == 0;
        parts[1].lower = true;
        LimitRule {
            matching: Match {
                conditions: vec![condition.into()],
            },
            key: parts,
            distinct: Some(Attribute::Path.into()).filter(|_| n == 0),
            ..limit(&format!("l{n}"), bucket(10, MINUTE))
        }
    });
    policy(limits.collect())
}

#[test]
fn matching_and_keying_never_allocate() {
    let rules = Rules::compile(&every_kind(), [7; 16]).unwrap();
    let long = "x".repeat(70_000);
    let odd_and_long = format!("//V1/items;x%2F{}s", "x".repeat(8_000));
    let long_host = format!("{}.Example.com.", "x".repeat(1_000));
    for (path, host, header) in [
        ("/v1/items", "a.example.com", "x"),
        ("/v1/../v1/%69tems", "A.Example.COM", "x"),
        (odd_and_long.as_str(), long_host.as_str(), long.as_str()),
    ] {
        let values = [
            ("ip", "10.1.2.3"),
            ("method", "GET"),
            ("path", path),
            ("host", host),
            ("header.x", header),
        ];
        let request = Request::with(&values);
        // The list of matched rules grows with the first request and is reused.
        let mut matched = MatchedRules::new();
        rules.match_rules(&request, &mut matched);
        let mut buffer = KeyBuffer::new();
        let mut keys = 0;
        let counted = calls(|| {
            rules.match_rules(&request, &mut matched);
            for rule in matched.rules() {
                for meter in 0..rules.rules()[*rule].meters.len() {
                    rules.write_key(
                        MeterRef { rule: *rule, meter },
                        &request,
                        &matched,
                        &mut buffer,
                    );
                    keys += 1;
                }
            }
        });
        assert_eq!(counted, 0, "{}", path.len());
        assert!(keys >= 7, "{keys} keys for {}", path.len());
    }
}
