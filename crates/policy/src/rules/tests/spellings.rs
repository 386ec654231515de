//! No spelling of a path or a host escapes a limit, and no spelling gets an exemption, a tier or a key of its own.
//!
//! Behind the documented gateways 200 of 200 requests for `/api%2Flogin` and its like reached the handler of
//! `/api/login` without being limited. Must not know: how paths are read.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};

use super::naive_path::policy_path;
use crate::load;
use crate::model::Policy;
use crate::rules::{KeyBuffer, ListVerdict, MatchedRules, MeterRef, Rules, Unreadable};
use crate::source::SourceFormat;
use crate::tests::fixtures::Request;

const POLICY: &str = r#"
exempt: [{ path: "/public/**" }]
deny: [{ path: "/admin/**" }]
groups: { g: { apply: narrowest } }
routes: ["/{*rest}"]
limits:
  - { name: route, match: { route: /api/login }, rate: 1/s }
  - { name: path, match: { path: /api/login }, rate: 1/s }
  - { name: glob, match: { path: "/api/log*" }, rate: 1/s }
  - { name: host, match: { host: api.example.com }, key: [host], rate: 1/s }
  - { name: scan, key: [ip], distinct: path, rate: 1/s }
  - { name: per-route, key: [route], rate: 1/s }
  - { name: wide, match: { route: "/api/{*rest}" }, group: g, rate: 1/s }
  - { name: narrow, match: { route: "/api/{x}", method: GET }, group: g, rate: 1/s }
"#;

pub(super) fn rules(settings: &str) -> Rules {
    let policy: Policy = load(
        &format!("{settings}\n{POLICY}"),
        "p.yaml",
        SourceFormat::Yaml,
    )
    .unwrap();
    Rules::compile(&policy, [7; 16]).unwrap()
}

pub(super) struct Answer {
    pub(super) names: Vec<String>,
    listed: ListVerdict,
    pub(super) unreadable: Option<Unreadable>,
    pub(super) keys: Vec<Vec<u8>>,
}

pub(super) fn ask(rules: &Rules, values: &[(&str, &str)]) -> Answer {
    let request = Request::with(values);
    let mut matched = MatchedRules::new();
    rules.match_rules(&request, &mut matched);
    let mut keys = Vec::new();
    for name in ["host", "scan", "per-route"] {
        let rule = rules
            .rules()
            .iter()
            .position(|rule| &*rule.name == name)
            .unwrap();
        for meter in 0..rules.rules()[rule].meters.len() {
            let mut buffer = KeyBuffer::new();
            rules.write_key(MeterRef { rule, meter }, &request, &matched, &mut buffer);
            keys.push(buffer.as_bytes().to_vec());
        }
    }
    let name = |index: &usize| rules.rules()[*index].name.to_string();
    Answer {
        names: matched.rules().iter().map(name).collect(),
        listed: matched.list_verdict(),
        unreadable: matched.unreadable().cloned(),
        keys,
    }
}

/// The spellings of the attack, and more of their kind.
pub(super) const SPELLINGS: [&str; 26] = [
    "/api%2Flogin",
    "/api/login%2f",
    "/api/login;x",
    "/api;x=1/login",
    "/API/LOGIN",
    "/Api/Login",
    "/api\\login",
    "/api%5clogin",
    "\\api\\login",
    "//api//login",
    "/./api/./login",
    "/a/../api/login",
    "/a/..;/api/login",
    "/a%2F..%2Fapi/login",
    "/a/%2e%2e/api/login",
    "/api/login/",
    "/api/login//",
    "/api/login/.",
    "/api/login/x/..",
    "/api/%6Cogin",
    "/%61pi/login",
    "/api/login?a=b",
    "/api/login%3Bx",
    "/API%5CLOGIN;x%2F..",
    "/x;/..;y/api;z\\login;",
    "/api/login;%2Fx",
];

