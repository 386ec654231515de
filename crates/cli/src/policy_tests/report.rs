//! Prints test results as text or JSON.
//!
//! Must not know: how tests are run.

use serde::Serialize;
use tollgate_policy::humanize::format_number;
use tollgate_policy::source::{Diagnostic, Diagnostics};

use super::compare::ExpectationFailure;
use super::run::TestResult;
use crate::json;

/// The result of one test file.
#[derive(Debug)]
pub(super) struct TestFileResult {
    pub(super) file: String,
    pub(super) text: String,
    /// The results of its tests, or the problems of the file.
    pub(super) result: Result<Vec<TestResult>, Vec<Diagnostics>>,
}

const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[1;31m";
const PLAIN: &str = "\x1b[0m";

/// How many tests passed and failed. An invalid file counts as one failure.
pub(super) fn counts(files: &[TestFileResult]) -> (usize, usize) {
    let mut counts = (0, 0);
    for file in files {
        match &file.result {
            Ok(tests) => {
                let failed = tests
                    .iter()
                    .filter(|test| !test.failures.is_empty())
                    .count();
                counts.0 += tests.len() - failed;
                counts.1 += failed;
            }
            Err(_) => counts.1 += 1,
        }
    }
    counts
}

/// Renders the tests of one file, one line each, with the locations of failures.
pub(super) fn render(file: &TestFileResult, colour: bool) -> String {
    let paint = |style: &str, text: &str| match colour {
        true => format!("{style}{text}{PLAIN}"),
        false => text.to_owned(),
    };
    let mut out = format!("{}\n", file.file);
    match &file.result {
        Err(problems) => {
            for file in problems {
                out += &file.render(colour);
            }
        }
        Ok(tests) => {
            for test in tests {
                if test.failures.is_empty() {
                    out += &format!("  {}    {}\n", paint(GREEN, "ok"), test.name);
                    continue;
                }
                out += &format!("  {}  {}\n", paint(RED, "FAIL"), test.name);
                let list = test
                    .failures
                    .iter()
                    .map(|(_, failure)| to_diagnostic(failure));
                out += &Diagnostics::new(&file.file, &file.text, list.collect()).render(colour);
            }
        }
    }
    out
}

/// Renders the last line.
pub(super) fn summary((passed, failed): (usize, usize)) -> String {
    let passed = format_number(passed as u64);
    match failed {
        0 => format!("{passed} passed\n"),
        failed => format!("{passed} passed, {} failed\n", format_number(failed as u64)),
    }
}

fn to_diagnostic(failure: &ExpectationFailure) -> Diagnostic {
    let ExpectationFailure {
        place,
        what,
        expected,
        found,
        note,
    } = failure;
    let message = format!("{what}: expected {expected}, found {found}");
    match note {
        Some(note) => Diagnostic::new(*place, message, note.clone()),
        None => Diagnostic::without_help(*place, message),
    }
}

/// The JSON output.
#[derive(Serialize)]
pub(super) struct TestReport<'a> {
    ok: bool,
    passed: usize,
    failed: usize,
    files: Vec<TestFileReport<'a>>,
}

#[derive(Serialize)]
struct TestFileReport<'a> {
    file: &'a str,
    tests: Vec<SingleTestReport<'a>>,
    #[serde(flatten)]
    wrong: json::ProblemReport,
}

#[derive(Serialize)]
struct SingleTestReport<'a> {
    name: &'a str,
    line: u32,
    ok: bool,
    failures: Vec<FailureReport<'a>>,
}

#[derive(Serialize)]
struct FailureReport<'a> {
    step: usize,
    line: u32,
    column: u32,
    what: &'a str,
    expected: &'a str,
    found: &'a str,
    note: Option<&'a str>,
}

/// Builds the JSON output for all files.
pub(super) fn test_report(files: &[TestFileResult]) -> TestReport<'_> {
    let (passed, failed) = counts(files);
    TestReport {
        ok: failed == 0,
        passed,
        failed,
        files: files.iter().map(file_answer).collect(),
    }
}

fn file_answer(file: &TestFileResult) -> TestFileReport<'_> {
    let tests = file.result.as_ref().map_or(&[][..], Vec::as_slice);
    let problems = file.result.as_ref().err();
    TestFileReport {
        file: &file.file,
        tests: tests.iter().map(test_answer).collect(),
        wrong: json::problem_report(problems.into_iter().flatten()),
    }
}

fn test_answer(test: &TestResult) -> SingleTestReport<'_> {
    let failures = test.failures.iter().map(|(step, failure)| FailureReport {
        step: *step,
        line: failure.place.line,
        column: failure.place.column,
        what: &failure.what,
        expected: &failure.expected,
        found: &failure.found,
        note: failure.note.as_deref(),
    });
    SingleTestReport {
        name: &test.name,
        line: test.line,
        ok: test.failures.is_empty(),
        failures: failures.collect(),
    }
}
