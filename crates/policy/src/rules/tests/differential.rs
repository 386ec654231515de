//! The index matches the same rules as a linear search, for any policy and any request.
//!
//! Must not know: how the index works.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use super::naive;
use crate::attributes::{Attribute, AttributeFamily, Attributes};
use crate::model::{
    Condition, DenyRule, Glob, Group, GroupSelection, IpNet, KeyPart, Match, Mode, OnMissing,
    PathCase, PathParameters, PathSettings, Policy, Template, Test,
};
use crate::rules::matcher::IndexFault;
use crate::rules::{KeyBuffer, KeyOutcome, ListVerdict, MatchedRules, MeterRef, Rules};
use crate::tests::fixtures::{MINUTE, attribute, bucket, limit};

const NAMES: [&str; 12] = [
    "ip",
    "method",
    "host",
    "route",
    "path",
    "domain",
    "header.a",
    "header.b",
    "query.q",
    "cookie.c",
    "claim.r",
    "descriptor.t",
];

/// What keys consist of: so many headers that they are looked up by name.
const KEY_NAMES: [&str; 8] = [
    "header.a", "header.b", "header.c", "header.d", "header.e", "header.f", "query.q", "method",
];

#[derive(Clone, Debug)]
pub(super) struct RandomRequest {
    /// Whether it can list the names of its attributes.
    lists_names: bool,
    ip: Option<IpAddr>,
    values: BTreeMap<Attribute, Vec<u8>>,
}

impl Attributes for RandomRequest {
    fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
        self.values.get(attribute).map(Vec::as_slice)
    }

    fn visit_names(&self, family: AttributeFamily, visit: &mut dyn FnMut(&str)) -> bool {
        let named = self.values.keys().filter_map(Attribute::family);
        let of_family = named.filter(|(known, _)| self.lists_names && *known == family);
        of_family.for_each(|(_, name)| visit(name));
        self.lists_names
    }
}

/// A concatenation of some of these pieces.
fn text(pieces: &'static [&'static str], most: usize) -> impl Strategy<Value = String> {
    vec(select(pieces), 0..=most).prop_map(|pieces| pieces.concat())
}

fn path() -> impl Strategy<Value = String> {
    let pieces = &[
        "/", "/", "/", "a", "b", "..", ".", "%61", "%2e", "%2f", "?q", "ö", ";", "\\", "A", "%3b",
        "%5C",
    ];
    (prop_oneof![9 => Just("/"), 1 => Just("")], text(pieces, 7))
        .prop_map(|(first, rest)| format!("{first}{rest}"))
}

fn template() -> impl Strategy<Value = String> {
    let segments = vec(select(&["/a", "/b", "/{x}", "/%61", "/ö", "/A"]), 0..4);
    let end = select(&["", "", "", "/", "/{*r}"]);
    (segments, end).prop_map(|(segments, end)| match segments.concat() + end {
        empty if empty.is_empty() => "/".to_owned(),
        some => some,
    })
}

fn value(name: &str) -> BoxedStrategy<String> {
    match name {
        "path" => path().boxed(),
        "route" => template().boxed(),
        "host" => (
            text(&["a", "A", "b", ".", "x.y"], 4),
            select(&["", "", ".", ":80", "/"]),
        )
            .prop_map(|(name, end)| name + end)
            .boxed(),
        _ => text(&["a", "b", "/", ".", "ö"], 3).boxed(),
    }
}

fn address() -> impl Strategy<Value = IpAddr> {
    const ALL: &[&str] = &[
        "10.0.0.0",
        "10.0.0.1",
        "10.0.1.1",
        "::ffff:10.0.0.1",
        "2001:db8::1",
        "2001:db8:1::",
        "::1",
        "::ffff:0:0",
    ];
    select(ALL).prop_map(|text| text.parse().unwrap()).boxed()
}

fn network() -> impl Strategy<Value = IpNet> {
    (address(), 0..=128_u8).prop_map(|(address, bits)| {
        let bits = if address.is_ipv4() { bits / 4 } else { bits };
        IpNet::new(address, bits).unwrap()
    })
}

fn test(name: &'static str) -> BoxedStrategy<Test> {
    let boxed = |texts: Vec<String>| texts.into_iter().map(String::into_boxed_str);
    let glob = match name {
        "path" => text(&["/", "a", "b", "*", "**", "?", "/**/", "ö", "A"], 4)
            .prop_map(|rest| format!("/{rest}"))
            .boxed(),
        "host" => text(&["a", "B", ".", "*", "?", "x.y"], 4).boxed(),
        "ip" => text(&["10", ".0", "*", "2001:", "?"], 4).boxed(),
        _ => text(&["a", "b", "/", "*", "**", "?", "ö"], 4).boxed(),
    };
    let globs = vec(glob, 1..3).prop_map(move |globs| Test::Glob(boxed(globs).map(Glob).collect()));
    let some_value = match name {
        "ip" => address().prop_map(|address| address.to_string()).boxed(),
        _ => value(name),
    };
    let one_of = vec(some_value, 1..4).prop_map(move |values| Test::OneOf(boxed(values).collect()));
    let own = match name {
        "ip" => vec(network(), 1..4).prop_map(Test::Within).boxed(),
        "route" => vec(template(), 1..3)
            .prop_map(move |templates| Test::Route(boxed(templates).map(Template).collect()))
            .boxed(),
        _ => one_of.clone().boxed(),
    };
    let simple = prop_oneof![
        4 => own,
        2 => one_of,
        3 => globs,
        1 => Just(Test::Present),
        1 => Just(Test::Absent),
    ];
    let nots = prop_oneof![12 => Just(0), 4 => Just(1), 2 => Just(2), 1 => Just(3)];
    (simple, nots)
        .prop_map(|(test, nots)| (0..nots).fold(test, |test, _| Test::Not(Box::new(test))))
        .boxed()
}

