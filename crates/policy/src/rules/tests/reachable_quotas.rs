//! What the search for the most quotas of one request promises: it misses none, and it adds up no limits that exclude
//! each other.
//!
//! Must not know: stores, batches.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt::Write as _;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use super::differential::{RandomRequest, inputs};
use crate::attributes::Attributes;
use crate::compile::compile_draft;
use crate::load;
use crate::model::{Mode, OnMissing, Penalty, Policy, Test};
use crate::rules::reachable_quotas::{TooManyQuotas, check};
use crate::rules::{KeyBuffer, KeyOutcome, MAX_METERS, MatchedRules, MeterRef, MeterRole, Rules};
use crate::source::SourceFormat;
use crate::tests::fixtures::{Request, key};

/// The most quotas that one request of a policy may reach, by the search.
fn most(policy: &Policy) -> usize {
    let draft = compile_draft(policy, [7; 16]).unwrap();
    (0..).find(|max| check(&draft, *max).is_ok()).unwrap()
}

fn most_of(limits: &str) -> usize {
    most(&read(limits).unwrap())
}

/// A policy of these limits, without the rate that all have.
fn read(limits: &str) -> Result<Policy, String> {
    let loaded = load(limits, "policy.yaml", SourceFormat::Yaml);
    loaded.map_err(|diagnostics| diagnostics.to_string())
}

/// A policy with one limit for each text.
fn limits<T: AsRef<str>>(list: impl IntoIterator<Item = T>) -> String {
    let mut text = String::from("limits:\n");
    for (index, fields) in list.into_iter().enumerate() {
        let _infallible = writeln!(
            text,
            "  - {{ name: l{index}, rate: 10/min, {} }}",
            fields.as_ref()
        );
    }
    text
}

/// The quotas that a request does reach, as the engine plans them.
fn reached(rules: &Rules, request: &dyn Attributes) -> usize {
    let mut matched = MatchedRules::new();
    rules.match_rules(request, &mut matched);
    // The engine refuses an ambiguous request to which more limits apply than fit.
    if matched.is_ambiguous() {
        return 0;
    }
    let mut buffer = KeyBuffer::new();
    let mut shared = HashSet::new();
    let mut quotas = 0;
    for rule in matched.rules() {
        let definition = &rules.rules()[*rule];
        if definition.mode != Mode::Enforce {
            continue;
        }
        for (meter, of_meter) in definition.meters.iter().enumerate() {
            let at = MeterRef { rule: *rule, meter };
            let outcome = rules.write_key(at, request, &matched, &mut buffer);
            let identity = (of_meter.identity.clone(), buffer.as_bytes().to_vec());
            let is_planned =
                of_meter.role != MeterRole::Candidate && outcome == KeyOutcome::Complete;
            if is_planned && (definition.bucket.is_none() || shared.insert(identity)) {
                quotas += 1;
            }
        }
    }
    quotas
}

/// Random policies, in which keys may be missing, limits share buckets, and some have penalties.
fn policies() -> impl Strategy<Value = (Policy, Vec<RandomRequest>)> {
    let parts = option::of((
        select(&["header.a", "header.b", "ip", "host"]),
        any::<bool>(),
    ));
    (inputs(), vec((parts, 0..6_u8), 14)).prop_map(|((mut policy, requests), extras)| {
        for (limit, (part, kind)) in policy.limits.iter_mut().zip(extras) {
            if let Some((name, is_denied)) = part {
                limit.key = key(&[name]);
                limit.key[0].missing = match is_denied {
                    true => OnMissing::Deny,
                    false => OnMissing::Skip,
                };
            }
            match kind {
                0 => limit.penalty = Penalty::Block(tollgate_core::Nanos::MINUTE).into(),
                1 => limit.local = Some(limit.quota.clone()),
                2 => {
                    limit.key.clear();
                    limit.bucket = Some(Box::<str>::from("shared").into());
                }
                _ => {}
            }
        }
        (policy, requests)
    })
}

/// A request reaches more quotas than the search says, if there is one.
fn find_missed(
    cases: u32,
    search: impl Fn(&Policy, usize) -> Result<(), TooManyQuotas>,
) -> (Option<String>, usize) {
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 0,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let largest = Cell::new(0);
    let result = TestRunner::new_with_rng(config, rng).run(&policies(), |(policy, requests)| {
        let rules = Rules::compile(&policy, [7; 16]).unwrap();
        for request in &requests {
            let quotas = reached(&rules, request);
            largest.set(largest.get().max(quotas));
            if quotas > 0 && search(&policy, quotas - 1).is_ok() {
                let why = format!("{quotas} quotas, for {request:?} under {policy:#?}");
                return Err(TestCaseError::fail(why));
            }
        }
        Ok(())
    });
    (result.err().map(|error| error.to_string()), largest.get())
}

