//! The documentation shows lines of the examples, and the examples have the addresses that tests replace.
//! Must not know: the gateways, which run only with `--peers`.

use std::process::Command;

use tollgate_testkit::certificates::CertificateAuthority;
use tollgate_testkit::nginx::Nginx;
use tollgate_testkit::process::TempFolder;

use crate::harness::{output, repository, tollgate};
use crate::serve::ServerProcess;
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

/// An nginx that says its name and what it was asked for.
fn upstream(name: &str) -> Nginx {
    Nginx::running(
        &r#"error_log stderr notice;
events {}
http {
    access_log off;
    server {
        listen 127.0.0.1:8000;
        location / { return 200 "NAME $request_uri $http_x_forwarded_proto"; }
    }
}
"#
        .replace("NAME", name),
    )
}

/// The policy of examples/gateway, the commands in its first lines, and real servers behind it.
#[test]
fn the_example_of_the_gateway_runs_with_its_upstreams_and_tls() {
    let folder = TempFolder::new("gateway-example").unwrap();
    let (web, web_2, reports) = (upstream("web"), upstream("web"), upstream("reports"));
    let example = repository().join("examples/gateway/policy.yaml");
    let mut policy = std::fs::read_to_string(example).unwrap();
    for (port, server) in [(3000, &web), (3001, &web_2), (3002, &reports)] {
        let address = format!("127.0.0.1:{port}");
        assert_eq!(policy.matches(&address).count(), 1, "{address}");
        policy = policy.replace(&address, &server.address().to_string());
    }
    let authority = CertificateAuthority::new("example");
    let own = authority.server("gateway");
    let file = |name, text: &str| folder.write(name, text).unwrap();
    let mut command = tollgate(&[
        "serve",
        "--listen=127.0.0.1:0",
        "--listen-gateway=127.0.0.1:0",
        "--tls-listeners=gateway",
        "--config",
    ]);
    command.arg(file("policy.yaml", &policy));
    command
        .arg("--tls-cert")
        .arg(file("cert.pem", &own.certificate));
    command.arg("--tls-key").arg(file("key.pem", &own.key));
    let server = ServerProcess::start(command);
    let mut lines = server.printed.lines();
    let url = lines
        .find_map(|line| line.strip_prefix("gateway on "))
        .unwrap();
    assert!(url.starts_with("https://"), "{url}");
    let ca = file("ca.pem", &authority.pem());
    let curl = |arguments: &[&str], path: &str| {
        let mut curl = Command::new("curl");
        curl.args([
            "-s",
            "-m",
            "30",
            "-w",
            " %{http_code} %{http_version}",
            "--cacert",
        ]);
        let done = curl
            .arg(&ca)
            .args(arguments)
            .arg(format!("{url}{path}"))
            .output();
        String::from_utf8(done.unwrap().stdout).unwrap()
    };
    assert_eq!(curl(&[], "/a"), "web /a https 200 2");
    assert_eq!(
        curl(&["--http1.1"], "/reports/b?c"),
        "reports /b?c https 200 1.1"
    );
    let logins = (0..6).map(|_| curl(&["-d", "user=a"], "/login"));
    let denied: Vec<bool> = logins.map(|answer| answer.ends_with(" 429 2")).collect();
    assert_eq!(denied, [false, false, false, false, false, true]);
    let (status, _) = server.stop("TERM");
    assert!(status.success());
}
