//! What matching guarantees.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::attributes::{Attribute, AttributeFamily, Attributes};
use crate::model::{
    Condition, DenyRule, Glob, Group, GroupSelection, KeyPart, LimitRule, Match, Mode, OnMissing,
    Policy, Template, Test,
};
use crate::rules::{ListVerdict, MAX_METERS, MatchedRules, RuleOrigin, Rules, Unreadable};
use crate::tests::fixtures::{MINUTE, Request, attribute, bucket, limit, policy};

fn matching(conditions: &[(&str, Test)]) -> Match {
    Match {
        conditions: conditions
            .iter()
            .map(|(name, test)| {
                Condition {
                    attribute: attribute(name),
                    test: test.clone(),
                }
                .into()
            })
            .collect(),
    }
}

fn is(value: &str) -> Test {
    Test::OneOf(vec![value.into()])
}

fn under(template: &str) -> Test {
    Test::Route(vec![Template(template.into())])
}

fn like(glob: &str) -> Test {
    Test::Glob(vec![Glob(glob.into())])
}

fn limit_on(name: &str, conditions: &[(&str, Test)]) -> LimitRule {
    LimitRule {
        matching: matching(conditions),
        ..limit(name, bucket(10, MINUTE))
    }
}

fn match_policy(policy: &Policy, request: &dyn Attributes) -> MatchedRules {
    let rules = Rules::compile(policy, [7; 16]).unwrap();
    let mut matched = MatchedRules::new();
    rules.match_rules(request, &mut matched);
    matched
}

fn matched_indexes(policy: &Policy, values: &[(&str, &str)]) -> Vec<usize> {
    match_policy(policy, &Request::with(values))
        .rules()
        .to_vec()
}

#[test]
fn deny_comes_before_exempt_and_exempt_before_every_limit() {
    let mut policy = policy(vec![limit_on("all", &[])]);
    let deny = |conditions: &[(&str, Test)]| DenyRule {
        matching: matching(conditions),
        status: 403,
        message: None,
    };
    policy.deny = vec![
        deny(&[("header.bad", is("worse"))]),
        deny(&[("header.bad", Test::Present)]),
    ];
    policy.exempt = vec![matching(&[("route", under("/health"))])];
    let listed = |values: &[(&str, &str)]| {
        let matched = match_policy(&policy, &Request::with(values));
        (matched.list_verdict(), matched.rules().len())
    };
    assert_eq!(listed(&[("path", "/")]), (ListVerdict::Limits, 1));
    assert_eq!(listed(&[("path", "/health/")]), (ListVerdict::Exempt, 0));
    let bad = [("path", "/health"), ("header.bad", "yes")];
    assert_eq!(listed(&bad), (ListVerdict::Denied(1), 0));
    let worse = [("path", "/health"), ("header.bad", "worse")];
    assert_eq!(listed(&worse), (ListVerdict::Denied(0), 0));
}

#[test]
fn a_group_selects_the_limit_with_most_conditions_and_of_ties_the_first() {
    let mut limits = vec![
        limit_on("wide", &[]),
        limit_on("by-method", &[("method", is("GET"))]),
        limit_on("by-host", &[("host", is("a"))]),
        limit_on("by-both", &[("host", is("a")), ("method", is("GET"))]),
    ];
    for limit in &mut limits {
        limit.group = Some(Box::<str>::from("aws").into());
    }
    limits.push(limit_on("apart", &[]));
    let mut policy = policy(limits);
    let request = |host, method| [("host", host), ("method", method)];
    assert_eq!(
        matched_indexes(&policy, &request("a", "GET")),
        [0, 1, 2, 3, 4]
    );
    policy.groups = vec![Group {
        name: Box::<str>::from("aws").into(),
        apply: GroupSelection::Narrowest,
    }];
    assert_eq!(matched_indexes(&policy, &request("a", "GET")), [3, 4]);
    assert_eq!(matched_indexes(&policy, &request("b", "GET")), [1, 4]);
    assert_eq!(matched_indexes(&policy, &request("a", "PUT")), [2, 4]);
    assert_eq!(matched_indexes(&policy, &request("b", "PUT")), [0, 4]);
}

#[test]
fn authenticated_requests_are_limited_by_key_and_others_by_address() {
    let policy = policy(vec![
        limit_on("by-address", &[("header.authorization", Test::Absent)]),
        limit_on("by-key", &[("header.authorization", Test::Present)]),
    ]);
    assert_eq!(matched_indexes(&policy, &[("ip", "10.0.0.1")]), [0]);
    let known = [("ip", "10.0.0.1"), ("header.authorization", "")];
    assert_eq!(matched_indexes(&policy, &known), [1]);
}

