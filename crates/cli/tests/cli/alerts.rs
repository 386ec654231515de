//! The alert rules of `examples/prometheus`: promtool tests them, a real server has their metrics, a real Prometheus raises one,
//! and `docs/alerts.md` says what to do about each.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tollgate_testkit::certificates::CertificateAuthority;
use tollgate_testkit::peer_programs::program;
use tollgate_testkit::prometheus::Prometheus;
use tollgate_testkit::redis::{RedisServer, ServerProgram};

use crate::harness::{Folder, RunOutput, repository, run_output, tollgate};
use crate::operators::{get, started};
use crate::serve::{PolicyFile, policy};

fn file(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap()
}

fn rules() -> String {
    file("examples/prometheus/alerts.yml")
}

/// The names of all alerts.
fn alerts(rules: &str) -> Vec<&str> {
    let names = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    names.collect()
}

fn promtool(folder: &Path, arguments: &[&str]) -> RunOutput {
    let mut command = Command::new(program("promtool"));
    run_output(
        command
            .current_dir(folder)
            .args(arguments)
            .output()
            .unwrap(),
    )
}

#[test]
fn promtool_accepts_the_rules_and_their_tests_pass() {
    let folder = repository().join("examples/prometheus");
    for arguments in [
        ["check", "config", "prometheus.yml"],
        ["test", "rules", "alerts.test.yml"],
    ] {
        let (code, stdout, stderr) = promtool(&folder, &arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {stdout}{stderr}");
    }
    // Negative control: with another threshold the test of that alert fails.
    let tests = file("examples/prometheus/alerts.test.yml");
    let changed = rules().replace("> 0.01", "> 0.02");
    assert_ne!(changed, rules());
    let folder = Folder::with(&[("alerts.yml", &changed), ("alerts.test.yml", &tests)]);
    let (code, stdout, stderr) = promtool(folder.path(), &["test", "rules", "alerts.test.yml"]);
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    assert!(
        stderr.contains("TollgateDenialRateHigh"),
        "{stdout}{stderr}"
    );
}

#[test]
fn every_alert_fires_in_a_test_and_has_a_section_that_says_what_to_do() {
    let (rules, page) = (rules(), file("docs/alerts.md"));
    let tests = file("examples/prometheus/alerts.test.yml");
    let alerts = alerts(&rules);
    assert!(alerts.len() >= 24, "{alerts:?}");
    for alert in &alerts {
        assert!(
            tests.contains(&format!("\n  - name: \"{alert}: ")),
            "{alert} has no test"
        );
        assert!(
            tests.contains(&format!(
                "ALERTS{{alertname=\"{alert}\",alertstate=\"firing\","
            )),
            "{alert} does not fire"
        );
        let (_, section) = page
            .split_once(&format!("\n### {alert}\n"))
            .unwrap_or_else(|| panic!("{alert} has no section"));
        let section = section.split("\n#").next().unwrap();
        for part in ["- **Means:** ", "- **Look at:** ", "- **Do:** "] {
            assert!(section.contains(part), "{alert}: {part}");
        }
        let anchor = format!("/docs/alerts.md#{}\n", alert.to_lowercase());
        assert!(rules.contains(&anchor), "{alert} does not link its section");
    }
    // Sections of alerts that are gone would be read at night for nothing.
    assert_eq!(page.matches("\n### ").count(), alerts.len());
}

/// What the expressions ask for: each metric, with `label="value"` where one is named.
fn selectors(rules: &str) -> Vec<(String, Option<String>)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let expressions = rules.lines().filter(|line| {
        let line = line.trim();
        line.starts_with("expr:") || line.starts_with("sum ") || line.starts_with("/ ")
    });
    let mut found = Vec::new();
    for line in expressions {
        for (at, _) in line.match_indices("tollgate_") {
            let rest = &line[at..];
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            let label = rest[end..].strip_prefix('{').map(|rest| {
                let matcher = rest.split('}').next().unwrap();
                assert!(
                    !matcher.contains([',', '~']),
                    "{line}: teach this test to read it"
                );
                matcher.replace("!=", "=")
            });
            found.push((rest[..end].to_owned(), label));
        }
    }
    found
}

fn missing<'a>(
    selectors: &'a [(String, Option<String>)],
    scrape: &str,
) -> Vec<&'a (String, Option<String>)> {
    let has = |(name, label): &&(String, Option<String>)| {
        scrape.lines().any(|line| {
            let Some(rest) = line.strip_prefix(name.as_str()) else {
                return false;
            };
            let labels = rest.split_once('}').map_or("", |(labels, _)| labels);
            rest.starts_with(['{', ' '])
                && label.as_ref().is_none_or(|label| {
                    labels
                        .trim_start_matches('{')
                        .split(',')
                        .any(|one| one == label)
                })
        })
    };
    selectors.iter().filter(|one| !has(one)).collect()
}

