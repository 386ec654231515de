//! `cargo xtask bench tower`: the tower layer beside other layers, in CPU time and in instructions.
//!
//! A package of its own, so that nothing else compiles the peers; not part of `all`, because it takes minutes to build.

use std::process::Command;

use crate::callgrind;
use crate::process::{self, cargo};
use crate::workspace::Workspace;

/// Requests whose instructions are counted.
const TIMES: u64 = 2_000;

/// Builds the program, lets it measure times, and counts the instructions of each contender.
pub(super) fn run(workspace: &Workspace, args: &[String]) -> Result<(), String> {
    let folder = workspace.root.join("bench/tower");
    let target = folder.join("target");
    process::run(
        cargo()
            .args(["build", "--release", "--locked", "--manifest-path"])
            .arg(folder.join("Cargo.toml"))
            .env("CARGO_TARGET_DIR", &target),
    )?;
    let program = target.join("release").join("tollgate-bench-tower");
    process::run(Command::new(&program).args(args))?;
    let (names, _) = process::capture(Command::new(&program).arg("--list"))?;
    let mut bare = None;
    println!("{:<34} {:>12} {:>12}", "layer", "instructions", "added");
    for name in names.lines() {
        let count = callgrind::instructions_per_call(&program, name, TIMES)?;
        let added = count - *bare.get_or_insert(count);
        println!("{name:<34} {count:>12.0} {added:>12.0}");
    }
    Ok(())
}
