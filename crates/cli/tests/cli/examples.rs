//! The documentation shows lines of the examples, and the examples have the addresses that tests replace.
//! Must not know: the gateways, which run only with `--peers`.

use crate::harness::{output, repository};
use crate::with_peers::gateways::{APP, LISTEN_PORT, TOLLGATE, example};

const LANGUAGES: [(&str, &str); 4] = [
    ("nginx", "nginx"),
    ("traefik", "yaml"),
    ("caddy", "caddyfile"),
    ("haproxy", "haproxy"),
];

#[test]
fn the_documentation_shows_only_lines_of_the_examples() {
    let page = std::fs::read_to_string(repository().join("docs/gateways.md")).unwrap();
    for (gateway, language) in LANGUAGES {
        let (_, rest) = page.split_once(&format!("```{language}\n")).unwrap();
        let (shown, _) = rest.split_once("```").unwrap();
        let all: String = example(gateway).into_iter().map(|(_, text)| text).collect();
        let lines: Vec<_> = all.lines().map(str::trim).collect();
        let mut shown = shown.lines().map(str::trim).filter(|line| !line.is_empty());
        assert_eq!(
            shown.find(|line| !lines.contains(line)),
            None,
            "{gateway}: the example does not have this line"
        );
    }
}

#[test]
fn every_example_has_each_replaced_address_once() {
    for (gateway, _) in LANGUAGES {
        let all: String = example(gateway).into_iter().map(|(_, text)| text).collect();
        for address in [LISTEN_PORT, TOLLGATE, APP] {
            assert_eq!(all.matches(address).count(), 1, "{gateway}: {address}");
        }
    }
}

#[test]
fn policies_of_examples_load() {
    for file in ["nginx/policy.yaml", "envoy/quotas-policy.yaml"] {
        let path = repository().join("examples").join(file);
        let (code, stdout, stderr) = output(&["check", path.to_str().unwrap()]);
        assert_eq!(code, Some(0), "{file}: {stdout}{stderr}");
    }
}