fn search(policy: &Policy, max: usize) -> Result<(), TooManyQuotas> {
    check(&compile_draft(policy, [7; 16]).unwrap(), max)
}

#[test]
fn no_request_reaches_more_quotas_than_the_search_finds() {
    let cases = Config::default().cases.max(500);
    let (missed, largest) = find_missed(cases, search);
    assert_eq!(missed, None);
    assert!(largest > 5, "at most {largest} quotas were reached");
}

/// Negative controls: searches that forget something are found.
#[test]
fn control_a_search_that_misses_requests_is_found() {
    type Fault = fn(&mut Policy);
    let faults: [(&str, Fault); 3] = [
        ("forgets a limit", |policy| {
            policy.limits.pop();
        }),
        ("takes patterns for values", |policy| {
            change_tests(policy, |test| {
                if let Test::Glob(globs) = test {
                    *test = Test::OneOf(globs.iter().map(|glob| glob.0.clone()).collect());
                }
            });
        }),
        ("forgets blocks", |policy| {
            for limit in &mut policy.limits {
                limit.penalty = Penalty::None.into();
            }
        }),
    ];
    for (name, fault) in faults {
        let faulty = |policy: &Policy, max: usize| {
            let mut policy = policy.clone();
            fault(&mut policy);
            search(&policy, max)
        };
        let (missed, _) = find_missed(5_000, faulty);
        assert!(missed.is_some(), "a search that {name} was not found");
    }
}

fn change_tests(policy: &mut Policy, change: impl Fn(&mut Test)) {
    let limits = policy.limits.iter_mut();
    for condition in limits.flat_map(|limit| &mut limit.matching.conditions) {
        change(&mut condition.value.test);
    }
}

#[test]
fn limits_that_exclude_each_other_do_not_add_up() {
    let cases = [
        (
            "methods",
            limits(["GET", "PUT", "POST"].map(|one| format!("match: {{ method: {one} }}"))),
            1,
        ),
        (
            "values",
            limits((0..300).map(|n| format!("match: {{ header.plan: p{n} }}"))),
            1,
        ),
        (
            "routes",
            limits((0..300).map(|n| format!("match: {{ route: '/v1/r{n}/{{x}}' }}"))),
            1,
        ),
        (
            "ends",
            limits(["/a", "/a/b", "/a/b/c"].map(|one| format!("match: {{ route: {one} }}"))),
            1,
        ),
        (
            "paths",
            limits((0..300).map(|n| format!("match: {{ path: /p{n} }}"))),
            1,
        ),
        (
            "prefixes",
            limits((0..300).map(|n| format!("match: {{ path: '/p{n}/**' }}"))),
            1,
        ),
        (
            "suffixes",
            limits((100..400).map(|n| format!("match: {{ host: '*.t{n}.example.com' }}"))),
            1,
        ),
        (
            "networks",
            limits((0..200).map(|n| format!("match: {{ ip: 10.0.{n}.0/24 }}"))),
            1,
        ),
        (
            "nested",
            limits(
                ["10.0.0.0/8", "10.1.0.0/16", "10.2.0.0/16"]
                    .map(|one| format!("match: {{ ip: {one} }}")),
            ),
            2,
        ),
        (
            "presence",
            limits(["present", "absent"].map(|one| format!("match: {{ header.a: {one} }}"))),
            1,
        ),
        (
            "a key",
            limits([
                "match: { header.a: absent }",
                "key: [{ attribute: header.a, missing: skip }]",
            ]),
            1,
        ),
        (
            "opposites",
            limits(["match: { header.a: x }", "match: { header.a: { not: x } }"]),
            1,
        ),
        (
            "two attributes",
            limits((0..200).map(|n| {
                format!(
                    "match: {{ method: {}, route: /r{} }}",
                    ["GET", "PUT"][n % 2],
                    n / 2
                )
            })),
            1,
        ),
    ];
    for (name, text, expected) in cases {
        assert_eq!(most_of(&text), expected, "{name}");
    }
}