#[test]
fn every_spelling_of_the_attack_is_limited() {
    let rules = rules("");
    let plain = ask(&rules, &[("path", "/api/login"), ("method", "GET")]);
    for path in SPELLINGS {
        let answer = ask(&rules, &[("path", path), ("method", "GET")]);
        assert_eq!(answer.unreadable, None, "{path}");
        assert_eq!(answer.listed, ListVerdict::Limits, "{path}");
        for name in &plain.names {
            // Under its other readings a path may have a wider choice in the group as well.
            assert!(
                answer.names.contains(name),
                "{path}: {name} of {:?}",
                answer.names
            );
        }
    }
}

/// Node's `new URL(request.url, base)` reads each of these as `/api/login`; none of them was limited.
#[test]
fn what_url_parsers_read_as_a_path_is_limited() {
    let rules = rules("");
    let plain = ask(&rules, &[("path", "/api/login"), ("method", "GET")]);
    for path in [
        "//h/api/login",
        "///h/api/login",
        "/\\h/api/login",
        "//h\\api\\login",
        "//h:80/x/../api/login",
        "/api//../login",
        "/api/\\../login",
        "/api/x//../../login",
        "/api//../x%5C/../login",
        "//public/api/login",
    ] {
        let answer = ask(&rules, &[("path", path), ("method", "GET")]);
        assert_eq!(answer.listed, ListVerdict::Limits, "{path}");
        for name in &plain.names {
            assert!(answer.names.contains(name), "{path}: {:?}", answer.names);
        }
    }
    // Negative control: a host alone is no path below it.
    let answer = ask(&rules, &[("path", "/h/api/login"), ("method", "GET")]);
    assert!(!answer.names.contains(&"route".to_owned()));
}

#[test]
fn every_spelling_has_the_key_of_the_plain_path() {
    let rules = rules("");
    let of = |path: &str| ask(&rules, &[("path", path), ("ip", "192.0.2.1")]).keys;
    let plain = of("/api/login");
    for path in SPELLINGS {
        // Keys keep the case, unless the policy says that servers ignore it.
        if path.bytes().any(|byte| byte.is_ascii_uppercase()) && path.contains("API")
            || path.contains("Api")
        {
            continue;
        }
        // These end with a path below `/api/login` for a reader that removes no parameters before decoding.
        if path == "/api/login;%2Fx" {
            continue;
        }
        assert_eq!(of(path), plain, "{path}");
    }
    let folded = super::spellings::rules("paths: { case: insensitive }");
    let of = |path: &str| ask(&folded, &[("path", path), ("ip", "192.0.2.1")]).keys;
    assert_eq!(of("/API/Login"), of("/api/login"));
}

#[test]
fn what_cannot_be_read_is_reported() {
    let rules = rules("");
    for (path, reason) in [
        ("/api/login%00", Unreadable::ControlCharacter),
        ("/api/login%00.css", Unreadable::ControlCharacter),
        ("/api/login\0", Unreadable::ControlCharacter),
        ("/api/login%0a", Unreadable::ControlCharacter),
        ("/api/login%", Unreadable::BrokenEscape),
        ("/api/%6", Unreadable::BrokenEscape),
        ("/api%u002flogin", Unreadable::BrokenEscape),
        ("/api%c0%aflogin", Unreadable::OverlongUtf8),
        // It was the path `/x` here, and `/api/login` for servers that do not end a path at `#`.
        ("/x#/../api/login", Unreadable::Fragment),
        ("/api/login#x?y", Unreadable::Fragment),
    ] {
        let answer = ask(&rules, &[("path", path)]);
        assert_eq!(answer.unreadable, Some(reason), "{path}");
        assert!(answer.names.is_empty());
    }
}

#[test]
fn an_exemption_needs_all_readings_and_a_denial_one() {
    let rules = rules("");
    let listed = |path: &str| ask(&rules, &[("path", path)]).listed;
    for exempt in ["/public/a", "/public//a", "/public/%61", "/public/a;x"] {
        assert_eq!(listed(exempt), ListVerdict::Exempt, "{exempt}");
    }
    for path in [
        "/public/..%2Fapi/login",
        "/public/..;/api/login",
        "/public\\..\\api\\login",
        "/public/../api/login",
        "/api/../public/a",
        "/PUBLIC/a",
        "/public%2Fa",
    ] {
        assert_eq!(listed(path), ListVerdict::Limits, "{path}");
    }
    for denied in [
        "/admin/a",
        "/ADMIN/a",
        "/admin%2fa",
        "/public/..%5cadmin%5ca",
        "/admin;x/a",
    ] {
        assert_eq!(listed(denied), ListVerdict::Denied(0), "{denied}");
    }
}

