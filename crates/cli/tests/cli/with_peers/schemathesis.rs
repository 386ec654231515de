//! schemathesis: whatever `/openapi.json` allows is asked, and what it does not allow; every answer is held against it.

use std::process::Command;

use tollgate_testkit::beside;

use super::output;
use super::server::Server;
use crate::harness::repository;

/// The same questions in every run; another number is another run's worth of questions.
const SEED: &str = "20260";

#[test]
fn every_answer_is_as_documented_whatever_is_asked() {
    let policy = std::fs::read_to_string(repository().join("policies/demo.yaml")).unwrap();
    let server = Server::start(&policy);
    let mut command = Command::new("python3");
    command
        .args(["-m", "schemathesis.cli", "run"])
        .arg(format!("http://{}/openapi.json", server.http))
        .arg(format!("--url=http://{}", server.http))
        .args(["--checks=all", "--max-examples=100", "--no-color"])
        .args(["--seed", SEED, "--generation-database=none"])
        .args(["--request-timeout=30"])
        .env("PYTHONPATH", beside::file("schemathesis", "."))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(std::env::temp_dir());
    let said = output(&mut command);
    println!("{said}");
    assert!(server.is_well());
    let log = server.stop();
    assert!(log.contains("panics=0"), "{log}");
}
