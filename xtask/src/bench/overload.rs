//! `cargo xtask bench overload`: adaptive concurrency in simulated time, beside published limits and an oracle.
//!
//! Prints the tables. With `--write` it writes them and the plots into docs/overload.md. Its numbers are the same on
//! every machine. `--real-time` runs small traces through our gateway and beside Envoy instead. Must not know: how the simulation works.

use std::process::Stdio;

use super::measurements::Measurements;
use super::plot::{self, Panel};
use super::{page, program_command, servers};
use crate::process::{self, cargo};
use crate::workspace::Workspace;
use crate::{peers, required_programs};

const REAL_TIME: &str = "--real-time";

/// The workload of each panel, and its title.
const PANELS: [(&str, &str); 4] = [
    ("overload gcl limit", "Service time 50, 150, 50 ms"),
    ("overload gcl goodput", "Service time 50, 150, 50 ms"),
    ("overload 12× limit", "Demand 0.8×, 12×, 0.8×"),
    ("overload 12× goodput", "Demand 0.8×, 12×, 0.8×"),
];

pub(super) fn run(workspace: &Workspace, args: &[String]) -> Result<(), String> {
    let is_written = match args {
        [] => false,
        [flag] if flag == "--write" => true,
        [flag, rest @ ..] if flag == REAL_TIME => return real_time(workspace, rest),
        _ => {
            return Err(
                "`bench overload` knows --write and --real-time [--quick] [--without-peers]"
                    .to_owned(),
            );
        }
    };
    let folder = workspace.target.join("bench");
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let numbers = folder.join("overload.tsv");
    let words = ["--measurements".to_owned(), numbers.display().to_string()];
    let mut command = program_command("overload", &words);
    let (tables, _) = process::capture(command.stderr(Stdio::inherit()))?;
    let text = std::fs::read_to_string(&numbers).map_err(failed)?;
    let mut measurements = Measurements::default();
    measurements.read(&text)?;
    let panels = PANELS.map(|(workload, title)| Panel {
        is_linear: true,
        ..Panel::from_measurements(&measurements, workload, title, "seconds")
    });
    let picture = plot::render("Overload in simulated time", &panels);
    if !is_written {
        println!("{tables}");
        return std::fs::write(folder.join("overload.svg"), picture).map_err(failed);
    }
    let docs = workspace.root.join("docs");
    page::replace(&docs.join("overload.md"), "tables", &tables)?;
    let failed = |error: std::io::Error| format!("docs/img: {error}");
    std::fs::create_dir_all(docs.join("img")).map_err(failed)?;
    std::fs::write(docs.join("img/overload.svg"), picture).map_err(failed)
}

/// Our gateway beside Envoy, on the machine's clock.
fn real_time(workspace: &Workspace, args: &[String]) -> Result<(), String> {
    process::run(cargo().args(["build", "--release", "-p", "tollgate-cli"]))?;
    let server = workspace.target.join("release").join("tollgate");
    let mut words = vec![REAL_TIME.to_owned(), server.display().to_string()];
    if args.iter().all(|word| word != servers::WITHOUT_PEERS) {
        required_programs::ensure(required_programs::REQUIRED_PROGRAMS)?;
        peers::ensure(&workspace.target)?;
        words.push("--envoy".to_owned());
        words.push(servers::envoy(workspace).display().to_string());
    }
    for word in args.iter().filter(|word| *word != servers::WITHOUT_PEERS) {
        if word != "--quick" {
            return Err(format!("`bench overload {REAL_TIME}` does not know {word}"));
        }
        words.push(word.clone());
    }
    process::run(&mut program_command("overload", &words))
}
