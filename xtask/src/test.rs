//! `cargo xtask test`: the one command that says whether the repository is in order, here and in CI.
//!
//! Lists the steps; how to run and report them is `steps.rs`. Installs distribution packages where a test needs a
//! program, never a cargo tool: plain cargo must be enough.

use std::time::Duration;

use crate::process::{cargo, run as run_process};
use crate::steps::{self, Step};
use crate::workspace::Workspace;
use crate::{bench, house, layers, needs, peers};

/// Longer than this and people stop running it.
const LIMIT: Duration = Duration::from_secs(25 * 60);

/// The command `test`.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let steps = match args {
        [] => everything()?,
        [flag] if flag == "--fast" => fast(),
        [word, ..] => return Err(format!("`test` knows only --fast, but was given `{word}`")),
    };
    #[expect(
        clippy::disallowed_types,
        reason = "times the developer's own wait; no product code runs on it"
    )]
    let began = std::time::Instant::now();
    steps::run_all(steps, LIMIT, || began.elapsed())
}

/// What to run between two edits.
fn fast() -> Vec<Step> {
    let mut steps = checks();
    steps.push(cargo_step(
        "tests",
        &["test", "--workspace", "--lib", "--tests"],
    ));
    steps
}

fn everything() -> Result<Vec<Step>, String> {
    let workspace = Workspace::load()?;
    let target = workspace.target.clone();
    let mut steps = vec![Step::new("needed programs", move || {
        needs::ensure(needs::NEEDS)?;
        peers::ensure(&target)
    })];
    steps.extend(checks());
    steps.extend([
        // Benchmarks are left out on purpose: `--all-targets` would run them.
        cargo_step(
            "tests",
            &[
                "test",
                "--workspace",
                "--lib",
                "--bins",
                "--tests",
                "--examples",
            ],
        ),
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

/// The checks that run nothing of ours.
fn checks() -> Vec<Step> {
    vec![
        cargo_step("format", &["fmt", "--all", "--", "--check"]),
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
        Step::new("layers", layers::check_workspace),
        Step::new("house", house::check_workspace),
    ]
}

fn cargo_step(name: &'static str, args: &'static [&'static str]) -> Step {
    Step::new(name, move || run_process(cargo().args(args)))
}
