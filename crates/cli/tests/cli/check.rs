//! `tollgate check`: valid files, invalid files, missing files.

use crate::harness::Folder;

const VALID: &str = "limits:\n  - { name: a, rate: 1/s }\n";
const INVALID: &str = "limits:\n  - name: a\n    rate: 100\n    brust: 5\n";
const EDGE: &str = "domain: edge\ndescriptors:\n  - { key: ip, rate_limit: { unit: second, requests_per_unit: 1 } }\n";

#[test]
fn a_valid_file_gets_a_one_line_summary() {
    let folder = Folder::with(&[
        ("a.yaml", VALID),
        (
            "b.toml",
            "deny = [{ ip = \"192.0.2.1\" }]\n[[limits]]\nname = \"a\"\nrate = \"1/s\"\n[[limits]]\nname = \"b\"\nrate = \"1/s\"\n",
        ),
        (
            "c.json",
            r#"{ "limits": [{ "name": "a", "rate": "1/s" }] }"#,
        ),
    ]);
    let (code, stdout, stderr) = folder.run(&["check", "a.yaml", "b.toml", "c.json"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert_eq!(
        stdout,
        "a.yaml: ok, 1 limit\nb.toml: ok, 2 limits, 1 entry in `deny`\nc.json: ok, 1 limit\n"
    );
}

#[test]
fn a_warning_is_printed_with_its_line_and_the_file_is_valid() {
    let text = "exempt:\n  - header.x-internal: yes\nlimits: [{ name: a, rate: 1/s }]\n";
    let folder = Folder::with(&[("a.yaml", text)]);
    let (code, stdout, stderr) = folder.run(&["check", "a.yaml"]);
    assert_eq!(code, Some(0));
    assert_eq!(stdout, "a.yaml: ok, 1 limit, 1 entry in `exempt`\n");
    assert_eq!(
        stderr,
        "warning: a.yaml:2:5: `exempt` depends on `header.x-internal`, which every client can send\n  \
         2 |   - header.x-internal: yes\n    \
         |     ^^^^^^^^^^^^^^^^^\n  \
         help: add a condition on `ip` or a `claim`, or let the gateway set it and remove what clients send\n"
    );
    let (code, stdout, _) = folder.run(&["check", "--json", "a.yaml"]);
    assert_eq!(code, Some(0));
    let report: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(report["ok"], true);
    assert_eq!(report["problems"], serde_json::json!([]));
    assert_eq!(report["warnings"][0]["line"], 2);
}

#[test]
fn all_problems_of_all_files_are_printed_with_carets() {
    let folder = Folder::with(&[
        ("a.yaml", INVALID),
        ("b.yaml", VALID),
        ("c.yaml", "limits: ["),
    ]);
    let (code, stdout, stderr) = folder.run(&["check", "a.yaml", "b.yaml", "c.yaml", "gone.yaml"]);
    assert_eq!((code, stdout.as_str()), (Some(1), "b.yaml: ok, 1 limit\n"));
    let expected = "\
a.yaml:3:11: `rate`: `100` has no period
  3 |     rate: 100
    |           ^^^
  help: write `100/s`, `100/min`, `100/h` or `100/day`
a.yaml:4:5: limit `a`: unknown field `brust`
  4 |     brust: 5
    |     ^^^^^
  help: did you mean `burst`?
";
    assert!(stderr.starts_with(expected), "{stderr}");
    assert!(stderr.contains("\nc.yaml:1:"), "{stderr}");
    assert!(
        stderr.contains("gone.yaml: the file cannot be read: "),
        "{stderr}"
    );
}

#[test]
fn unreadable_files_and_unknown_formats_are_reported() {
    let folder = Folder::with(&[("a.conf", VALID)]);
    folder.write("latin.yaml", b"limits: [{ name: caf\xe9 }]");
    std::fs::create_dir(folder.path().join("policies")).unwrap();
    for (file, expected) in [
        (
            "policies",
            "policies: it is a directory\n  help: name the files in it: `policies/*.yaml`\n",
        ),
        (
            "a.conf",
            "a.conf: the file extension does not say the format\n  \
             help: use the extension `.yaml`, `.toml` or `.json`, or pass `--format`\n",
        ),
        (
            "latin.yaml",
            "latin.yaml: the file is not UTF-8: byte 21 on line 1",
        ),
    ] {
        let (code, stdout, stderr) = folder.run(&["check", file]);
        assert_eq!((code, stdout.as_str()), (Some(1), ""));
        assert!(stderr.starts_with(expected), "{stderr}");
    }
    assert_eq!(
        folder.run(&["check", "--format", "yaml", "a.conf"]).0,
        Some(0)
    );
}

#[test]
fn stdin_is_yaml_unless_format_is_set() {
    let folder = Folder::new();
    let (code, stdout, _) = folder.run_on(&["check", "-"], VALID);
    assert_eq!((code, stdout.as_str()), (Some(0), "<stdin>: ok, 1 limit\n"));
    let toml = "[[limits]]\nname = \"a\"\nrate = \"1/s\"\n";
    assert_eq!(folder.run_on(&["check", "-"], toml).0, Some(1));
    assert_eq!(
        folder.run_on(&["check", "--format=toml", "-"], toml).0,
        Some(0)
    );
    let (code, _, stderr) = folder.run_on(&["check", "-"], "");
    assert_eq!(code, Some(1));
    assert!(
        stderr.starts_with("<stdin>:1:1: the file is empty"),
        "{stderr}"
    );
}

#[test]
fn files_of_envoyproxy_ratelimit_are_one_set() {
    let folder = Folder::with(&[("a.yaml", EDGE), ("b.yaml", EDGE), ("own.yaml", VALID)]);
    let (code, stdout, _) = folder.run(&["check", "a.yaml", "own.yaml"]);
    assert_eq!(code, Some(0));
    assert_eq!(
        stdout,
        "own.yaml: ok, 1 limit\na.yaml: ok, 1 limit in 1 domain (in the format of envoyproxy/ratelimit)\n"
    );
    // envoyproxy/ratelimit also refuses one domain in two files, unless MERGE_DOMAIN_CONFIG is set.
    let (code, _, stderr) = folder.run(&["check", "a.yaml", "b.yaml"]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("b.yaml:1:"), "{stderr}");
    folder.write("b.yaml", EDGE.replace("key: ip", "key: path").as_bytes());
    let (code, stdout, stderr) = folder.run(&["check", "--merge-domains", "a.yaml", "b.yaml"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(
        stdout.starts_with("a.yaml, b.yaml: ok, 2 limits in 1 domain"),
        "{stdout}"
    );
    // With `--envoy` a file without `domain` is read as one, and the missing field is reported.
    let (code, _, stderr) = folder.run(&["check", "--envoy", "own.yaml"]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("own.yaml:1:1"), "{stderr}");
}

#[test]
fn test_files_are_checked_with_the_policy_they_name() {
    let tests = "policy: a.yaml\ntests:\n  - { name: t, steps: [{ expect: allowed }] }\n";
    let folder = Folder::with(&[("a.yaml", VALID), ("a.test.yaml", tests)]);
    let (code, stdout, _) = folder.run(&["check", "a.yaml", "a.test.yaml"]);
    assert_eq!(code, Some(0));
    assert_eq!(stdout, "a.yaml: ok, 1 limit\na.test.yaml: ok, 1 test\n");
    folder.write("a.yaml", INVALID.as_bytes());
    let (code, _, stderr) = folder.run(&["check", "a.test.yaml"]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("a.yaml:3:11"), "{stderr}");
}

#[test]
fn json_output_is_one_object_for_success_and_failure() {
    let folder = Folder::with(&[("a.yaml", VALID), ("b.yaml", INVALID), ("edge.yaml", EDGE)]);
    let (code, answer) = folder.json(&["check", "a.yaml", "edge.yaml"]);
    assert_eq!(code, Some(0));
    assert_eq!(
        answer,
        serde_json::json!({
            "ok": true,
            "checked": [
                { "files": ["a.yaml"], "kind": "policy", "ok": true, "limits": 1, "tests": null },
                { "files": ["edge.yaml"], "kind": "envoy", "ok": true, "limits": 1, "tests": null },
            ],
            "problems": [],
            "more": 0,
            "warnings": [],
        })
    );
    let (code, answer) = folder.json(&["check", "b.yaml", "gone.yaml"]);
    assert_eq!((code, &answer["ok"]), (Some(1), &false.into()));
    assert_eq!(
        answer["problems"][0],
        serde_json::json!({
            "file": "b.yaml",
            "line": 3,
            "column": 11,
            "width": 3,
            "message": "`rate`: `100` has no period",
            "help": "write `100/s`, `100/min`, `100/h` or `100/day`",
        })
    );
    assert_eq!(answer["problems"][2]["file"], "gone.yaml");
    assert!(answer["problems"][2]["line"].is_null());
}
