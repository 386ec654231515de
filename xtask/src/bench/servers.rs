//! `cargo xtask bench servers`: our server beside others, and beside floors that only read and write.
//!
//! Builds ours as people run it, installs the peer that comes as a crate into a folder of its own under cargo's target
//! folder, and starts the program in `bench/servers`. Knows nothing of what is measured.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{self, cargo};
use crate::workspace::Workspace;
use crate::{peers, required_programs};

/// The peer, in the version that was compared.
pub(super) const PEER: &str = "throttlecrab-server";
pub(super) const PEER_VERSION: &str = "0.4.40";

/// Leaves out what has to be installed.
pub(super) const WITHOUT_PEERS: &str = "--without-peers";

/// Name the programs of peers that no package registry has: people build limitador-server, envoyproxy/ratelimit and redis-cell
/// themselves.
pub(super) const PROGRAMS_OF_PEERS: [&str; 3] = ["--limitador", "--ratelimit", "--redis-cell"];

/// Envoy, among the programs that tests start too.
const ENVOY: &str = "envoy-1.40/envoy/_bin/envoy";

/// Everything that is needed, then the run itself with whatever it is to be told.
pub(super) fn run(workspace: &Workspace, args: &[String]) -> Result<(), String> {
    process::run(&mut command(workspace, args)?)
}

/// The run itself, when everything that it needs is there. Without peers there are ours and floors only, which needs no minutes
/// of building.
pub(super) fn command(workspace: &Workspace, args: &[String]) -> Result<Command, String> {
    required_programs::ensure(required_programs::FOR_SERVERS)?;
    let has_peers = args.iter().all(|word| word != WITHOUT_PEERS);
    let peer = has_peers.then(|| peer(&workspace.target)).transpose()?;
    if has_peers {
        peers::ensure(&workspace.target)?;
    }
    let mut command = start(workspace)?;
    if let Some(peer) = peer {
        command.arg("--envoy").arg(envoy(workspace));
        command.arg("--throttlecrab").arg(peer);
    }
    command.args(args.iter().filter(|word| *word != WITHOUT_PEERS));
    Ok(command)
}

/// A node of a fleet beside what it is made of: no peer is needed for that.
pub(super) fn fleet(workspace: &Workspace, args: &[String]) -> Result<(), String> {
    required_programs::ensure(required_programs::FOR_SERVERS)?;
    process::run(start(workspace)?.args(args).arg("fleet"))
}

/// Where Envoy is, once it is installed.
pub(super) fn envoy(workspace: &Workspace) -> PathBuf {
    workspace.target.join("peers").join(ENVOY)
}

/// Builds ours and the program that measures it, and returns the command that starts that program.
pub(super) fn start(workspace: &Workspace) -> Result<Command, String> {
    process::run(cargo().args(["build", "--release", "--package", "tollgate-cli"]))?;
    let mut command = cargo();
    command
        .args(["run", "--release", "--locked", "--manifest-path"])
        .arg(workspace.root.join("bench/servers/Cargo.toml"))
        .args(["--", "--tollgate"])
        .arg(workspace.target.join("release/tollgate"));
    process::run(&mut process::build_of(&command))?;
    Ok(command)
}

/// The peer's program, installed if it is not there.
fn peer(target: &Path) -> Result<PathBuf, String> {
    let folder = target.join("peers").join(PEER);
    let program = folder.join("bin").join(PEER);
    if !program.is_file() {
        process::run(&mut installation(&folder))?;
    }
    println!("{PEER} {PEER_VERSION}: present (it serves the same commands)");
    Ok(program)
}

/// With its own lock file, as its authors build it.
fn installation(folder: &Path) -> Command {
    let mut command = cargo();
    command
        .args(["install", PEER, "--version", PEER_VERSION, "--locked"])
        .arg("--root")
        .arg(folder)
        .arg("--target-dir")
        .arg(folder.join("build"));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_is_built_and_installed_in_its_own_folder() {
        let command = installation(Path::new("target/peers/x"));
        let words: Vec<_> = command
            .get_args()
            .map(|word| word.to_string_lossy())
            .collect();
        assert!(words.iter().any(|word| word == "target/peers/x"));
        assert!(words.iter().any(|word| word == "target/peers/x/build"));
    }
}
