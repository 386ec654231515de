//! `tollgate test`: runs policy tests on the real engine over the memory store, with a manual clock.
//!
//! `read` parses a test file into the `model`, `tested_policy` loads its policy, `run` runs the steps, `compare` checks the
//! expectations, and `report` prints the results. Must not know: how requests are decided.

mod compare;
mod envoy;
mod expect;
mod model;
mod native;
mod read;
mod report;
mod request_template;
mod run;
mod start_time;
mod target;
mod tested_policy;

use std::path::{Path, PathBuf};

use tollgate_policy::source::{Diagnostics, parse};

use crate::input::{self, FileKind, InputOptions, SourceFile};
use crate::json;
use crate::output::{Color, CommandError, print};
use model::TestFile;
use report::TestFileResult;
use run::TestResult;
use tested_policy::{TestedPolicy, TestedPolicyError};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Test files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Run only tests whose names contain this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs tests. Returns whether all of them passed.
pub(crate) fn test(options: &Options, color: Color) -> Result<bool, CommandError> {
    let only = options.only.as_deref().unwrap_or_default();
    let colour = color.is_enabled_on_stdout();
    let mut files = Vec::with_capacity(options.files.len());
    for path in &options.files {
        let file = run_file(path, only);
        if !options.json {
            print(&report::render(&file, colour))?;
        }
        files.push(file);
    }
    let (passed, failed) = report::counts(&files);
    if passed + failed == 0 {
        return Err(CommandError::Usage(format!(
            "--only: no test name contains {only:?}"
        )));
    }
    if options.json {
        json::print_json(&report::test_report(&files))?;
    } else {
        print(&report::summary((passed, failed)))?;
    }
    Ok(failed == 0)
}

fn run_file(path: &Path, only: &str) -> TestFileResult {
    match input::read(path, InputOptions::DEFAULT) {
        Err(problems) => TestFileResult {
            file: problems.file.to_string(),
            text: String::new(),
            result: Err(vec![problems]),
        },
        Ok(source) => TestFileResult {
            result: run_source(path, &source, only),
            file: source.name,
            text: source.text,
        },
    }
}

/// Checks a test file and its policy without running the tests. Returns the number of tests.
pub(crate) fn check(path: &Path, source: &SourceFile) -> Result<usize, Vec<Diagnostics>> {
    load_tests(path, source).map(|(file, _)| file.tests.len())
}

fn run_source(
    path: &Path,
    source: &SourceFile,
    only: &str,
) -> Result<Vec<TestResult>, Vec<Diagnostics>> {
    let (file, policy) = load_tests(path, source)?;
    let chosen = file
        .tests
        .iter()
        .filter(|test| test.name.value.contains(only));
    Ok(chosen.map(|test| run::run(test, &policy)).collect())
}

/// Loads a test file and its policy, and checks both.
fn load_tests(
    path: &Path,
    source: &SourceFile,
) -> Result<(TestFile, TestedPolicy), Vec<Diagnostics>> {
    let wrong = |list| vec![Diagnostics::new(&source.name, &source.text, list)];
    let tree = parse(&source.text, source.format).map_err(wrong)?;
    if source.kind != FileKind::Tests {
        return Err(vec![input::file_problem(
            &source.name,
            "this is not a test file: it has no `tests`",
            "a test file has the fields `policy` and `tests`; to check a policy, run `tollgate check`",
        )]);
    }
    let file = read::read_tests(&tree).map_err(wrong)?;
    let policy = TestedPolicy::load(path, &file.policy).map_err(|error| match error {
        TestedPolicyError::Policy(problems) => problems,
        TestedPolicyError::Reference(problem) => wrong(vec![problem]),
    })?;
    let mut unsupported = run::unknown_names(&file.tests, &policy.names());
    unsupported.extend(policy.unsupported_fields(&file.tests));
    if !unsupported.is_empty() {
        return Err(wrong(unsupported));
    }
    Ok((file, policy))
}
