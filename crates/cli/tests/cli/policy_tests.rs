//! `tollgate test`: tests that pass, tests that fail, and invalid test files.

use crate::harness::{Folder, output};

const POLICY: &str = "limits:\n  - { name: login, key: ip, rate: 10/min }\n";

fn folder(tests: &str) -> Folder {
    let text = format!("policy: limits.yaml\ntests:\n{tests}");
    Folder::with(&[("limits.yaml", POLICY), ("a.test.yaml", &text)])
}

fn run(tests: &str) -> (Option<i32>, String) {
    let (code, stdout, stderr) = folder(tests).run(&["test", "a.test.yaml"]);
    assert_eq!(stderr, "");
    (code, stdout)
}

#[test]
fn the_example_of_the_specification_passes() {
    let (code, stdout) = run("  - name: ten a minute, then one every six seconds
    request: { method: POST, path: /login, ip: 203.0.113.7 }
    steps:
      - { at: 0s, send: 11, expect: { allowed: 10, denied: 1, limit: login, retry_after: 6s } }
      - { at: 6s, send: 1, expect: allowed }
");
    assert_eq!(code, Some(0));
    assert_eq!(
        stdout,
        "a.test.yaml\n  ok    ten a minute, then one every six seconds\n1 passed\n"
    );
}

#[test]
fn a_failure_shows_the_location_the_expected_and_the_actual_value() {
    let (code, stdout) = run("  - name: eleven a minute
    steps:
      - { send: 12, expect: { allowed: 11, reason: quota } }
      - { expect: allowed }
  - name: ten a minute
    steps: [{ send: 10, expect: allowed }]
");
    assert_eq!(code, Some(1));
    assert_eq!(
        stdout,
        "\
a.test.yaml
  FAIL  eleven a minute
a.test.yaml:5:40: allowed: expected 11, found 10
  5 |       - { send: 12, expect: { allowed: 11, reason: quota } }
    |                                        ^^
  help: request 11 was denied by `login` (rate); retry after 6 s
a.test.yaml:5:52: reason: expected quota, found rate
  5 |       - { send: 12, expect: { allowed: 11, reason: quota } }
    |                                                    ^^^^^
  help: request 11 was denied by `login` (rate); retry after 6 s
  ok    ten a minute
1 passed, 1 failed
"
    );
}

#[test]
fn every_expectation_can_fail() {
    for expect in [
        "denied",
        "{ allowed: 0 }",
        "{ denied: 1 }",
        "{ waits: [1s] }",
        "{ limit: other }",
        "{ level: org }",
        "{ reason: rate }",
        "{ status: 429 }",
        "{ message: no }",
        "{ retry_after: 1s }",
        "{ retry_after: never }",
        "{ remaining: { login: 8 } }",
        "{ remaining: { other: 1 } }",
        "{ matched: [] }",
        "{ matched: [login, other] }",
        "{ shadow_denied: 1 }",
        "{ shadow_denied: { login: 1 } }",
        "{ candidates: { login: { would_deny: 0 } } }",
    ] {
        let tests = format!("  - {{ name: t, steps: [{{ expect: {expect} }}] }}\n");
        let folder = folder(&tests);
        let policy = format!("{POLICY}  - {{ name: other, match: {{ path: /x }}, rate: 1/s }}\n");
        folder.write("limits.yaml", policy.as_bytes());
        let (code, stdout, _) = folder.run(&["test", "a.test.yaml"]);
        assert_eq!(code, Some(1), "{expect}: {stdout}");
        assert!(stdout.contains(": expected "), "{expect}: {stdout}");
    }
}

#[test]
fn waits_levels_shadows_lists_and_calendars_can_be_expected() {
    let policy = "
deny: [{ match: { ip: 192.0.2.66 }, status: 451, message: Not here }]
limits:
  - { name: queue, match: { path: /queue }, rate: 10/s, algorithm: leaky_queue, burst: 3 }
  - name: accounts
    match: { path: /levels }
    levels:
      - { name: org, key: claim.org, rate: 3/min }
      - { name: project, key: claim.project, rate: 2/min }
  - { name: dark, match: { path: /dark }, rate: 1/min, mode: shadow }
  - { name: monthly, match: { path: /month }, rate: 1/month, algorithm: fixed_window }
  - { name: must, match: { path: /must }, key: header.x-key, missing: deny, rate: 1/s }
  - { name: costly, match: { path: /costly }, rate: 10/min }
";
    let tests = "policy: limits.yaml
start: 2026-02-28T23:59:00Z
tests:
  - name: waits
    request: { path: /queue }
    steps:
      - { send: 5, expect: { allowed: 4, denied: 1, waits: [100ms, 200ms, 300ms], limit: queue, retry_after: 100ms } }
  - name: levels
    request: { path: /levels, claims: { org: acme, project: web } }
    steps:
      - { send: 3, expect: { allowed: 2, denied: 1, limit: accounts, level: project } }
      - { request: { claims: { project: app } }, expect: { allowed: 1, remaining: { accounts/org: 0, accounts/project: 1 } } }
      - { request: { claims: { project: app } }, expect: { denied: 1, level: org } }
  - name: shadows
    request: { path: /dark }
    steps:
      - { send: 3, expect: { allowed: 3, shadow_denied: 2, matched: dark } }
      - { send: 2, expect: { allowed: 2, shadow_denied: { dark: 2 } } }
  - name: months
    request: { path: /month }
    steps:
      - { send: 2, expect: { allowed: 1, denied: 1, reason: quota, retry_after: 1m } }
      - { at: 1m, expect: allowed }
      - { at: 30d, expect: denied }
  - name: months that begin elsewhere
    start: 2026-04-30
    request: { path: /month }
    steps:
      - { send: 2, expect: { allowed: 1, denied: 1, retry_after: 1d } }
  - name: lists
    request: { path: /, ip: 192.0.2.66 }
    steps:
      - { expect: { denied: 1, reason: listed, status: 451, message: Not here, retry_after: never, matched: [] } }
  - name: keys that must be there
    request: { path: /must }
    steps:
      - { expect: { denied: 1, limit: must, reason: missing_key } }
      - { request: { headers: { X-Key: a } }, expect: allowed }
  - name: costs that the caller knows
    request: { path: /costly }
    steps:
      - { cost: 7, expect: { allowed: 1, remaining: { costly: 3 } } }
      - { cost: 4, expect: denied }
      - { cost: 11, expect: { denied: 1, retry_after: never } }
";
    let folder = Folder::with(&[("limits.yaml", policy), ("a.test.yaml", tests)]);
    let (code, stdout, _) = folder.run(&["test", "a.test.yaml"]);
    assert_eq!(code, Some(0), "{stdout}");
}

/// Invalid tests, and the messages about them.
const INVALID: &[(&str, &str)] = &[
    ("  []", "there are no tests"),
    (
        "  - { name: t, steps: [{ expect: allowed, remaining: { login: 3 } }] }",
        "help: write it in `expect`",
    ),
    (
        "  - { name: t, steps: [{ expect: { candidates: 3 } }] }",
        "`candidates` must be a map",
    ),
    (
        "  - { name: t, stpes: [] }",
        "a.test.yaml:3:16: a test: unknown field `stpes`",
    ),
    (
        "  - { steps: [{ expect: allowed }] }",
        "a.test.yaml:3:5: a test has no `name`",
    ),
    ("  - { name: t }", "a test has no `steps`"),
    (
        "  - { name: t, steps: [{ send: 1 }] }",
        "`t` expects nothing",
    ),
    (
        "  - { name: t, steps: [{ expect: alowed }] }",
        "did you mean `allowed`?",
    ),
    (
        "  - { name: t, steps: [{ expect: { alowed: 1 } }] }",
        "did you mean `allowed`?",
    ),
    (
        "  - { name: t, steps: [{ expect: { limit: lgoin } }] }",
        "did you mean `login`?",
    ),
    (
        "  - { name: t, steps: [{ send: 2, expect: { allowed: 3 } }] }",
        "3 decisions are expected of 2 requests",
    ),
    (
        "  - { name: t, steps: [{ at: 5s, expect: allowed }, { at: 1s }] }",
        "this step is earlier than the one above it",
    ),
    (
        "  - { name: t, steps: [{ at: soon, expect: allowed }] }",
        "`at`: `soon` is not a duration",
    ),
    (
        "  - { name: t, steps: [{ send: 9M, expect: allowed }] }",
        "write a number up to 1000000",
    ),
    (
        "  - { name: t, steps: [{ request: { ip: here }, expect: allowed }] }",
        "`ip`: `here` is not an address",
    ),
    (
        "  - { name: t, steps: [{ request: { path: here }, expect: allowed }] }",
        "the path \"here\" does not begin with a slash",
    ),
    (
        "  - { name: t, steps: [{ request: { headers: { a b: c } }, expect: allowed }] }",
        "`a b` is not a header name",
    ),
    (
        "  - { name: t, steps: [{ finish: a, expect: { limit: login } }] }",
        "no requests are held as `a` here",
    ),
    (
        "  - { name: t, start: never, steps: [{ expect: allowed }] }",
        "`never` is not a point in time",
    ),
    (
        "  - { name: t, steps: [{ expect: allowed }] }\n  - { name: t, steps: [{ expect: allowed }] }",
        "there are two tests named `t`",
    ),
    (
        "  - { name: t, name: u, steps: [{ expect: allowed }] }",
        "`name` is given twice",
    ),
    (
        "  - { name: t, steps: [{ send: 300, request: { ip: \"192.0.2.{n}\" }, expect: allowed }] }",
        "request 256: `192.0.2.256` is not an address",
    ),
];

#[test]
fn invalid_files_are_reported_with_their_lines() {
    for (tests, expected) in INVALID {
        let (code, stdout) = run(&format!("{tests}\n"));
        assert_eq!(code, Some(1), "{tests}");
        assert!(stdout.contains(expected), "{tests}: {stdout}");
        assert!(stdout.contains('^'), "{stdout}");
    }
}

#[test]
fn fields_without_effect_are_refused() {
    let edge = "domain: edge\ndescriptors:\n  - { key: a, rate_limit: { unit: second, requests_per_unit: 5 } }\n";
    let tests = |step: &str| {
        format!(
            "policy: edge.yaml\ntests: [{{ name: t, request: {{ descriptors: {{ a: b }} }}, steps: [{{ {step}, expect: allowed }}] }}]\n"
        )
    };
    let folder = Folder::with(&[("edge.yaml", edge), ("limits.yaml", POLICY)]);
    let run = |text: &str| {
        folder.write("a.test.yaml", text.as_bytes());
        folder.run(&["test", "a.test.yaml"])
    };
    for step in ["hold: a", "cost: 2"] {
        let (code, stdout, _) = run(&tests(step));
        assert_eq!(code, Some(1));
        let field = step.split(':').next().unwrap();
        let expected = format!("`{field}` has no effect with files of envoyproxy/ratelimit");
        assert!(stdout.contains(&expected), "{stdout}");
    }
    let hits = tests("request: { hits: 5 }");
    assert_eq!(run(&hits).0, Some(0));
    assert_eq!(run(&hits.replace("hits: 5", "hits: 6")).0, Some(1));
    let (code, stdout, _) = run(&hits.replace("edge.yaml", "limits.yaml"));
    assert_eq!(code, Some(1));
    assert!(
        stdout.contains("`hits` has no effect with a Tollgate policy"),
        "{stdout}"
    );
}

#[test]
fn several_files_of_envoyproxy_ratelimit_are_tested_together() {
    let domain = |name: &str| {
        format!(
            "domain: {name}\ndescriptors:\n  - {{ key: a, rate_limit: {{ unit: second, requests_per_unit: 1 }} }}\n"
        )
    };
    let tests = |domain: &str| {
        format!(
            "policy: [one.yaml, two.yaml]\ntests: [{{ name: t, request: {{ {domain} descriptors: {{ a: b }} }}, steps: [{{ send: 2, expect: {{ allowed: 1, limit: two.a }} }}] }}]\n"
        )
    };
    let folder = Folder::with(&[("one.yaml", &domain("one")), ("two.yaml", &domain("two"))]);
    folder.write("a.test.yaml", tests("domain: two,").as_bytes());
    assert_eq!(folder.run(&["test", "a.test.yaml"]).0, Some(0));
    folder.write("a.test.yaml", tests("").as_bytes());
    let (code, stdout, _) = folder.run(&["test", "a.test.yaml"]);
    assert_eq!(code, Some(1));
    assert!(
        stdout.contains("the policy has several domains: set `domain` in the request"),
        "{stdout}"
    );
}

#[test]
fn policies_that_cannot_be_tested_are_reported() {
    let tests = "tests: [{ name: t, steps: [{ expect: allowed }] }]\n";
    let named = |policy: &str| format!("policy: {policy}\n{tests}");
    let cases = [
        (
            named("gone.yaml"),
            "a.test.yaml:1:9: there is no file gone.yaml",
        ),
        (named("wrong.yaml"), "wrong.yaml:1:9: "),
        (
            named("a.test.yaml"),
            "a.test.yaml is a test file, not a policy",
        ),
        (
            named("[limits.yaml, limits.yaml]"),
            "only files of envoyproxy/ratelimit can be tested together",
        ),
        (tests.to_owned(), "a test file has no `policy`"),
        (
            POLICY.to_owned(),
            "this is not a test file: it has no `tests`",
        ),
    ];
    for (text, expected) in cases {
        let folder = Folder::with(&[
            ("limits.yaml", POLICY),
            ("wrong.yaml", "limits: 7\n"),
            ("a.test.yaml", &text),
        ]);
        let (code, stdout, _) = folder.run(&["test", "a.test.yaml"]);
        assert_eq!(code, Some(1), "{stdout}");
        assert!(stdout.contains(expected), "{stdout}");
        assert!(stdout.ends_with("0 passed, 1 failed\n"), "{stdout}");
    }
    assert_eq!(output(&["test"]).0, Some(2));
}

#[test]
fn tests_can_be_selected_and_json_output_has_all_results() {
    let folder = folder(
        "  - { name: first, steps: [{ expect: denied }] }\n  - { name: second, steps: [{ expect: allowed }] }\n",
    );
    let (code, answer) = folder.json(&["test", "a.test.yaml", "--only", "second"]);
    assert_eq!(code, Some(0));
    assert_eq!(
        answer,
        serde_json::json!({
            "ok": true,
            "passed": 1,
            "failed": 0,
            "files": [{
                "file": "a.test.yaml",
                "tests": [{ "name": "second", "line": 4, "ok": true, "failures": [] }],
                "problems": [],
                "more": 0,
            }],
        })
    );
    let (code, answer) = folder.json(&["test", "a.test.yaml"]);
    assert_eq!((code, &answer["failed"]), (Some(1), &1.into()));
    assert_eq!(
        answer["files"][0]["tests"][0]["failures"],
        serde_json::json!([{
            "step": 1,
            "line": 3,
            "column": 38,
            "what": "denied",
            "expected": "1",
            "found": "0",
            "note": null,
        }])
    );
    let (code, answer) = folder.json(&["test", "gone.test.yaml"]);
    assert_eq!((code, &answer["ok"]), (Some(1), &false.into()));
    assert_eq!(answer["files"][0]["problems"][0]["file"], "gone.test.yaml");
    let (code, _, stderr) = folder.run(&["test", "a.test.yaml", "--only", "third"]);
    assert_eq!(code, Some(2));
    assert!(
        stderr.contains("--only: no test name contains \"third\""),
        "{stderr}"
    );
}