#[test]
fn a_narrowest_group_takes_the_choice_of_every_reading() {
    let rules = rules("");
    let names = |path: &str| ask(&rules, &[("path", path), ("method", "GET")]).names;
    let has = |names: &[String], name: &str| names.iter().any(|known| known == name);
    let plain = names("/api/x");
    assert!(has(&plain, "narrow") && !has(&plain, "wide"));
    // As one segment it is `/api/{x}`, as two it is below `/api`.
    let both = names("/api/a%2Fb");
    assert!(has(&both, "narrow") && has(&both, "wide"), "{both:?}");
    assert_eq!(
        both.iter().filter(|name| *name == "scan").count(),
        1,
        "charged once"
    );
}

#[test]
fn settings_say_how_servers_read() {
    let limited = |settings: &str, path: &str| {
        ask(&rules(settings), &[("path", path)])
            .names
            .contains(&"route".to_owned())
    };
    assert!(!limited("paths: { case: sensitive }", "/API/login"));
    assert!(limited("paths: { case: insensitive }", "/API/login"));
    assert!(!limited("paths: { parameters: keep }", "/api/login;x"));
    assert!(limited("paths: { parameters: strip }", "/api/login;x"));
    assert!(limited(
        "paths: { case: sensitive, parameters: keep }",
        "/api%2Flogin"
    ));
}

/// A spelling could choose the larger tier or the lower cost of another route.
#[test]
fn of_the_tiers_and_costs_of_all_readings_the_strictest_counts() {
    let text = r#"
routes: [/login, /search, "/a/{x}"]
limits:
  - name: tiers
    key: [ip]
    rate: 10/s
    tiers: { by: route, /login: 1/s, /search: 100/s }
  - name: cost
    key: [ip]
    rate: 100/s
    cost: { by: route, /search: 5, /login: 3, otherwise: 1 }
"#;
    let policy = load(text, "p.yaml", SourceFormat::Yaml).unwrap();
    let rules = Rules::compile(&policy, [7; 16]).unwrap();
    let ask = |path: &str| {
        let request = Request::with(&[("path", path), ("ip", "192.0.2.1")]);
        let mut matched = MatchedRules::new();
        rules.match_rules(&request, &mut matched);
        (
            rules.variant(0, &request, &matched, b""),
            rules.cost(1, &request, &matched),
        )
    };
    let (own, login, search) = (0, 1, 2);
    assert_eq!(ask("/login"), (login, 3));
    assert_eq!(ask("/search"), (search, 5));
    assert_eq!(ask("/other"), (own, 1));
    // For one server it is `/login`, for another `/search`.
    assert_eq!(ask("/search;%2F..%2Flogin"), (login, 5));
    // The larger tier needs all readings, the smaller one needs one.
    assert_eq!(ask("/other/..%2Fsearch"), (own, 5));
    assert_eq!(ask("/LOGIN"), (login, 3));
}

/// Limits that are written in capitals apply to other spellings as well.
#[test]
fn case_is_ignored_in_the_policy_too() {
    let text = "limits: [{ name: a, match: { route: /Api/Login }, rate: 1/s }, { name: b, match: { path: { not: /API } }, rate: 1/s }]";
    let policy = load(text, "p.yaml", SourceFormat::Yaml).unwrap();
    let rules = Rules::compile(&policy, [7; 16]).unwrap();
    let matched = |path: &str| {
        let mut matched = MatchedRules::new();
        rules.match_rules(&Request::with(&[("path", path)]), &mut matched);
        matched.rules().to_vec()
    };
    assert_eq!(matched("/api/login"), [0, 1]);
    assert_eq!(matched("/Api/Login"), [0, 1]);
    // `/api` is not `/API` for some servers.
    assert_eq!(matched("/api"), [1]);
    assert_eq!(matched("/API"), [0; 0]);
}