#[test]
fn no_spelling_of_a_path_or_a_host_evades_a_limit() {
    let policy = policy(vec![
        limit_on("route", &[("route", under("/v1/login"))]),
        limit_on("path", &[("path", is("/v1/login"))]),
        limit_on("glob", &[("path", like("/v1/log*"))]),
        limit_on("host", &[("host", is("example.com"))]),
        limit_on("hosts", &[("host", like("*.COM"))]),
    ]);
    for path in [
        "/v1/login",
        "/v1/login/",
        "//v1//login",
        "/v1/./login",
        "/x/../v1/login",
        "/v1/%6Cogin",
        "/v1/login?next=/",
        "/v1/%6c%6F%67in/",
        "/v1/x/%2e%2E/login",
        "v1/login",
    ] {
        let request = [("path", path), ("host", "Example.COM")];
        assert_eq!(
            matched_indexes(&policy, &request),
            [0, 1, 2, 3, 4],
            "{path}"
        );
    }
}

#[test]
fn a_route_without_a_path_is_used_as_the_path() {
    let policy = policy(vec![limit_on("item", &[("route", under("/items/{id}"))])]);
    assert_eq!(
        matched_indexes(&policy, &[("route", "/items/{number}")]),
        [0]
    );
    assert_eq!(matched_indexes(&policy, &[("route", "/items")]), [0; 0]);
}

#[test]
fn the_route_is_that_of_the_transport_or_the_most_specific_template() {
    let mut policy = policy(vec![limit_on("all", &[("route", under("/{*rest}"))])]);
    policy.routes = vec![Template("/items/{id}".into()).into()];
    let rules = Rules::compile(&policy, [7; 16]).unwrap();
    let route = |values: &[(&str, &str)]| {
        let request = Request::with(values);
        let mut matched = MatchedRules::new();
        rules.match_rules(&request, &mut matched);
        rules.route(&request, &matched).map(<[u8]>::to_vec)
    };
    assert_eq!(route(&[("path", "/items/7")]).unwrap(), b"/items/{id}");
    assert_eq!(route(&[("path", "/other")]).unwrap(), b"/{*rest}");
    let transport_route = [("path", "/items/7"), ("route", "/items/:id")];
    assert_eq!(route(&transport_route).unwrap(), b"/items/:id");
    assert_eq!(route(&[]), None);
}

#[test]
fn a_path_or_a_host_beyond_the_bound_is_unreadable() {
    let policy = policy(vec![
        limit_on("item", &[("route", under("/items/{id}"))]),
        limit_on("all", &[("route", under("/items/{*rest}"))]),
        limit_on("host", &[("host", is("a"))]),
    ]);
    let matched = |values: &[(&str, &str)]| match_policy(&policy, &Request::with(values));
    let longest = "x".repeat(8 * 1_024 - "/items/".len());
    let path = format!("/items/{longest}");
    assert_eq!(matched(&[("path", &path)]).rules(), [0, 1]);
    let too_long = matched(&[("path", &format!("{path}x"))]);
    assert_eq!(too_long.unreadable(), Some(&Unreadable::PathTooLong));
    assert_eq!(too_long.rules(), [0; 0]);
    let host = "a".repeat(1_024);
    assert_eq!(matched(&[("host", &host)]).unreadable(), None);
    for host in [format!("{host}a"), "a b".to_owned()] {
        let matched = matched(&[("host", &host)]);
        assert_eq!(matched.unreadable(), Some(&Unreadable::InvalidHost));
    }
    // A host that no rule reads does not matter.
    let mut without = policy.clone();
    without.limits.pop();
    assert_eq!(
        match_policy(&without, &Request::with(&[("host", "a b")])).unreadable(),
        None
    );
}

/// More than 64 limits on one request were cut off, enforced or not, and the request was answered 503 for ever.
#[test]
fn all_limits_that_match_are_listed_however_many_are_in_shadow() {
    let limits = (0..500).map(|n| LimitRule {
        mode: if n < MAX_METERS {
            Mode::Enforce
        } else {
            Mode::Shadow
        },
        ..limit_on(&format!("l{n}"), &[])
    });
    let matched = match_policy(&policy(limits.collect()), &Request::default());
    assert_eq!(matched.rules(), (0..500).collect::<Vec<_>>());
}

#[test]
fn rules_above_a_bound_are_rejected_with_location_and_reason() {
    let deep = "/a".repeat(65);
    let mut invalid = policy(vec![
        limit_on("fine", &[]),
        limit_on("deep", &[("route", under(&deep))]),
        limit_on(
            "long",
            &[("path", like(&format!("*{}*", "x".repeat(2_000))))],
        ),
    ]);
    invalid.routes = vec![Template(deep.into()).into()];
    invalid.limits[0].key = crate::tests::fixtures::key(&["header.a"; 17]);
    let diagnostics = Rules::compile(&invalid, [7; 16]).unwrap_err();
    let all = format!("{diagnostics:?}");
    assert!(
        all.contains("17 parts") && all.contains("64 segments") && all.contains("127 bytes"),
        "{all}"
    );
    assert!(RuleOrigin::Limit(0) < RuleOrigin::Limit(1));
}

