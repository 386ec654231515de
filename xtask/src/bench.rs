//! `cargo xtask bench`: measurements that mean the same on every machine.
//!
//! Builds and starts the programs of the `bench` folder. Nothing here asserts a time: instruction counts are compared,
//! and the accuracy study and the flood judge themselves.

mod all;
mod fleet;
mod gateway;
mod growth;
mod headline;
mod machine;
mod measurements;
mod overload;
mod page;
mod plot;
mod run_record;
mod servers;
mod studies;
mod tower;

use std::process::Command;

use crate::callgrind;
use crate::instruction_counts::{SavedCounts, Toolchain};
use crate::process::{self, cargo};
use crate::table;
use crate::workspace::Workspace;

pub(crate) const PACKAGE: &str = "tollgate-bench";

/// How often a case is repeated. Enough to make what surrounds the loop vanish, few enough to take a second.
const TIMES: u64 = 2_000;

/// What to do with the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Show,
    Check,
    Save,
}

/// The command `bench`.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let (what, rest) = args
        .split_first()
        .ok_or("say what to measure; `cargo xtask help` lists it")?;
    match (what.as_str(), rest) {
        ("instructions", []) => instructions(Mode::Show),
        ("instructions", [flag]) if flag == "--check" => instructions(Mode::Check),
        ("instructions", [flag]) if flag == "--save" => instructions(Mode::Save),
        ("instructions", _) => {
            Err("`bench instructions` knows one of --check and --save".to_owned())
        }
        ("accuracy", rest) => accuracy(rest),
        ("flood", rest) => flood(rest),
        ("memory", rest) => process::run(&mut memory(&Workspace::load()?, rest)),
        ("redis", rest) => program("redis", rest),
        ("client", rest) => client(&Workspace::load()?, rest),
        ("growth", rest) => growth::run(&Workspace::load()?, rest),
        ("overload", rest) => overload::run(&Workspace::load()?, rest),
        ("tower", rest) => tower::run(&Workspace::load()?, rest),
        ("fleet" | "--redis", rest) => fleet::run(&Workspace::load()?, rest),
        ("servers" | "--servers", rest) => servers::run(&Workspace::load()?, rest),
        ("gateway", rest) => gateway::run(&Workspace::load()?, rest),
        ("all", rest) => all::run(&Workspace::load()?, rest),
        (word, _) => Err(format!(
            "`bench` knows instructions, accuracy, flood, memory, redis, fleet, growth, overload, servers, gateway, tower, client and all, not `{word}`"
        )),
    }
}

/// The accuracy study, with whatever it is to be told.
pub(crate) fn accuracy(args: &[String]) -> Result<(), String> {
    program("accuracy", args)
}

/// A flood of keys at a store that is too small for them. It judges itself, so `all` leaves it out.
pub(crate) fn flood(args: &[String]) -> Result<(), String> {
    program("flood", args)
}

/// One of our own programs.
fn program(name: &str, args: &[String]) -> Result<(), String> {
    process::run(&mut program_command(name, args))
}

fn program_command(name: &str, args: &[String]) -> Command {
    let mut command = cargo();
    command
        .args(["run", "--release", "-p", PACKAGE, "--bin", name, "--"])
        .args(args);
    command
}

/// The pacing client: what it costs, or its stories in real time against the program as a user builds it.
fn client(workspace: &Workspace, args: &[String]) -> Result<(), String> {
    match args {
        [] => program("client", &[]),
        [flag] if flag == "--real-time" || flag == "--real-time=full" => {
            process::run(cargo().args(["build", "--release", "-p", "tollgate-cli"]))?;
            let server = workspace.target.join("release").join("tollgate");
            program("client", &[flag.clone(), server.display().to_string()])
        }
        _ => Err("`bench client` knows --real-time and --real-time=full".to_owned()),
    }
}

/// The memory store beside its peers. A package of its own, so that nothing else compiles the peers.
fn memory(workspace: &Workspace, args: &[String]) -> Command {
    let manifest = workspace.root.join("bench/peers/Cargo.toml");
    let mut command = cargo();
    command
        .args(["run", "--release", "--locked", "--manifest-path"])
        .arg(manifest)
        .arg("--")
        .args(args);
    command
}

/// Counts the instructions of every case and compares them with the kept ones.
pub(crate) fn instructions(mode: Mode) -> Result<(), String> {
    let workspace = Workspace::load()?;
    process::run(cargo().args(["build", "--release", "-p", PACKAGE, "--bin", "probe"]))?;
    let probe = workspace.target.join("release").join("probe");
    let path = workspace.root.join("bench").join("instructions.txt");

    let mut now = SavedCounts::empty(Toolchain::running()?);
    let (names, _) = process::capture(Command::new(&probe).arg("--list"))?;
    for name in names.lines() {
        now.insert(name, callgrind::instructions_per_call(&probe, name, TIMES)?);
    }
    if mode == Mode::Save {
        std::fs::write(&path, now.to_string())
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        println!("{now}\nkept in bench/instructions.txt");
        return Ok(());
    }
    let kept = match std::fs::read_to_string(&path) {
        Ok(text) => SavedCounts::parse(&text)?,
        Err(error) => {
            return Err(format!(
                "cannot read bench/instructions.txt ({error}); `cargo xtask bench instructions --save` writes it"
            ));
        }
    };
    let comparison = now.compare(&kept);
    println!("\n{}", table::render(&comparison.rows));
    if now.toolchain != kept.toolchain {
        println!(
            "Not enforced: the kept counts are of {}, and this is {}.",
            kept.toolchain, now.toolchain
        );
        return Ok(());
    }
    if mode == Mode::Check && !comparison.complaints.is_empty() {
        return Err(format!(
            "{}\nIf that is meant, `cargo xtask bench instructions --save` records it; say why in the commit.",
            comparison.complaints.join("\n")
        ));
    }
    Ok(())
}
