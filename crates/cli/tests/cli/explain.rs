//! `tollgate explain`: what a policy does, and what it does with a request.

use crate::harness::{Folder, output, repository};

const POLICY: &str = "\
limits:
  - name: per-key
    key: header.x-api-key
    rate: 1000/min
    burst: 200
  - name: login
    match: { method: POST, route: /login, query.next: present, cookie.sid: absent, host: \"*.example.com\" }
    key: [ip, claim.sub]
    rate: 10/min
";

#[test]
fn each_limit_is_explained_in_plain_words() {
    let folder = Folder::with(&[("a.yaml", POLICY)]);
    let (code, stdout, stderr) = folder.run(&["explain", "a.yaml"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    // The text of the specification.
    let words = "at most 200 at once, then one every 60 ms; never more than 1,200 in any minute; \
                 over-admission bound 0; 1 round trip";
    assert!(stdout.contains(words), "{stdout}");
    assert!(stdout.starts_with("per-key (enforced)\n"), "{stdout}");
}

#[test]
fn the_readings_of_an_ambiguous_path_are_shown_and_why_one_cannot_be_read() {
    let folder = Folder::with(&[(
        "a.yaml",
        "limits: [{ name: login, match: { route: /api/login }, rate: 10/min }]\n",
    )]);
    let explain = |request: &str| folder.run(&["explain", "a.yaml", "--request", request]).1;
    let plain = explain("GET /api/login");
    assert!(!plain.contains("servers may read"), "{plain}");
    let spelled = explain("GET /Api%2Flogin");
    assert!(
        spelled.contains(
            "servers may read the path as: /Api%2Flogin, /Api/login, /api%2flogin, /api/login\n"
        ),
        "{spelled}"
    );
    assert!(spelled.contains("1 limit applies"), "{spelled}");
    assert!(spelled.contains("route: /api/login"), "{spelled}");
    let unreadable = explain("GET /api/login%00");
    assert!(
        unreadable.contains("refused with 400: the path has a control character"),
        "{unreadable}"
    );
}

#[test]
fn a_request_is_explained_with_limits_reasons_and_keys() {
    let folder = Folder::with(&[("a.yaml", POLICY)]);
    let (code, stdout, stderr) = folder.run(&[
        "explain",
        "a.yaml",
        "--request",
        "POST /login?next=%2Fhome",
        "-H",
        "X-Api-Key: k",
        "-H",
        "Host: api.EXAMPLE.com:443",
        "--ip",
        "203.0.113.7",
        "--claim",
        "sub=ada",
    ]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert_eq!(
        stdout,
        "\
route: /login
2 limits apply

per-key applies
  key: header.x-api-key = k
  quota: at most 200 at once, then one every 60 ms; never more than 1,200 in any minute
  costs 1; enforced

login applies
  yes method is POST (it is POST)
  yes route is /login (it is /login)
  yes query.next is present (it is /home)
  yes cookie.sid is absent (absent)
  yes host matches *.example.com (it is api.example.com)
  key: ip (IPv4 /32, IPv6 /64) = 203.0.113.7/32
  key: claim.sub = ada
  quota: at most 10 at once, then one every 6 s; never more than 20 in any minute
  costs 1; enforced
"
    );
}

#[test]
fn every_flag_is_an_attribute() {
    let folder = Folder::with(&[("a.yaml", POLICY)]);
    let login = ["explain", "a.yaml", "--request", "POST /login?next=1"];
    let run = |more: &[&str]| {
        let arguments: Vec<&str> = login.iter().chain(more).copied().collect();
        folder.run(&arguments).1
    };
    assert!(run(&["--host", "a.example.com"]).contains("login applies"));
    let refused = "login does not apply: `host matches *.example.com` does not hold";
    assert!(run(&["--host", "example.org", "-H", "host: a.example.com"]).contains(refused));
    let cookie = run(&["--host", "a.example.com", "-H", "cookie: a=b; sid=1"]);
    assert!(
        cookie.contains("login does not apply: `cookie.sid is absent` does not hold"),
        "{cookie}"
    );
    folder.write(
        "a.yaml",
        b"limits: [{ name: a, rate: 1/s, match: { domain: edge, descriptor.tenant: acme, descriptor.plan: pro } }]",
    );
    let envoy = run(&["--domain", "edge", "--descriptor", "tenant=acme,plan=pro"]);
    assert!(envoy.contains("\na applies\n"), "{envoy}");
}

#[test]
fn files_of_envoyproxy_ratelimit_are_explained_by_descriptors() {
    let text = "
domain: edge
descriptors:
  - key: path
    value: /login
    rate_limit: { unit: hour, requests_per_unit: 20, replaces: [{ name: all }] }
  - key: remote_address
    rate_limit: { unit: minute, requests_per_unit: 10, name: all }
";
    let folder = Folder::with(&[("edge.yaml", text)]);
    let (code, stdout, _) = folder.run(&["explain", "edge.yaml"]);
    assert_eq!((code, stdout.lines().count()), (Some(0), 2), "{stdout}");
    let asked = [
        "explain",
        "edge.yaml",
        "--descriptor",
        "remote_address=203.0.113.7",
        "--descriptor",
    ];
    let run = |last: &str| {
        let arguments: Vec<&str> = asked.iter().copied().chain([last]).collect();
        folder.run(&arguments).1
    };
    assert_eq!(
        run("path=/logout"),
        "\
remote_address=203.0.113.7
  edge.remote_address: at most 10 in each minute, for each remote_address by itself; called all
path=/logout
  no rule has exactly these entries: admitted, not counted
"
    );
    assert!(run("path=/login").contains("another rule replaces it here"));
    let (code, _, stderr) = folder.run(&["explain", "edge.yaml", "--request", "GET /"]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("pass --descriptor"), "{stderr}");
    let (code, stdout, _) =
        folder.run(&["explain", "edge.yaml", "--domain=other", "--descriptor=a=b"]);
    assert_eq!(code, Some(0));
    assert!(stdout.contains("there is no domain other"), "{stdout}");
}

#[test]
fn invalid_flags_and_invalid_policies_are_reported() {
    let folder = Folder::with(&[("a.yaml", POLICY), ("wrong.yaml", "limits: 7\n")]);
    for (arguments, expected) in [
        (
            &["--request", "POST"][..],
            "invalid value 'POST' for '--request <LINE>': it must be a method and a path, as in 'POST /login'",
        ),
        (
            &["--request", "GET /?x=%zz"],
            "for '--request <LINE>': in \"%zz\" two hexadecimal digits must follow each %",
        ),
        (
            &["-H", "x-api-key"],
            "for '--header <HEADER>': it must be a name, a colon and a value, as in 'x-api-key: k'",
        ),
        (
            &["--ip", "localhost"],
            "for '--ip <ADDRESS>': `localhost` is not an address",
        ),
        (
            &["--claim", "ada"],
            "for '--claim <NAME=VALUE>': it must be a name, an equals sign and a value",
        ),
        (
            &["--descriptor", "a=1,,"],
            "for '--descriptor <ENTRIES>': it must be entries",
        ),
        (
            &["--requst", "GET /"],
            "unexpected argument '--requst' found",
        ),
    ] {
        let all: Vec<&str> = ["explain", "a.yaml"]
            .iter()
            .chain(arguments)
            .copied()
            .collect();
        let (code, stdout, stderr) = folder.run(&all);
        assert_eq!((code, stdout.as_str()), (Some(2), ""));
        assert!(stderr.contains(expected), "{stderr}");
    }
    let (code, stdout, stderr) = folder.run(&["explain", "wrong.yaml"]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(stderr.starts_with("wrong.yaml:1:9: "), "{stderr}");
}

#[test]
fn json_output_has_the_explanation_or_the_problems() {
    let folder = Folder::with(&[("a.yaml", POLICY), ("wrong.yaml", "limits: 7\n")]);
    let (code, answer) = folder.json(&["explain", "a.yaml"]);
    assert_eq!((code, &answer["ok"]), (Some(0), &true.into()));
    assert_eq!(answer["kind"], "policy");
    assert_eq!(answer["explanation"]["limits"][0]["name"], "per-key");
    let (code, answer) = folder.json(&["explain", "a.yaml", "--request", "GET /"]);
    assert_eq!(code, Some(0));
    assert_eq!(answer["explanation"]["verdict"], "1 limit applies");
    assert_eq!(answer["explanation"]["limits"][1]["applies"], false);
    let (code, answer) = folder.json(&["explain", "wrong.yaml"]);
    assert_eq!((code, &answer["ok"]), (Some(1), &false.into()));
    assert!(answer["explanation"].is_null());
    assert_eq!(answer["problems"][0]["line"], 1);
}

#[test]
fn every_shipped_policy_explains() {
    for entry in std::fs::read_dir(repository().join("policies")).unwrap() {
        let path = entry.unwrap().path();
        let file = path.to_str().unwrap();
        if file.ends_with(".test.yaml") {
            continue;
        }
        let (code, stdout, stderr) = output(&["explain", file]);
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{file}");
        assert!(stdout.contains("round trip"), "{stdout}");
    }
}

/// Slots and `colocate` concern only a fleet on Redis Cluster.
#[test]
fn slots_are_explained_only_for_a_fleet() {
    let two_keys =
        "limits:\n  - { name: a, key: ip, rate: 1/s }\n  - { name: b, key: host, rate: 1/s }\n";
    let fleet = format!("fleet: {{ nodes: 3 }}\n{two_keys}");
    let colocated = two_keys.replace("key: host,", "key: host, colocate: host,");
    let folder = Folder::with(&[
        ("alone.yaml", two_keys),
        ("fleet.yaml", &fleet),
        ("colocated.yaml", &colocated),
    ]);
    let speaks_of_slots = |arguments: &[&str]| {
        let (code, stdout, stderr) = folder.run(arguments);
        assert_eq!(code, Some(0), "{stderr}");
        stdout.contains("slot")
    };
    assert!(!speaks_of_slots(&["explain", "alone.yaml"]));
    assert!(speaks_of_slots(&["explain", "alone.yaml", "--fleet"]));
    assert!(speaks_of_slots(&["explain", "fleet.yaml"]));
    assert!(speaks_of_slots(&["explain", "colocated.yaml"]));
    let (_, json) = folder.json(&["explain", "alone.yaml"]);
    assert_eq!(json["explanation"]["slots"].as_array().unwrap().len(), 2);
}