/// Records the attributes that were read.
struct RecordingRequest {
    inner: Request,
    requested: Mutex<Vec<Attribute>>,
}

impl Attributes for RecordingRequest {
    fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
        self.requested.lock().unwrap().push(attribute.clone());
        self.inner.get(attribute)
    }
}

#[test]
fn every_attribute_is_read_at_most_once_and_only_if_a_condition_uses_it() {
    let mut limits = Vec::new();
    for n in 0..50 {
        let tests = [
            ("header.a", is("x")),
            ("header.b", Test::Not(Box::new(is("y")))),
            ("path", like("/x*")),
            ("host", Test::Present),
        ];
        limits.push(limit_on(&format!("l{n}"), &tests[n % 3..]));
    }
    let request = RecordingRequest {
        inner: Request::with(&[
            ("header.a", "x"),
            ("header.b", "x"),
            ("path", "/x"),
            ("host", "h"),
        ]),
        requested: Mutex::default(),
    };
    let mut policy = policy(limits);
    // Whether a request is a preflight depends on its method.
    policy.preflights = None;
    match_policy(&policy, &request);
    let mut requested = request.requested.into_inner().unwrap();
    let count = requested.len();
    requested.sort();
    requested.dedup();
    assert_eq!((requested.len(), count), (4, 4), "{requested:?}");
}

#[test]
fn more_attributes_than_the_cache_holds_are_matched() {
    let names: Vec<String> = (0..100).map(|n| format!("header.h{n}")).collect();
    let limits = names.iter().enumerate().map(|(n, name)| {
        let test = if n % 10 == 0 { is("x") } else { is("y") };
        limit_on(&format!("l{n}"), &[(name, test)])
    });
    let request: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x")).collect();
    let expected: Vec<usize> = (0..100).step_by(10).collect();
    assert_eq!(
        matched_indexes(&policy(limits.collect()), &request),
        expected
    );
}

/// Many tenants on one route: only the limits of the request's tenant are evaluated.
#[test]
fn limits_are_not_indexed_by_a_condition_that_all_share() {
    let limits = (0..1_000).map(|n| {
        let tenant = is(&format!("tenant-{n}"));
        limit_on(
            &format!("l{n}"),
            &[("route", under("/api/{*rest}")), ("header.tenant", tenant)],
        )
    });
    let policy = policy(limits.collect());
    let request = Request::with(&[("path", "/api/x"), ("header.tenant", "tenant-500")]);
    assert_eq!(match_policy(&policy, &request).rules(), [500]);
    let rules = Rules::compile(&policy, [7; 16]).unwrap();
    assert_eq!(rules.matcher.largest_bucket(), 1);
}

/// Limits told apart by the attribute of their key were tried one by one: 10,000 of them cost 13.7 times as much as one.
#[test]
fn limits_that_are_skipped_without_an_attribute_are_found_by_its_presence() {
    struct CountedRequest {
        names: Vec<String>,
        gets: AtomicUsize,
    }

    impl Attributes for CountedRequest {
        fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
            self.gets.fetch_add(1, Ordering::Relaxed);
            let (_, name) = attribute.family()?;
            self.names.iter().any(|known| known == name).then_some(b"v")
        }

        fn visit_names(&self, _: AttributeFamily, visit: &mut dyn FnMut(&str)) -> bool {
            self.names.iter().for_each(|name| visit(name));
            true
        }
    }

    let limits = (0..1_000).map(|n| {
        let mut limit = limit_on(&format!("l{n}"), &[]);
        // Only so many enforced limits may apply to one request.
        limit.mode = Mode::Shadow;
        let attribute = attribute(&format!("header.k{n}"));
        limit.key = vec![KeyPart {
            missing: OnMissing::Skip,
            ..KeyPart::new(attribute.into())
        }];
        limit
    });
    let rules = Rules::compile(&policy(limits.collect()), [7; 16]).unwrap();
    assert_eq!(rules.matcher.largest_bucket(), 1);
    let request = CountedRequest {
        names: ["k500", "other", "k7"].map(str::to_owned).into(),
        gets: AtomicUsize::new(0),
    };
    let mut matched = MatchedRules::new();
    rules.match_rules(&request, &mut matched);
    assert_eq!(matched.rules(), [7, 500]);
    assert!(
        request.gets.into_inner() <= 4,
        "the work depends on the request, not on the policy"
    );
}
