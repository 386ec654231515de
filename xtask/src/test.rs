//! `cargo xtask test`: the one command that says whether the repository is in order, here and in CI.
//!
//! Lists the steps; how to run and report them is `steps.rs`. Installs distribution packages where a test needs a
//! program, never a cargo tool: plain cargo must be enough.

use std::path::Path;
use std::time::Duration;

use crate::process::{cargo, run as run_process};
use crate::steps::{self, Step};
use crate::workspace::Workspace;
use crate::{
    bench, chaos, conventions, dist, fresh_crate, layers, links, lock_files, peer_tests, peers,
    quotes, required_programs,
};

/// The budget of CI from a cold checkout on two cores. Longer than this and people stop running it.
const BUDGET: Duration = Duration::from_secs(35 * 60);

/// Beyond this a run fails. Above the budget, because a slower machine must not make a tree fail in which everything works.
const LIMIT: Duration = Duration::from_secs(60 * 60);

/// The package whose examples people copy.
const FACADE: &str = "tollgate";

/// The command `test`.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let steps = match args {
        [] => everything()?,
        [flag] if flag == "--fast" => fast(),
        [flag] if flag == "--peers" => peer_tests::steps()?,
        [flag, word] if flag == "--fast" || flag == "--peers" => {
            return Err(format!(
                "`test {flag}` takes no arguments, but was given `{word}`"
            ));
        }
        [word, ..] => {
            return Err(format!(
                "`test` knows only --fast and --peers, but was given `{word}`"
            ));
        }
    };
    #[expect(
        clippy::disallowed_types,
        reason = "times the developer's own wait; no product code runs on it"
    )]
    let began = std::time::Instant::now();
    steps::run_all(steps, LIMIT, || began.elapsed())?;
    if began.elapsed() > BUDGET {
        println!(
            "This took longer than the {} minutes that are its budget.",
            BUDGET.as_secs() / 60
        );
    }
    Ok(())
}

/// What to run between two edits.
fn fast() -> Vec<Step> {
    let mut steps = checks();
    steps.push(tests(&["--lib", "--tests"]));
    steps.push(peer_tests::left_out());
    steps
}

fn everything() -> Result<Vec<Step>, String> {
    let workspace = Workspace::load()?;
    let target = workspace.target.clone();
    let mut steps = vec![Step::new("needed programs", move || {
        required_programs::ensure(required_programs::REQUIRED_PROGRAMS)?;
        peers::ensure(&target)
    })];
    steps.extend(checks());
    steps.extend([
        // Benchmarks are left out on purpose: `--all-targets` would run them.
        tests(&["--lib", "--bins", "--tests", "--examples"]),
        peer_tests::left_out(),
        Step::new("dist smoke", dist::smoke),
        Step::new("chaos smoke", chaos::smoke),
        // Tests see the facade with all its features; people add it with none.
        cargo_step("facade without features", &["check", "--package", FACADE]),
        Step::new("fresh crate", fresh_crate::check),
        Step::new("examples", || {
            let workspace = Workspace::load()?;
            run_examples(&workspace.root.join("crates/tollgate/examples"))
        }),
        cargo_step("doc tests", &["test", "--workspace", "--doc"]),
        Step::new("documentation", || {
            run_process(
                cargo()
                    .args(["doc", "--workspace", "--no-deps"])
                    .env("RUSTDOCFLAGS", "-D warnings"),
            )
        }),
    ]);
    if workspace.has(bench::PACKAGE) {
        steps.extend([
            Step::new("instruction counts", || {
                bench::instructions(bench::Mode::Check)
            }),
            Step::new("accuracy smoke", || {
                bench::accuracy(&["--smoke".to_owned()])
            }),
        ]);
    }
    Ok(steps)
}

/// Runs every example to its end: one that compiles and then fails teaches something wrong.
fn run_examples(folder: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", folder.display());
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        names.extend(path.file_stem().map(std::ffi::OsStr::to_owned));
    }
    if names.is_empty() {
        return Err(format!("there are no examples in {}", folder.display()));
    }
    names.sort();
    for name in names {
        println!("-- {}", name.display());
        let mut command = cargo();
        command.args(["run", "--quiet", "--package", FACADE, "--example"]);
        run_process(command.arg(name))?;
    }
    Ok(())
}

/// The checks that run nothing of ours. Those that only read files come first: they fail within seconds.
fn checks() -> Vec<Step> {
    vec![
        cargo_step("format", &["fmt", "--all", "--", "--check"]),
        Step::new("layers", layers::check_workspace),
        Step::new("conventions", conventions::check_workspace),
        Step::new("links", links::check_workspace),
        Step::new("quoted messages", quotes::check_workspace),
        Step::new("lock files", lock_files::check_workspace),
        cargo_step(
            "clippy",
            &[
                "clippy",
                "--workspace",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ],
        ),
    ]
}

/// The tests in these targets, but those beside real peers.
fn tests(targets: &'static [&'static str]) -> Step {
    Step::new("tests", move || {
        run_process(cargo().args(["test", "--workspace"]).args(targets).args([
            "--",
            "--skip",
            peer_tests::MODULE,
        ]))
    })
}

fn cargo_step(name: &'static str, args: &'static [&'static str]) -> Step {
    Step::new(name, move || run_process(cargo().args(args)))
}
