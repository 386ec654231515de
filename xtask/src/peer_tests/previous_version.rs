//! `cargo xtask mixed-versions --minutes N`: servers of the previous version and of this one on one Redis, for as long.
//!
//! Builds the previous version out of the history of this repository, into its own folder beside the other peers. Must not know:
//! what the test does.

use std::path::Path;
use std::process::Command;

use super::BINARY;
use crate::process::{self, cargo};
use crate::workspace::Workspace;

/// The version before this one. There are no releases yet, so it is the last commit that was published. A release changes it.
const REVISION: &str = "de5c08731f117ea7b0896236a3429b5fc6f59967";
/// Its folder among the peers; the test finds it by this name.
const NAME: &str = "tollgate-previous";
const STAMP: &str = "installed.txt";
const TEST: &str = "with_peers::mixed_versions::";
/// `crates/cli/tests/cli/scenarios/with_peers/mixed_versions.rs` has the same name.
const MINUTES: &str = "TOLLGATE_MIXED_VERSIONS_MINUTES";

/// The command `mixed-versions`.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let minutes = match args {
        [flag, minutes] if flag == "--minutes" => minutes
            .parse::<u64>()
            .map_err(|error| format!("`--minutes {minutes}`: {error}"))?,
        _ => return Err("say for how long: mixed-versions --minutes N".to_owned()),
    };
    ensure(&Workspace::load()?)?;
    let mut command = cargo();
    command.args(BINARY).args(["--", TEST, "--nocapture"]);
    process::run(command.env(MINUTES, minutes.to_string()))
}

/// Builds the previous version, unless it is there.
pub(crate) fn ensure(workspace: &Workspace) -> Result<(), String> {
    let folder = workspace.target.join("peers").join(NAME);
    let program = folder.join("bin/tollgate");
    let stamp = std::fs::read_to_string(folder.join(STAMP));
    if !(program.is_file() && stamp.is_ok_and(|stamp| stamp == REVISION)) {
        build(&workspace.root, &folder, &program)?;
    }
    println!("{NAME} {REVISION}: present (shares one Redis with this version)");
    Ok(())
}

fn build(root: &Path, folder: &Path, program: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(failed)?;
    }
    let (source, bin) = (folder.join("source"), folder.join("bin"));
    std::fs::create_dir_all(&source).map_err(failed)?;
    std::fs::create_dir_all(&bin).map_err(failed)?;
    let archive = folder.join("source.tar");
    let mut git = Command::new("git");
    git.current_dir(root).args(["archive", "--output"]);
    process::run(git.arg(&archive).arg(REVISION)).map_err(|error| {
        format!("{error}\na shallow clone lacks it; `git fetch --unshallow` brings it")
    })?;
    let mut tar = Command::new("tar");
    process::run(tar.arg("-xf").arg(&archive).arg("-C").arg(&source))?;
    let mut build = cargo();
    build.args([
        "build",
        "--release",
        "--locked",
        "--package",
        "tollgate-cli",
    ]);
    build.current_dir(&source).env_remove("CARGO_TARGET_DIR");
    process::run(&mut build)?;
    std::fs::copy(source.join("target/release/tollgate"), program).map_err(failed)?;
    // Only the program is needed; what it was built from takes a gigabyte.
    std::fs::remove_dir_all(&source).map_err(failed)?;
    std::fs::remove_file(&archive).map_err(failed)?;
    // Last, so that a build that was broken off is begun again.
    std::fs::write(folder.join(STAMP), REVISION).map_err(failed)
}
