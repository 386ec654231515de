//! Every policy in `policies/` has tests, and they pass.

use crate::harness::{Folder, repository, run_output, tollgate};

const SHIPPED: [&str; 9] = [
    "absence", "aws", "demo", "discord", "github", "layered", "login", "quotas", "stripe",
];

#[test]
fn every_shipped_policy_has_tests_and_they_pass() {
    let mut command = tollgate(&["test", "--json"]);
    command.current_dir(repository().join("policies"));
    command.args(SHIPPED.map(|name| format!("{name}.test.yaml")));
    let (code, stdout, _) = run_output(command.output().unwrap());
    assert_eq!(code, Some(0), "{stdout}");
    let answer: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(answer["files"].as_array().unwrap().len(), SHIPPED.len());
    for file in answer["files"].as_array().unwrap() {
        assert!(file["tests"].as_array().unwrap().len() >= 3, "{file}");
    }
    let files = std::fs::read_dir(repository().join("policies")).unwrap();
    let names = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let policies = names.filter(|name| !name.contains(".test."));
    assert_eq!(policies.count(), SHIPPED.len(), "each policy is tested");
}

/// Replaces `from` by `to` in a copy of a policy, and runs the tests whose names contain `only`.
fn run_changed(name: &str, from: &str, to: &str, only: &str) -> (Option<i32>, String) {
    let read = |ending: &str| {
        let file = repository().join(format!("policies/{name}{ending}"));
        std::fs::read_to_string(file).unwrap()
    };
    let policy = read(".yaml");
    assert!(policy.contains(from), "{from}");
    let folder = Folder::new();
    folder.write(
        &format!("{name}.yaml"),
        policy.replacen(from, to, 1).as_bytes(),
    );
    folder.write(&format!("{name}.test.yaml"), read(".test.yaml").as_bytes());
    let (code, stdout, _) = folder.run(&["test", "--only", only, &format!("{name}.test.yaml")]);
    (code, stdout)
}

#[test]
fn control_a_changed_layer_fails_its_test() {
    for (from, to, failing) in [
        (
            "key: claim.sub\n    missing: skip",
            "key: claim.sub",
            "a request without credentials is limited by address only",
        ),
        (
            "key: [claim.sub, route]",
            "key: route",
            "4, a user has sixty searches a minute",
        ),
        (
            "key: [route, ip]",
            "key: route",
            "4, ten login attempts a minute",
        ),
        (
            "penalty: block 10m",
            "penalty: none",
            "4, ten login attempts a minute",
        ),
        (
            "free: 500/min",
            "free: 600/min",
            "2, keys have the quota of their plan",
        ),
        (
            "key: claim.org",
            "key: [claim.org, claim.sub]",
            "5, a tenant is limited across its users",
        ),
        (
            "key: claim.sub\n",
            "key: [claim.sub, ip]\n",
            "3, a user is limited across addresses",
        ),
        (
            "key: ip\n",
            "key: { attribute: ip, v4: 24 }\n",
            "1, each address has its own quota",
        ),
        (
            "rate: 10000/s",
            "rate: 20000/s",
            "all requests together are limited",
        ),
    ] {
        let (code, stdout) = run_changed("layered", from, to, failing);
        assert_eq!(code, Some(1), "{from} → {to}: {stdout}");
        assert!(stdout.contains("  FAIL  "), "{stdout}");
    }
}

#[test]
fn control_a_changed_absence_condition_fails_a_test() {
    for (from, to) in [
        (
            "header.authorization: absent, header.x-api-key: absent",
            "header.authorization: absent",
        ),
        (
            "header.authorization: absent, header.x-api-key: present",
            "header.x-api-key: present",
        ),
        (
            "match: { header.authorization: absent, header.x-api-key: absent }\n    ",
            "",
        ),
        (
            "key: { attribute: header.authorization, hash: true }",
            "key: ip",
        ),
        ("rate: 10/min", "rate: 11/min"),
    ] {
        let (code, stdout) = run_changed("absence", from, to, "");
        assert_eq!(code, Some(1), "{from} → {to}: {stdout}");
        assert!(stdout.contains("FAIL"), "{stdout}");
    }
}
