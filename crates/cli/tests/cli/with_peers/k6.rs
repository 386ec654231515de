//! k6: many concurrent users over HTTP and gRPC, with its own count of the responses.

use std::net::SocketAddr;
use std::process::{Command, Output};

use tollgate_testkit::peer_programs;
use tollgate_testkit::process::free_address;

use super::client::RawRequest;
use super::server::Server;
use super::upstream::Upstream;
use crate::harness::repository;

const POLICY: &str = "
limits:
  - name: per-address
    match: { ip: present }
    key: ip
    rate: 300/d
  - name: per-user
    match: { domain: shop }
    key: descriptor.user
    rate: 300/d
";

/// Runs a script that expects `limit` admissions.
fn k6(script: &str, server: SocketAddr, limit: u32) -> Output {
    let folder = repository().join("crates/cli/tests/cli/with_peers");
    Command::new(peer_programs::file("k6", "bin/k6"))
        .args(["run", "--quiet", "--no-usage-report", "--no-color"])
        // Disables the API of k6, so that it needs no port.
        .args(["--address", ""])
        .args(["-e", &format!("SERVER={server}")])
        .args(["-e", &format!("LIMIT={limit}")])
        .arg(folder.join(script))
        .output()
        .unwrap()
}

/// How many requests the server says that a limit admitted.
fn admitted(server: &Server, limit: &str) -> u64 {
    let answer = RawRequest::get("/v1/limits").ask(server.http).json();
    let limits = answer["limits"].as_array().unwrap();
    let found = limits.iter().find(|one| one["name"] == limit).unwrap();
    found["counters"]["allowed"].as_u64().unwrap()
}

#[test]
fn of_two_thousand_requests_of_twenty_users_exactly_the_limit_is_admitted() {
    let server = Server::start(POLICY);
    let output = k6("k6.js", server.http, 300);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(admitted(&server, "per-address"), 300);
    // Negative control: the quota is used up, so a second run fails its thresholds.
    let again = k6("k6.js", server.http, 300);
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert_eq!(again.status.code(), Some(99), "{said}");
    assert!(said.contains("thresholds on metrics 'admitted"), "{said}");
}

#[test]
fn the_same_holds_over_grpc_with_reflection() {
    let server = Server::start(POLICY);
    let output = k6("k6_grpc.js", server.grpc, 300);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(admitted(&server, "per-user"), 300);
}

/// The service behind the gateway sees exactly what was admitted.
#[test]
fn the_same_holds_through_the_gateway() {
    let (upstream, gateway) = (Upstream::start(), free_address().unwrap());
    let settings = [
        format!("--upstream=http://{}", upstream.address),
        format!("--listen-gateway={gateway}"),
    ];
    let settings = settings.each_ref().map(String::as_str);
    let _server = Server::start_with(&settings, "limits: [{ name: all, rate: 300/d }]");
    let output = k6("k6_gateway.js", gateway, 300);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(upstream.answered(), 300);
}