fn matching(conditions: RangeInclusive<usize>) -> impl Strategy<Value = Match> {
    proptest::sample::subsequence(&NAMES[..], conditions).prop_flat_map(|names| {
        let conditions: Vec<_> = names
            .into_iter()
            .map(|name| {
                test(name).prop_map(move |test| Condition {
                    attribute: attribute(name),
                    test,
                })
            })
            .collect();
        conditions.prop_map(|conditions| Match {
            conditions: conditions.into_iter().map(Into::into).collect(),
        })
    })
}

/// The key of a limit; in some policies most limits have one, so that many attributes are needed.
fn key(is_mostly_there: bool) -> impl Strategy<Value = Vec<KeyPart>> {
    let missing = prop_oneof![
        6 => Just(OnMissing::Skip),
        1 => Just(OnMissing::Shared),
        1 => Just(OnMissing::Deny),
    ];
    let part = (select(&KEY_NAMES[..]), missing).prop_map(|(name, missing)| KeyPart {
        missing,
        ..KeyPart::new(attribute(name).into())
    });
    let (none, some) = if is_mostly_there { (1, 20) } else { (5, 1) };
    prop_oneof![none => Just(Vec::new()), some => vec(part, 1..3)]
}

fn policy() -> impl Strategy<Value = Policy> {
    let limits = prop_oneof![3 => Just(false), 1 => Just(true)].prop_flat_map(|is_mostly_there| {
        let group = option::of(select(&["x", "y", "z"]));
        // Limits with conditions are seldom indexed by their key.
        let conditions = if is_mostly_there { 0..=0 } else { 0..=3 };
        vec((matching(conditions), group, key(is_mostly_there)), 0..14)
    });
    let denies = prop_oneof![2 => Just(0..1_usize), 1 => Just(0..3)]
        .prop_flat_map(|count| vec(matching(2..=3), count));
    let exempt = prop_oneof![2 => Just(0..1_usize), 1 => Just(0..3)]
        .prop_flat_map(|count| vec(matching(2..=3), count));
    let paths = (
        select(&[
            PathCase::Any,
            PathCase::Any,
            PathCase::Sensitive,
            PathCase::Insensitive,
        ]),
        select(&[
            PathParameters::Any,
            PathParameters::Any,
            PathParameters::Keep,
            PathParameters::Strip,
        ]),
    );
    let rules = (limits, exempt, denies, vec(template(), 0..3));
    (rules, paths).prop_map(|((limits, exempt, denies, routes), (case, parameters))| {
        let limits = limits
            .into_iter()
            .enumerate()
            .map(|(index, (matching, group, key))| {
                let mut limit = limit(&format!("limit-{index}"), bucket(10, MINUTE));
                limit.matching = matching;
                limit.key = key;
                limit.group = group.map(|group| Box::<str>::from(group).into());
                // Limits that are not enforced do not replace others in a group.
                limit.mode = [Mode::Enforce, Mode::Enforce, Mode::Shadow, Mode::Off][index % 4];
                limit
            });
        let group = |name: &str, apply| Group {
            name: Box::<str>::from(name).into(),
            apply,
        };
        let deny = |matching| DenyRule {
            matching,
            status: 403,
            message: None,
        };
        Policy {
            paths: PathSettings { case, parameters },
            limits: limits.collect(),
            exempt,
            deny: denies.into_iter().map(deny).collect(),
            groups: vec![
                group("x", GroupSelection::Narrowest),
                group("y", GroupSelection::All),
            ],
            routes: routes
                .into_iter()
                .map(|route| Template(route.into()).into())
                .collect(),
            ..Policy::default()
        }
    })
}

fn request() -> impl Strategy<Value = RandomRequest> {
    let more = KEY_NAMES.iter().filter(|name| !NAMES.contains(name));
    let values: Vec<_> = NAMES
        .iter()
        .filter(|name| **name != "ip")
        .chain(more)
        .map(|name| {
            // Transports rarely know a route.
            let often = match *name {
                "route" => 0.2,
                "header.c" | "header.d" | "header.e" | "header.f" => 0.4,
                _ => 0.8,
            };
            (Just(attribute(name)), option::weighted(often, value(name)))
        })
        .collect();
    let ip = option::weighted(0.8, address());
    (ip, values, any::<bool>()).prop_map(|(ip, values, lists_names)| RandomRequest {
        lists_names,
        ip,
        values: values
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?.into_bytes())))
            .collect(),
    })
}

