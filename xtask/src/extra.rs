//! `cargo xtask extra`: slow checks with tools that a plain Rust installation lacks.
//!
//! A tool that is missing is never a pass: the summary says "not run", how to install it, and the command fails.

use std::process::Command;

use crate::process::{self, cargo, cargo_of};
use crate::table;
use crate::workspace::Workspace;

/// One tool: how to see whether it is there, how to get it, and what to run.
struct Tool {
    name: &'static str,
    probe: fn() -> Command,
    install: &'static str,
    run: fn(&Options) -> Result<(), String>,
}

/// The arguments after the tool's name.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    /// How long each fuzz target runs.
    seconds: u32,
    /// Words for the tool itself.
    rest: Vec<String>,
}

/// How a tool ended.
enum Ending {
    Passed,
    Failed(String),
    NotRun(String),
}

const TOOLS: &[Tool] = &[
    Tool {
        name: "miri",
        probe: || with(cargo_of("+nightly"), &["miri", "--version"]),
        install: "rustup component add miri --toolchain nightly",
        run: |options| {
            process::run(
                cargo_of("+nightly")
                    .args(["miri", "test", "-p", "tollgate-core"])
                    .args(&options.rest),
            )
        },
    },
    Tool {
        name: "mutants",
        probe: || with(cargo(), &["mutants", "--version"]),
        install: "cargo install cargo-mutants",
        run: |options| {
            process::run(
                cargo()
                    .args(["mutants", "-p", "tollgate-core", "--timeout", "60"])
                    .args(&options.rest),
            )
        },
    },
    Tool {
        name: "deny",
        probe: || with(cargo(), &["deny", "--version"]),
        install: "cargo install cargo-deny",
        run: |options| {
            process::run(
                cargo()
                    .args(["deny", "check", "bans", "licenses", "sources"])
                    .args(&options.rest),
            )
        },
    },
    Tool {
        name: "fuzz",
        probe: || with(cargo_of("+nightly"), &["fuzz", "--version"]),
        install: "cargo install cargo-fuzz",
        run: fuzz,
    },
    Tool {
        name: "loom",
        // A dependency like any other: there is nothing to install.
        probe: || with(cargo(), &["--version"]),
        install: "rustup toolchain install stable",
        run: loom,
    },
    Tool {
        name: "benches",
        probe: || with(cargo(), &["clippy", "--version"]),
        install: "rustup component add clippy",
        run: benches,
    },
];

/// Packages outside the workspace, which `cargo clippy --workspace` does not see.
pub(crate) const BENCHES: [&str; 4] = [
    "bench/peers",
    "bench/pingora",
    "bench/servers",
    "bench/tower",
];

/// The command `extra`.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let (tools, options) = parse(args)?;
    let endings: Vec<(&str, Ending)> = tools
        .iter()
        .map(|tool| {
            println!("\n== {}", tool.name);
            (tool.name, run_tool(tool, &options))
        })
        .collect();
    report(&endings)
}

fn parse(args: &[String]) -> Result<(Vec<&'static Tool>, Options), String> {
    let mut options = Options {
        seconds: 60,
        rest: Vec::new(),
    };
    let Some((name, rest)) = args.split_first().filter(|(name, _)| *name != "all") else {
        process::no_arguments("extra all", args.get(1..).unwrap_or_default())?;
        return Ok((TOOLS.iter().collect(), options));
    };
    let tool = TOOLS.iter().find(|tool| tool.name == name).ok_or_else(|| {
        format!("`extra` knows miri, mutants, deny, fuzz, loom and benches, not `{name}`")
    })?;
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        if tool.name == "fuzz" && word == "--seconds" {
            let number = words.next().ok_or("--seconds needs a number")?;
            options.seconds = number
                .parse()
                .map_err(|error| format!("--seconds {number}: {error}"))?;
        } else {
            options.rest.push(word.clone());
        }
    }
    Ok((vec![tool], options))
}

fn run_tool(tool: &Tool, options: &Options) -> Ending {
    if !process::succeeds(&mut (tool.probe)()) {
        println!(
            "{} is not installed; to install it:\n    {}",
            tool.name, tool.install
        );
        return Ending::NotRun(format!("install it with `{}`", tool.install));
    }
    match (tool.run)(options) {
        Ok(()) => Ending::Passed,
        Err(why) => Ending::Failed(why),
    }
}

/// Prints how each ended. Anything but a pass of all is an error.
fn report(endings: &[(&str, Ending)]) -> Result<(), String> {
    let mut bad = Vec::new();
    let mut rows = Vec::new();
    for (name, ending) in endings {
        let (verdict, why) = match ending {
            Ending::Passed => ("ok", ""),
            Ending::Failed(why) => ("FAILED", why.as_str()),
            Ending::NotRun(why) => ("not run", why.as_str()),
        };
        if !matches!(ending, Ending::Passed) {
            bad.push(format!("{name}: {verdict}"));
        }
        rows.push(vec![(*name).to_owned(), verdict.to_owned(), why.to_owned()]);
    }
    println!("\n{}", table::render(&rows));
    if bad.is_empty() {
        Ok(())
    } else {
        Err(bad.join(", "))
    }
}

