//! `cargo xtask chaos --minutes N`: every scenario again and again, in another order and with other seeds each time, and a report
//! of what came of it.
//!
//! A scenario is a test whose name begins with its number, `s_08_…`. It reads its seed from the environment and tells one line
//! into a file that the environment names. Must not know: what scenarios do.

mod report;
mod seeded_rng;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use self::report::{Ran, Report};
use self::seeded_rng::SeededRng;
use crate::process::{capture, cargo, run as run_process};
use crate::workspace::Workspace;

/// What tests read; `testkit/src/chaos.rs` has the same names.
const SEED: &str = "TOLLGATE_CHAOS_SEED";
const LINES: &str = "TOLLGATE_CHAOS_REPORT";

/// The test binaries that have scenarios with real servers.
const BINARIES: &[[&str; 4]] = &[
    ["--package", "tollgate-redis", "--test", "redis"],
    ["--package", "tollgate-cli", "--test", "cli"],
];

/// The one that CI runs through all of this, so that the command itself cannot rot.
const SMOKE: &str = "s_08_a_lost_reply_is_charged_exactly_once";

/// What is to be run.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    time: Duration,
    seed: Option<u64>,
    only: String,
}

/// One test.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Scenario {
    binary: usize,
    name: String,
}

/// The command `chaos`.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let wanted = Wanted::read(args)?;
    let seed = wanted.seed.unwrap_or_else(seeded_rng::from_the_clock);
    let target = Workspace::load()?.target;
    go(&wanted, seed, &target.join("chaos"))
}

/// One scenario, once: a step of `cargo xtask test`.
pub(crate) fn smoke() -> Result<(), String> {
    let wanted = Wanted {
        time: Duration::ZERO,
        seed: None,
        only: SMOKE.to_owned(),
    };
    let target = Workspace::load()?.target;
    go(&wanted, 1, &target.join("chaos-smoke"))
}

/// Runs all scenarios that are wanted at least once, and again until the time is over.
fn go(wanted: &Wanted, seed: u64, folder: &Path) -> Result<(), String> {
    for binary in BINARIES {
        run_process(cargo().args(["test", "--no-run"]).args(binary))?;
    }
    let mut scenarios = list(&wanted.only)?;
    if scenarios.is_empty() {
        return Err(format!("no scenario has `{}` in its name", wanted.only));
    }
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(failed)?;
    let (lines, report_file) = (folder.join("lines.txt"), folder.join("report.md"));
    println!("{} scenarios, seed {seed}", scenarios.len());
    let mut report = Report::new(seed);
    let mut dice = SeededRng::new(seed);
    let elapsed = stopwatch();
    loop {
        dice.shuffle(&mut scenarios);
        for scenario in &scenarios {
            if elapsed() >= wanted.time && report.has(&scenario.name) {
                continue;
            }
            std::fs::write(&lines, "").map_err(failed)?;
            let own = dice.roll();
            let ran = one(scenario, own, &lines)?;
            println!(
                "{} {} (seed {own})",
                if ran.is_ok { "ok    " } else { "FAILED" },
                scenario.name
            );
            report.add(ran);
            std::fs::write(&report_file, report.markdown(elapsed())).map_err(failed)?;
        }
        if elapsed() >= wanted.time {
            break;
        }
    }
    println!("{}", report.markdown(elapsed()));
    println!("written to {}", report_file.display());
    match report.failures() {
        0 => Ok(()),
        count => Err(format!("{count} runs failed; the report has their seeds")),
    }
}

/// Runs a scenario with a seed of its own. That it fails is no error of ours.
fn one(scenario: &Scenario, seed: u64, lines: &Path) -> Result<Ran, String> {
    let binary = BINARIES.get(scenario.binary).copied().unwrap_or_default();
    let mut command = cargo();
    command.args(["test", "--quiet"]).args(binary);
    command.args(["--", "--exact", &scenario.name]);
    let output = with(&mut command, seed, lines)
        .output()
        .map_err(|error| format!("cargo cannot be started: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let told = std::fs::read_to_string(lines).map_err(|error| error.to_string())?;
    Ok(Ran {
        name: scenario.name.clone(),
        seed,
        is_ok: output.status.success(),
        told,
        said,
    })
}

fn with<'a>(command: &'a mut Command, seed: u64, lines: &Path) -> &'a mut Command {
    command
        .env(SEED, seed.to_string())
        .env(LINES, lines)
        .stdin(Stdio::null())
}

/// All scenarios whose names contain this.
fn list(only: &str) -> Result<Vec<Scenario>, String> {
    let mut scenarios = Vec::new();
    for (index, binary) in BINARIES.iter().enumerate() {
        let mut command = cargo();
        command.args(["test", "--quiet"]).args(binary);
        let (listed, _) = capture(command.args(["--", "--list"]))?;
        let names = in_list(&listed).filter(|name| name.contains(only));
        scenarios.extend(names.map(|name| Scenario {
            binary: index,
            name: name.to_owned(),
        }));
    }
    Ok(scenarios)
}

/// The scenarios in a list of libtest's.
fn in_list(listed: &str) -> impl Iterator<Item = &str> {
    let names = listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"));
    names.filter(|name| report::number(name).is_some())
}

impl Wanted {
    fn read(args: &[String]) -> Result<Self, String> {
        let mut wanted = Self {
            time: Duration::ZERO,
            seed: None,
            only: String::new(),
        };
        let mut minutes = None;
        let mut words = args.iter();
        while let Some(flag) = words.next() {
            let value = words
                .next()
                .ok_or_else(|| format!("`chaos {flag}` needs a value"))?;
            let number = || {
                let read = value.parse::<u64>();
                read.map_err(|error| format!("`{flag} {value}`: {error}"))
            };
            match flag.as_str() {
                "--minutes" => minutes = Some(number()?),
                "--seed" => wanted.seed = Some(number()?),
                "--only" => wanted.only.clone_from(value),
                _ => {
                    return Err(format!(
                        "`chaos` knows --minutes, --seed and --only, but was given `{flag}`"
                    ));
                }
            }
        }
        let minutes = minutes.ok_or("say for how long: chaos --minutes N")?;
        wanted.time = Duration::from_secs(minutes.saturating_mul(60));
        Ok(wanted)
    }
}

fn stopwatch() -> impl Fn() -> Duration {
    #[expect(
        clippy::disallowed_types,
        reason = "times the developer's own wait; no product code runs on it"
    )]
    let began = std::time::Instant::now();
    move || began.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_time_is_needed_and_the_rest_is_not() {
        let wanted = Wanted::read(&words("--minutes 2 --seed 7 --only s_08")).unwrap();
        assert_eq!(wanted.time, Duration::from_mins(2));
        assert_eq!((wanted.seed, wanted.only.as_str()), (Some(7), "s_08"));
        for wrong in ["", "--seed 7", "--minutes", "--minutes soon", "--hours 1"] {
            assert!(Wanted::read(&words(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn scenarios_are_found_by_their_numbers() {
        let listed = "faults::s_08_lost: test\nfaults::calls_beyond: test\nx::s_nine: test\n\
                      x::has_s_08_inside: test\ns_21_fifty: test\n\n5 tests, 0 benchmarks\n";
        let found: Vec<_> = in_list(listed).collect();
        assert_eq!(found, ["faults::s_08_lost", "s_21_fifty"]);
    }
}
