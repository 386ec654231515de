//! k6: many users at once, and a count of their own of what they were answered.

use std::process::{Command, Output};

use tollgate_testkit::beside;

use super::client::Request;
use super::server::Server;

const POLICY: &str = "
limits:
  - name: per-address
    key: ip
    rate: 300/d
";

/// Runs the script, which expects `limit` admissions.
fn k6(server: &Server, limit: u32) -> Output {
    Command::new(beside::file("k6", "bin/k6"))
        .args(["run", "--quiet", "--no-usage-report", "--no-color"])
        .args(["--address", ""])
        .args(["-e", &format!("SERVER={}", server.http)])
        .args(["-e", &format!("LIMIT={limit}"), "-"])
        .stdin(script())
        .output()
        .unwrap()
}

fn script() -> std::fs::File {
    let folder = crate::harness::repository().join("crates/cli/tests/cli/with_peers");
    std::fs::File::open(folder.join("k6.js")).unwrap()
}

#[test]
fn two_thousand_questions_of_twenty_users_are_admitted_exactly_to_the_limit() {
    let server = Server::start(POLICY);
    let output = k6(&server, 300);
    assert!(output.status.success(), "{output:?}");
    let limits = Request::get("/v1/limits").ask(server.http).json();
    assert_eq!(limits["limits"][0]["counters"]["allowed"], 300, "{limits}");
    // The script itself would notice: the quota is used up, and so a second run is not as expected.
    let again = k6(&server, 300);
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert_eq!(again.status.code(), Some(99), "{said}");
    assert!(said.contains("thresholds on metrics 'admitted"), "{said}");
}
