//! k6: many users at once, and a count of their own of what they were answered, over HTTP and over gRPC.

use std::net::SocketAddr;
use std::process::{Command, Output};

use tollgate_testkit::peer_programs;

use super::client::RawRequest;
use super::server::Server;
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

/// Runs a script, which expects `limit` admissions.
fn k6(script: &str, server: SocketAddr, limit: u32) -> Output {
    let folder = repository().join("crates/cli/tests/cli/with_peers");
    Command::new(peer_programs::file("k6", "bin/k6"))
        .args(["run", "--quiet", "--no-usage-report", "--no-color"])
        // Without an API of its own on a port that others may want.
        .args(["--address", ""])
        .args(["-e", &format!("SERVER={server}")])
        .args(["-e", &format!("LIMIT={limit}")])
        .arg(folder.join(script))
        .output()
        .unwrap()
}

/// How often a limit has admitted, by the server's own account.
fn admitted(server: &Server, limit: &str) -> u64 {
    let answer = RawRequest::get("/v1/limits").ask(server.http).json();
    let limits = answer["limits"].as_array().unwrap();
    let found = limits.iter().find(|one| one["name"] == limit).unwrap();
    found["counters"]["allowed"].as_u64().unwrap()
}

#[test]
fn two_thousand_questions_of_twenty_users_are_admitted_exactly_to_the_limit() {
    let server = Server::start(POLICY);
    let output = k6("k6.js", server.http, 300);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(admitted(&server, "per-address"), 300);
    // The script itself would notice: the quota is used up, and so a second run is not as expected.
    let again = k6("k6.js", server.http, 300);
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert_eq!(again.status.code(), Some(99), "{said}");
    assert!(said.contains("thresholds on metrics 'admitted"), "{said}");
}

#[test]
fn the_same_over_grpc_with_what_can_be_called_found_by_reflection() {
    let server = Server::start(POLICY);
    let output = k6("k6_grpc.js", server.grpc, 300);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(admitted(&server, "per-user"), 300);
}