/// One segment and a way to spell it. No spelling changes what at least one kind of server reads.
fn spelled_segment() -> impl Strategy<Value = (String, String)> {
    let escaped = |text: &str, every: usize| -> String {
        let each = text.bytes().enumerate();
        each.map(|(at, byte)| match at % every {
            0 => format!("%{byte:02X}"),
            _ => char::from(byte).to_string(),
        })
        .collect()
    };
    ("[a-z]{1,6}", 0..6_usize).prop_map(move |(plain, way)| {
        let spelled = match way {
            0 => plain.clone(),
            1 => escaped(&plain, 1),
            2 => escaped(&plain, 2),
            3 => format!("{plain};x=1"),
            4 => format!("{plain};"),
            _ => plain.to_ascii_uppercase(),
        };
        (plain, spelled)
    })
}

/// A path, and a spelling of it that a lenient server reads alike.
fn spelled_path() -> impl Strategy<Value = (String, String)> {
    let separators = &[
        "/", "//", "/./", "/x/../", "%2F", "%2f", "\\", "%5C", "/..;/", "/%2e/",
    ];
    let part = (select(&separators[..]), spelled_segment());
    (
        vec(part, 1..6),
        select(&["", "/", "%2f", "/.", "?q", ";x", "\\"][..]),
    )
        .prop_filter_map("`/..;/` leaves the path", |(parts, end)| {
            let plain: String = parts
                .iter()
                .map(|(_, (plain, _))| format!("/{plain}"))
                .collect();
            let mut spelled: String = parts
                .iter()
                .map(|(before, (_, text))| format!("{before}{text}"))
                .collect();
            spelled.push_str(end);
            (!spelled.contains("..;")
                || spelled.starts_with("/..;/") && spelled.matches("..;").count() == 1)
                .then_some((plain, spelled))
        })
}

fn limits_both(plain: &str, spelled: &str) -> Result<(), TestCaseError> {
    let text = format!(
        "limits: [{{ name: a, match: {{ route: {plain} }}, rate: 1/s }}, {{ name: b, match: {{ path: {plain} }}, rate: 1/s }}, {{ name: c, key: [ip], distinct: path, rate: 1/s }}]"
    );
    let policy = load(&text, "p.yaml", SourceFormat::Yaml).unwrap();
    let rules = Rules::compile(&policy, [7; 16]).unwrap();
    let ask = |path: &str| {
        let request = Request::with(&[("path", path)]);
        let mut matched = MatchedRules::new();
        rules.match_rules(&request, &mut matched);
        let mut buffer = KeyBuffer::new();
        let meter = rules.rules()[2].meters.len() - 1;
        rules.write_key(MeterRef { rule: 2, meter }, &request, &matched, &mut buffer);
        (matched.rules().to_vec(), buffer.as_bytes().to_vec())
    };
    let (limits, key) = ask(spelled);
    prop_assert_eq!(limits, vec![0, 1, 2], "{} of {}", spelled, plain);
    // The key keeps the case, so it is that of the plain path in capitals.
    if !spelled.bytes().any(|byte| byte.is_ascii_uppercase()) {
        prop_assert_eq!(key, ask(plain).1, "{} of {}", spelled, plain);
    }
    Ok(())
}

#[test]
fn i17_a_limit_applies_to_every_spelling_of_its_path() {
    let config = Config {
        cases: Config::default().cases.max(1_000),
        failure_persistence: None,
        ..Config::default()
    };
    TestRunner::new(config)
        .run(&spelled_path(), |(plain, spelled)| {
            limits_both(&plain, &spelled)
        })
        .unwrap();
}

/// A reader that knows only RFC 3986 misses spellings, so the property can fail.
#[test]
fn control_one_reading_is_not_enough() {
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::default()
    });
    let one_reading = runner.run(&spelled_path(), |(plain, spelled)| {
        prop_assert_eq!(
            policy_path(plain.as_bytes()).segments,
            policy_path(spelled.as_bytes()).segments
        );
        Ok(())
    });
    assert!(one_reading.is_err());
}
