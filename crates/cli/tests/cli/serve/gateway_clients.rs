//! Load generators and a browser through the gateway: limits are exact, and pages, event streams and WebSockets work.

use std::process::Command;

use tollgate_testkit::chromium::Chromium;
use tollgate_testkit::nginx::Nginx;
use tollgate_testkit::process::{Process, TempFolder, free_address};

use super::gateway::gateway_address;
use super::{PolicyFile, ServerProcess};
use crate::harness::{repository, tollgate};

const LIMIT: usize = 300;

/// An nginx that logs each request.
const NGINX: &str = r#"error_log stderr notice;
events {}
http {
    log_format seen "seen $request_uri";
    access_log /dev/stderr seen;
    server {
        listen 127.0.0.1:8000;
        location / { return 200 ok; }
    }
}
"#;

fn start_gateway(
    policy: &str,
    upstream: std::net::SocketAddr,
) -> (ServerProcess, String, PolicyFile) {
    let name = format!("gateway-clients-{}", upstream.port());
    let file = PolicyFile::new(&name, policy);
    let mut command = tollgate(&[
        "serve",
        "--listen=127.0.0.1:0",
        "--listen-gateway=127.0.0.1:0",
    ]);
    command.arg(format!("--upstream=http://{upstream}"));
    command.arg("--config").arg(&file.0);
    let server = ServerProcess::start(command);
    let url = format!("http://{}", gateway_address(&server));
    (server, url, file)
}

/// The stdout of a program, which must succeed.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}; apt-get install it"));
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// However many connections and streams ask at once, the upstream sees exactly the limit of each path.
#[test]
fn wrk_and_h2load_are_admitted_exactly_to_the_limit() {
    let nginx = Nginx::running(NGINX);
    let limit =
        |name: &str| format!("{{ name: {name}, match: {{ path: /{name} }}, rate: {LIMIT}/d }}");
    let policy = format!("limits: [{}, {}]", limit("wrk"), limit("h2load"));
    let (server, url, _file) = start_gateway(&policy, nginx.address());
    let said = run("wrk", &["-t2", "-c16", "-d1s", &format!("{url}/wrk")]);
    let number = |line: &str| {
        let found = said.lines().find_map(|one| one.trim().strip_prefix(line));
        found.and_then(|rest| rest.trim().parse::<usize>().ok())
    };
    let refused = number("Non-2xx or 3xx responses:").expect("refusals");
    assert!(refused > 0 && !said.contains("Socket errors"), "{said}");
    let said = run(
        "h2load",
        &["-n3000", "-c10", "-m10", &format!("{url}/h2load")],
    );
    let expected = format!(
        "status codes: {LIMIT} 2xx, 0 3xx, {} 4xx, 0 5xx",
        3_000 - LIMIT
    );
    assert!(said.contains(&expected), "{said}");
    let (status, _) = server.stop("TERM");
    assert!(status.success());
    let log = nginx.log();
    for path in ["/wrk", "/h2load"] {
        let line = format!("seen {path}\n");
        assert_eq!(log.matches(&line).count(), LIMIT, "{path}");
    }
}

/// Chromium loads a page through the gateway, reads an event stream and speaks over a WebSocket. The page reports to Node.
#[test]
fn chromium_gets_a_page_an_event_stream_and_a_websocket() {
    let folder = TempFolder::new("node").unwrap();
    let address = free_address().unwrap();
    let script = repository().join("crates/cli/tests/cli/serve/browser_upstream.mjs");
    let mut command = Command::new("node");
    command.arg(script).arg(address.port().to_string());
    let node = Process::start("node", &mut command, folder).unwrap();
    node.until_it_says("listening").unwrap();
    let (server, url, _file) = start_gateway("limits: [{ name: all, rate: 1000/min }]", address);
    let browser = Chromium::open(&format!("{url}/"));
    let report = node.until_it_says("report: events 1,2,3 echo hello");
    report.unwrap_or_else(|error| panic!("{error}\n{}", browser.log()));
    drop(browser);
    let (status, _) = server.stop("TERM");
    assert!(status.success());
}
