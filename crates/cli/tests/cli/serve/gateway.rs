//! `tollgate serve --upstream`: the gateway between curl and nginx.

use std::process::Command;

use tollgate_testkit::nginx::Nginx;
use tollgate_testkit::process::TempFolder;

use super::{PolicyFile, ServerProcess};
use crate::harness::{output, repository, tollgate};

const NGINX: &str = r#"error_log stderr notice;
events {}
http {
    access_log off;
    server {
        listen 127.0.0.1:8000;
        location / { return 200 "$request_method $request_uri $http_host $http_x_forwarded_for"; }
    }
}
"#;

/// The body, the status and the HTTP version of a response to curl.
fn curl(arguments: &[&str], url: &str) -> String {
    let mut command = Command::new("curl");
    command.args(["-s", "-m", "30", "-w", " %{http_code} %{http_version}"]);
    let done = command.args(arguments).arg(url).output();
    let done = done.expect("curl is missing: apt-get install curl");
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap()
}

pub(super) fn gateway_address(server: &ServerProcess) -> &str {
    let mut lines = server.printed.lines();
    let address = lines.find_map(|line| line.strip_prefix("gateway on http://"));
    address.expect("the address of the gateway")
}

#[test]
fn the_gateway_limits_and_forwards_to_a_real_server() {
    let nginx = Nginx::running(NGINX);
    let policy = "limits: [{ name: per-client, key: ip, rate: 3/h }]";
    let file = PolicyFile::new("gateway", policy);
    let mut command = tollgate(&[
        "serve",
        "--listen=127.0.0.1:0",
        "--listen-gateway=127.0.0.1:0",
    ]);
    command.arg(format!("--upstream=http://{}", nginx.address()));
    command.arg("--config").arg(&file.0);
    let server = ServerProcess::start(command);
    let address = gateway_address(&server).to_owned();
    let url = format!("http://{address}/a//b?c");
    let seen = |method: &str| format!("{method} /a/b?c {address} 127.0.0.1");
    assert_eq!(
        curl(&["--http1.1"], &url),
        format!("{} 200 1.1", seen("GET"))
    );
    let http2 = "--http2-prior-knowledge";
    assert_eq!(curl(&[http2], &url), format!("{} 200 2", seen("GET")));
    // Over HTTP/1.1: nginx answers before it has read the body. Over HTTP/2 the stream is then reset without an error, and curl 7.88
    // takes one in a hundred of such responses for an error.
    assert_eq!(
        curl(&["--http1.1", "-d", "body"], &url),
        format!("{} 200 1.1", seen("POST"))
    );
    let denied = curl(&["--http1.1"], &url);
    assert!(
        denied.contains("quota-exceeded") && denied.ends_with(" 429 1.1"),
        "{denied}"
    );
    let (status, _) = server.stop("TERM");
    assert!(status.success());
}

/// A rotated file: what comes after SIGHUP is in the new one, and no line is lost.
#[test]
fn the_access_log_is_a_file_that_can_be_rotated() {
    let nginx = Nginx::running(NGINX);
    let folder = TempFolder::new("access-log").unwrap();
    let (log, rotated) = (folder.path().join("a.log"), folder.path().join("a.log.1"));
    let mut command = tollgate(&["serve", "--listen=off", "--listen-gateway=127.0.0.1:0"]);
    command.arg("--listen-resp=127.0.0.1:0");
    command.arg(format!("--upstream=http://{}", nginx.address()));
    command.arg("--access-log").arg(&log);
    command.arg("--access-log-format=json");
    let server = ServerProcess::start(command);
    let url = format!("http://{}/", gateway_address(&server));
    let mut sent = 1;
    curl(&["-H", "X-Request-Id: 1", "--http2-prior-knowledge"], &url);
    std::fs::rename(&log, &rotated).unwrap();
    server.signal("HUP");
    // The next line after the signal goes to the new file.
    while !log.exists() {
        assert!(sent < 1_000, "the file is not opened again");
        sent += 1;
        curl(&["-H", &format!("X-Request-Id: {sent}")], &url);
    }
    let (status, _) = server.stop("TERM");
    assert!(status.success());
    let lines = [rotated, log].map(|path| std::fs::read_to_string(path).unwrap());
    let ids: Vec<u64> = lines
        .concat()
        .lines()
        .map(|line| {
            let parsed: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(parsed["status"], 200, "{line}");
            parsed["request_id"].as_str().unwrap().parse().unwrap()
        })
        .collect();
    assert_eq!(ids, (1..=sent).collect::<Vec<_>>());
}

#[test]
fn an_access_log_that_cannot_be_written_is_an_error_at_startup() {
    let upstream = "--upstream=http://127.0.0.1:3000";
    let wrong = "--access-log-format=$remote_addr $statsu";
    let (code, _, stderr) = output(&["serve", upstream, "--access-log=stdout", wrong]);
    assert_eq!(code, Some(2));
    assert!(
        stderr.contains("unknown variable `$statsu` at position 14; did you mean `$status`?"),
        "{stderr}"
    );
    for (path, problem) in [
        ("/no/such/folder/a.log", "No such file or directory"),
        ("/dev/null", "it is a device, not a regular file"),
        ("/", "it is a directory, not a regular file"),
    ] {
        let (code, _, stderr) = output(&["serve", upstream, &format!("--access-log={path}")]);
        assert_eq!(code, Some(1), "{stderr}");
        assert!(
            stderr.contains(&format!("--access-log: cannot open {path}: {problem}")),
            "{stderr}"
        );
    }
}

#[test]
fn an_upstream_has_to_be_an_address_and_to_be_named_once() {
    let (code, _, stderr) = output(&["serve", "--upstream=127.0.0.1:3000"]);
    assert_eq!(code, Some(2));
    assert!(
        stderr.contains("is not the address of an upstream; write one such as"),
        "{stderr}"
    );
    let example = repository().join("examples/gateway/policy.yaml");
    let example = example.to_str().unwrap();
    let (code, _, stderr) = output(&[
        "serve",
        "--upstream=http://127.0.0.1:3000",
        "--config",
        example,
    ]);
    assert_eq!(code, Some(1));
    assert!(
        stderr.contains("the policy has `gateway`; use one of the two"),
        "{stderr}"
    );
    let (code, stdout, stderr) = output(&["check", example]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
}