/// A rule about a metric that nobody exports never fires, and nobody notices.
#[test]
fn every_metric_and_label_of_the_rules_is_in_the_metrics_of_a_real_server() {
    let redis = RedisServer::start(ServerProgram::Redis);
    let policy = PolicyFile::new("alerts-scraped", &policy("3/h"));
    let folder = Folder::new();
    let certificate = CertificateAuthority::new("ours").server("alerts");
    folder.write("cert.pem", certificate.certificate.as_bytes());
    folder.write("key.pem", certificate.key.as_bytes());
    // Metrics of the fleet exist only with Redis, those of certificates only with TLS.
    let mut command = tollgate(&[
        "serve",
        "--listen=127.0.0.1:0",
        "--listen-admin=127.0.0.1:0",
    ]);
    command
        .args([
            "--tls-cert=cert.pem",
            "--tls-key=key.pem",
            "--tls-listeners=api",
        ])
        .arg("--config")
        .arg(&policy.0)
        .env("TOLLGATE_REDIS", redis.url())
        .env("TOLLGATE_FLEET_SECRET", "the secret of this fleet")
        .current_dir(folder.path());
    let (_served, admin) = started(command);
    let mut selectors = selectors(&rules());
    assert!(selectors.len() >= 24, "{selectors:?}");
    // The age of the watchdog is absent until it has decided for the first time, within a second.
    let has_watchdog = |scrape: &String| scrape.contains("\ntollgate_watchdog_age_seconds ");
    let scrape = (0..10_000)
        .map(|_| get(admin, "/metrics").1)
        .find(has_watchdog)
        .unwrap();
    assert_eq!(
        missing(&selectors, &scrape),
        Vec::<&(String, Option<String>)>::new()
    );
    // Negative control: a misspelt metric and a label value that does not exist are noticed.
    selectors = vec![
        ("tollgate_request_total".to_owned(), None),
        (
            "tollgate_requests_total".to_owned(),
            Some("outcome=\"rejected\"".to_owned()),
        ),
    ];
    assert_eq!(missing(&selectors, &scrape).len(), 2);
}

/// Every rule of an answer to `/api/v1/rules`.
fn evaluated(answer: &str) -> Vec<Value> {
    let answer: Value = serde_json::from_str(answer).unwrap_or_default();
    let groups = answer["data"]["groups"].as_array().cloned();
    let rules = groups.unwrap_or_default().into_iter();
    rules
        .flat_map(|group| group["rules"].as_array().cloned().unwrap_or_default())
        .collect()
}

/// The example's own files, with short intervals: Prometheus evaluates every rule over metrics of a real server without an
/// error, and raises the alert of a policy that becomes invalid.
#[test]
fn a_real_prometheus_raises_an_alert_when_the_policy_becomes_invalid() {
    let policy_file = PolicyFile::new("alerts-broken", &policy("3/h"));
    let mut command = tollgate(&[
        "serve",
        "--listen=127.0.0.1:0",
        "--listen-admin=127.0.0.1:0",
    ]);
    command.arg("--config").arg(&policy_file.0);
    let (_served, admin) = started(command);
    let admin = admin.to_string();
    let configuration = file("examples/prometheus/prometheus.yml")
        .replace("127.0.0.1:8088", &admin)
        .replace("_interval: 15s", "_interval: 500ms");
    assert_eq!(configuration.matches(&admin).count(), 1);
    assert_eq!(configuration.matches(": 500ms").count(), 2);
    let rules = rules().replace("for: 1m\n", "for: 1s\n");
    let prometheus =
        Prometheus::running(&[("prometheus.yml", &configuration), ("alerts.yml", &rules)]);
    let is_evaluated = |answer: &str| {
        let all = evaluated(answer);
        all.len() == alerts(&rules).len() && all.iter().all(|rule| rule["health"] == "ok")
    };
    prometheus.until("/api/v1/rules", is_evaluated).unwrap();
    let query = "/api/v1/query?query=tollgate_policy_valid";
    prometheus
        .until(query, |answer| answer.contains(",\"1\"]"))
        .unwrap();
    policy_file.write("limits: 7\n");
    let fires = |answer: &str| {
        let all = evaluated(answer);
        let mut active = all
            .iter()
            .filter(|rule| rule["name"] == "TollgatePolicyInvalid")
            .flat_map(|rule| rule["alerts"].as_array().cloned().unwrap_or_default());
        active.any(|alert| {
            let description = alert["annotations"]["description"].as_str();
            alert["state"] == "firing" && description.is_some_and(|text| text.starts_with(&admin))
        })
    };
    prometheus.until("/api/v1/rules", fires).unwrap();
}
