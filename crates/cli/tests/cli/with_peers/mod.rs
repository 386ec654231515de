//! The real program beside the programs that people put around it: gateways, clients, fuzzers, slow clients.
//!
//! `cargo xtask test --peers` installs them and runs these tests; all other runs leave them out by the name of this module.
//! Time passes as it does: what is limited here is limited by the hour, so that nothing comes back while a test runs.

mod client;
pub(crate) mod gateways;
mod k6;
mod redis_clients;
mod schemathesis;
mod server;
mod slow_clients;
mod upstream;

use std::process::{Command, Stdio};

/// What a program says; it must end well.
fn output(command: &mut Command) -> String {
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
