//! The program with real peers: gateways, Redis clients, load generators, fuzzers, slow clients.
//!
//! `cargo xtask test --peers` installs the peers and runs these tests. All other runs skip them by the name of this module.
//! Limits here are per hour or longer, so that no unit is refilled during a test.

mod client;
pub(crate) mod gateways;
mod go_client;
mod k6;
mod redis_clients;
mod schemathesis;
mod server;
mod slow_clients;
pub(crate) mod upstream;

use std::process::{Command, Stdio};

/// The stdout of a program, which must succeed.
pub(crate) fn output(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{:?} ended with {}:\n{said}{errors}",
        command.get_program(),
        output.status
    );
    said
}
