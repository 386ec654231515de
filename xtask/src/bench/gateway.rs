//! `cargo xtask bench gateway`: our gateway beside other proxies with limits, before the same upstream.
//!
//! Builds ours and the proxy on pingora, installs Envoy, and starts the program in `bench/servers`. Knows nothing of what is
//! measured.

use std::path::PathBuf;
use std::process::Command;

use super::servers;
use crate::process::{self, cargo};
use crate::workspace::Workspace;
use crate::{peers, required_programs};

/// Leaves out what has to be built or installed: Envoy and pingora.
const WITHOUT_PEERS: &str = "--without-peers";

/// Everything that is needed, then the run itself.
pub(super) fn run(workspace: &Workspace, args: &[String]) -> Result<(), String> {
    process::run(&mut command(workspace, args)?)
}

/// The run itself, when everything that it needs is there.
pub(super) fn command(workspace: &Workspace, args: &[String]) -> Result<Command, String> {
    let has_peers = args.iter().all(|word| word != WITHOUT_PEERS);
    required_programs::ensure(required_programs::FOR_GATEWAY)?;
    let mut command = servers::start(workspace)?;
    if has_peers {
        peers::ensure(&workspace.target)?;
        command.arg("--envoy").arg(servers::envoy(workspace));
        command.arg("--pingora").arg(pingora(workspace)?);
    }
    command.arg("gateway");
    command.args(args.iter().filter(|word| *word != WITHOUT_PEERS));
    Ok(command)
}

/// The proxy on pingora, built.
fn pingora(workspace: &Workspace) -> Result<PathBuf, String> {
    let folder = workspace.root.join("bench/pingora");
    let target = folder.join("target");
    process::run(
        cargo()
            .args(["build", "--release", "--locked", "--manifest-path"])
            .arg(folder.join("Cargo.toml"))
            .env("CARGO_TARGET_DIR", &target),
    )?;
    Ok(target.join("release").join("tollgate-bench-pingora"))
}