#[test]
fn limits_that_can_apply_together_add_up() {
    let cases = [
        ("no conditions", limits([""; 9]), 9),
        (
            "attributes",
            limits((0..9).map(|n| format!("match: {{ header.h{n}: x }}"))),
            9,
        ),
        (
            "keys that are sent",
            limits((0..9).map(|n| format!("key: [{{ attribute: header.h{n}, missing: skip }}]"))),
            9,
        ),
        (
            "templates",
            limits(
                ["/a/{x}", "/{x}/b", "/{*x}", "/a/b"]
                    .map(|one| format!("match: {{ route: '{one}' }}")),
            ),
            4,
        ),
        // `/a/x` and `/b/y` differ at once, and only the second one goes on like `/{z}/y`.
        (
            "lists of templates",
            limits(["[/a/x, /b/y]", "'/{z}/y'"].map(|one| format!("match: {{ route: {one} }}"))),
            2,
        ),
        (
            "patterns",
            limits(["/a/**", "/a/b/*", "/**"].map(|one| format!("match: {{ path: '{one}' }}"))),
            3,
        ),
        (
            "a slash at the end",
            limits(["/a/*", "/a"].map(|one| format!("match: {{ path: '{one}' }}"))),
            2,
        ),
        // A request may be read in both cases.
        (
            "upper case",
            limits(["/a", "/A"].map(|one| format!("match: {{ route: {one} }}"))),
            2,
        ),
    ];
    for (name, text, expected) in cases {
        assert_eq!(most_of(&text), expected, "{name}");
    }
}

#[test]
fn everything_counts_as_it_takes_room() {
    let cases = [
        (
            "several rates",
            "{ name: a, rate: [10/s, 100/min, 1000/h] }",
            3,
        ),
        ("a block", "{ name: a, rate: 10/s, penalty: block 1m }", 2),
        (
            "distinct values",
            "{ name: a, rate: 10/min, distinct: path }",
            2,
        ),
        ("a local bucket", "{ name: a, rate: 10/s, local: 100/s }", 2),
        ("a candidate", "{ name: a, rate: 10/s, candidate: 5/s }", 1),
        ("shadow", "{ name: a, rate: 10/s, mode: shadow }", 0),
        ("off", "{ name: a, rate: 10/s, mode: off }", 0),
        (
            "a share of keys",
            "{ name: a, key: [ip], rate: 10/s, enforce: 5% }",
            1,
        ),
        (
            "levels",
            "{ name: a, levels: [{ name: org, key: [header.o], rate: 9/s }, { name: user, key: [header.u], rate: 3/s }] }",
            2,
        ),
        (
            "a shared bucket",
            "{ name: a, bucket: b, rate: 10/s }\n  - { name: c, bucket: b, rate: 10/s }",
            1,
        ),
    ];
    for (name, text, expected) in cases {
        assert_eq!(
            most_of(&format!("limits:\n  - {text}\n")),
            expected,
            "{name}"
        );
    }
    let group = "groups: { g: { apply: narrowest } }\n".to_owned();
    let conditions = (0..50).map(|n| format!("group: g, match: {{ header.h{n}: x }}"));
    assert_eq!(most_of(&(group + &limits(conditions))), 1, "a group");
}

/// 128 quotas on one request were answered 503 for ever, from the 33rd on, and `check` said ok.
#[test]
fn more_quotas_than_fit_are_an_error_that_names_limits_request_and_way_out() {
    assert!(read(&limits(vec![""; MAX_METERS])).is_ok());
    let many = (0..MAX_METERS).map(|_| "match: { method: GET, route: '/v1/{*rest}' }");
    let other = ["match: { method: PUT }", "match: { route: /v1/items }"];
    let message = read(&limits(many.chain(other))).unwrap_err();
    for part in [
        "policy.yaml:131",
        "one request (method GET, path /v1/items) may reach 129 quotas, the maximum is 128: `l0`, `l1`, ",
        "`l15` and 113 more",
        "let limits exclude each other by `match`",
    ] {
        assert!(message.contains(part), "{part} is not in: {message}");
    }
}

/// The search is bounded by its steps, so a large policy must need few of them.
#[test]
fn large_policies_are_searched() {
    let tenants = (0..4_000).map(|n| format!("match: {{ header.tenant: t{n} }}"));
    let hosts = (0..4_000).map(|n| format!("match: {{ host: h{n}.example.com }}"));
    let routes = (0..2_000).map(|n| format!("match: {{ route: '/v1/r{n}/{{id}}', method: GET }}"));
    let health = ["match: { route: /health }".to_owned()];
    let text = limits(tenants.chain(hosts).chain(routes).chain(health));
    let draft = compile_draft(&read(&text).unwrap(), [7; 16]).unwrap();
    assert_eq!(check(&draft, 3), Ok(()));
    assert!(check(&draft, 2).is_err());
}

#[test]
fn requests_of_the_issue_are_counted_as_the_engine_plans_them() {
    let text =
        limits((0..100).map(|n| format!("key: [{{ attribute: header.h{n}, missing: skip }}]")));
    let rules = Rules::compile(&read(&text).unwrap(), [7; 16]).unwrap();
    assert_eq!(reached(&rules, &Request::with(&[("header.h7", "x")])), 1);
}
