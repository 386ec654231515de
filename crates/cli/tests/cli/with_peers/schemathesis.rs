//! schemathesis: sends valid and invalid requests by `/openapi.json`, and checks every response against it.

use std::process::Command;

use tollgate_testkit::peer_programs;
use tollgate_testkit::process::TempFolder;

use super::client::RawRequest;
use super::output;
use super::server::Server;
use crate::harness::repository;

/// A fixed seed, so that every run sends the same requests.
const SEED: &str = "20260";

/// Runs schemathesis with further arguments.
fn fuzz(server: &Server, further: &[&str]) -> String {
    // schemathesis writes files into its working directory.
    let folder = TempFolder::new("schemathesis").unwrap();
    let mut command = Command::new("python3");
    command
        .args(["-m", "schemathesis.cli", "run"])
        .arg(format!("http://{}/openapi.json", server.http))
        .arg(format!("--url=http://{}", server.http))
        .args(["--checks=all", "--max-examples=50", "--no-color"])
        .args(["--seed", SEED, "--generation-database=none"])
        .args(["--request-timeout=30"])
        .args(further)
        .env("PYTHONPATH", peer_programs::file("schemathesis", ""))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(folder.path());
    output(&mut command)
}

fn tested(said: &str) -> usize {
    let count = said.lines().find_map(|line| {
        let count = line.trim().strip_prefix("Tested:")?;
        count.trim().parse().ok()
    });
    count.unwrap_or_else(|| panic!("nothing was tested: {said}"))
}

#[test]
fn every_response_matches_the_openapi_document() {
    let policy = std::fs::read_to_string(repository().join("policies/demo.yaml")).unwrap();
    let server = Server::start(&policy);
    let asked = tested(&fuzz(&server, &["--exclude-path-regex=^/auth/"]));
    // The /auth/ paths accept every method, also unknown ones, which OpenAPI cannot express. So that check is excluded.
    let of_gateways = [
        "--include-path-regex=^/auth/",
        "--exclude-checks=unsupported_method",
    ];
    let asked = asked + tested(&fuzz(&server, &of_gateways));
    let document = RawRequest::get("/openapi.json").ask(server.http).json();
    let paths = document["paths"].as_object().unwrap();
    let operations: usize = paths
        .values()
        .map(|path| path.as_object().unwrap().len())
        .sum();
    // schemathesis does not test the operation of the document itself.
    assert_eq!(asked, operations - 1, "every operation was tested");
    assert!(server.is_well());
    let log = server.stop();
    assert!(log.contains("panics=0"), "{log}");
}