pub(super) fn inputs() -> impl Strategy<Value = (Policy, Vec<RandomRequest>)> {
    (policy(), vec(request(), 1..6))
}

fn compare(rules: &Rules, policy: &Policy, request: &RandomRequest) -> Result<(), String> {
    let mut matched = MatchedRules::new();
    rules.match_rules(request, &mut matched);
    let expected = naive::find(policy, request);
    let Some(mut expected) = expected else {
        return match matched.unreadable() {
            Some(_) => Ok(()),
            None => Err(format!("{request:?} was read")),
        };
    };
    let route = rules.matcher.template(&matched).map(str::to_owned);
    // A limit that its key skips may be found or not.
    let is_skipped = |rule: usize| {
        let first = MeterRef { rule, meter: 0 };
        let outcome = rules.write_key(first, request, &matched, &mut KeyBuffer::new());
        outcome == KeyOutcome::Skip
    };
    let mut found = matched.rules().to_vec();
    found.retain(|rule| !is_skipped(*rule));
    expected
        .rules
        .retain(|rule| !naive::is_skipped(&policy.limits[*rule], request));
    let answer = naive::NaiveMatch {
        listed: matched.list_verdict(),
        rules: found,
        route,
    };
    if answer != expected || matched.unreadable().is_some() {
        return Err(format!(
            "found {matched:?}, {answer:?}, expected {expected:?} of {request:?}"
        ));
    }
    Ok(())
}

fn compiled(policy: &Policy) -> Rules {
    Rules::compile(policy, [7; 16]).unwrap()
}

/// The kind of a test; a negation includes the kind of its inner test.
fn kind(test: &Test) -> String {
    match test {
        Test::OneOf(_) => "one of".to_owned(),
        Test::Glob(_) => "glob".to_owned(),
        Test::Route(_) => "route".to_owned(),
        Test::Within(_) => "within".to_owned(),
        Test::Present => "present".to_owned(),
        Test::Absent => "absent".to_owned(),
        Test::Not(inner) => match kind(inner) {
            nested if nested.starts_with("not not") => "deeply not".to_owned(),
            inner => format!("not {inner}"),
        },
    }
}

#[test]
fn the_index_agrees_with_the_naive_matcher() {
    let counts: RefCell<BTreeMap<String, [u32; 2]>> = RefCell::default();
    let note = |what: &str, is: bool| {
        counts.borrow_mut().entry(what.to_owned()).or_default()[usize::from(is)] += 1;
    };
    let config = Config {
        // `PROPTEST_CASES` can raise this.
        cases: Config::default().cases.max(800),
        failure_persistence: None,
        ..Config::default()
    };
    let result = TestRunner::new(config).run(&inputs(), |(policy, requests)| {
        let rules = compiled(&policy);
        for request in &requests {
            compare(&rules, &policy, request).map_err(TestCaseError::fail)?;
            for limit in &policy.limits {
                for condition in &limit.matching.conditions {
                    let holds = naive::holds(&policy, &condition.value, request);
                    note(&kind(&condition.value.test), holds);
                }
            }
            let answer = naive::find(&policy, request);
            note("unreadable", answer.is_none());
            let Some(answer) = answer else { continue };
            note("denied", matches!(answer.listed, ListVerdict::Denied(_)));
            note("exempt", answer.listed == ListVerdict::Exempt);
            note("several limits", answer.rules.len() > 1);
            for rule in &answer.rules {
                note("skipped", naive::is_skipped(&policy.limits[*rule], request));
            }
            note("a template", answer.route.is_some());
            let mut ungrouped = policy.clone();
            ungrouped.groups.clear();
            note("narrowed", naive::find(&ungrouped, request) != Some(answer));
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    let counts = counts.into_inner();
    for kind in [
        "one of",
        "glob",
        "route",
        "within",
        "present",
        "absent",
        "not one of",
        "not glob",
        "not route",
        "not within",
        "not not one of",
        "not not glob",
        "not absent",
        "denied",
        "exempt",
        "several limits",
        "skipped",
        "a template",
        "narrowed",
    ] {
        let [no, yes] = counts.get(kind).copied().unwrap_or_default();
        assert!(
            no > 10 && yes > 10,
            "{kind}: {yes} times, {no} times not; {counts:?}"
        );
    }
}

#[test]
fn control_every_index_fault_is_detected() {
    for broken in IndexFault::ALL {
        // A fixed seed, so that a control never fails by chance.
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let config = Config {
            cases: 800,
            failure_persistence: None,
            max_shrink_iters: 0,
            ..Config::default()
        };
        let result = TestRunner::new_with_rng(config, rng).run(&inputs(), |(policy, requests)| {
            let mut rules = compiled(&policy);
            rules.matcher.inject(broken);
            let mut compared = requests
                .iter()
                .map(|request| compare(&rules, &policy, request));
            compared
                .try_for_each(|result| result)
                .map_err(TestCaseError::fail)
        });
        assert!(
            result.is_err(),
            "{broken:?} passes: this checker proves nothing"
        );
    }
}