/// Runs every fuzz target in turn, or the one that is named.
fn fuzz(options: &Options) -> Result<(), String> {
    let root = Workspace::load()?.root;
    let folder = root.join("fuzz").join("fuzz_targets");
    let entries = std::fs::read_dir(&folder)
        .map_err(|error| format!("there are no fuzz targets in fuzz/fuzz_targets: {error}"))?;
    let mut targets: Vec<String> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| {
            entry
                .file_name()
                .to_str()?
                .strip_suffix(".rs")
                .map(str::to_owned)
        })
        .filter(|target| options.rest.is_empty() || options.rest.contains(target))
        .collect();
    targets.sort();
    if targets.is_empty() {
        return Err(format!(
            "no fuzz target in fuzz/fuzz_targets is named {:?}",
            options.rest
        ));
    }
    let time = format!("-max_total_time={}", options.seconds);
    for target in &targets {
        let mut command = cargo_of("+nightly");
        process::run(
            command
                .current_dir(&root)
                .args(["fuzz", "run", target, "--", &time]),
        )?;
    }
    Ok(())
}

/// The store's slot protocol under a model checker. In a folder of its own: everything is built anew for it.
fn loom(options: &Options) -> Result<(), String> {
    let target = Workspace::load()?.target.join("loom");
    process::run(
        cargo()
            .env("RUSTFLAGS", "--cfg loom")
            .env("CARGO_TARGET_DIR", target)
            .args(["test", "-p", "tollgate-store", "--release", "--lib", "loom"])
            .args(&options.rest),
    )
}

/// The lints of the benchmarks that are no members of the workspace, and the tests in them.
fn benches(options: &Options) -> Result<(), String> {
    let Workspace { root, target, .. } = Workspace::load()?;
    for folder in BENCHES {
        // All of them in one target folder, because they share most dependencies.
        let run = |verb: &str, last: &[&str]| {
            process::run(
                cargo()
                    .env("CARGO_TARGET_DIR", target.join("benches"))
                    .args([verb, "--locked", "--all-targets", "--manifest-path"])
                    .arg(root.join(folder).join("Cargo.toml"))
                    .args(&options.rest)
                    .args(last),
            )
        };
        run("clippy", &["--", "-D", "warnings"])?;
        run("test", &[])?;
    }
    Ok(())
}

fn with(mut command: Command, args: &[&str]) -> Command {
    command.args(args);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn without_a_name_all_run_and_words_after_a_name_are_handed_on() {
        assert_eq!(parse(&[]).unwrap().0.len(), TOOLS.len());
        let (tools, options) = parse(&words("mutants --shard 1/4")).unwrap();
        assert_eq!(tools.first().unwrap().name, "mutants");
        assert_eq!(options.rest, ["--shard", "1/4"]);
    }

    #[test]
    fn every_bench_outside_the_workspace_is_linted() {
        let root = Workspace::load().unwrap().root;
        let has_manifest = |folder: &std::path::PathBuf| folder.join("Cargo.toml").is_file();
        let mut found: Vec<_> = std::fs::read_dir(root.join("bench"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(has_manifest)
            .map(|folder| format!("bench/{}", folder.file_name().unwrap().display()))
            .collect();
        found.sort();
        assert_eq!(found, BENCHES);
    }

    #[test]
    fn fuzz_takes_its_seconds_and_others_leave_them_alone() {
        let (_, options) = parse(&words("fuzz --seconds 5 keys")).unwrap();
        assert_eq!(
            options,
            Options {
                seconds: 5,
                rest: words("keys")
            }
        );
        assert!(parse(&words("fuzz --seconds")).is_err());
    }

    #[test]
    fn what_was_not_run_is_not_a_pass() {
        assert_eq!(report(&[("miri", Ending::Passed)]), Ok(()));
        let not_run = [
            ("miri", Ending::Passed),
            ("deny", Ending::NotRun("how".to_owned())),
        ];
        assert_eq!(report(&not_run), Err("deny: not run".to_owned()));
        assert!(report(&[("fuzz", Ending::Failed("why".to_owned()))]).is_err());
    }

    #[test]
    fn a_tool_that_is_missing_is_not_run() {
        let tool = Tool {
            name: "absent",
            probe: || Command::new("no-such-program-here"),
            install: "make it",
            run: |_| Ok(()),
        };
        let options = Options {
            seconds: 1,
            rest: Vec::new(),
        };
        assert!(
            matches!(run_tool(&tool, &options), Ending::NotRun(how) if how.contains("make it"))
        );
    }
}
