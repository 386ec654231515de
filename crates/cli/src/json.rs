//! JSON output: one object on stdout, for success and failure.
//!
//! Must not know: what is reported.

use serde::Serialize;
use tollgate_policy::source::Diagnostics;

use crate::output::{CommandError, print};

/// The problems of all files.
#[derive(Debug, Serialize)]
pub(crate) struct ProblemReport {
    pub(crate) problems: Vec<ReportedProblem>,
    /// How many further problems are not listed.
    more: usize,
}

/// One problem.
#[derive(Debug, Serialize)]
pub(crate) struct ReportedProblem {
    file: String,
    line: Option<u32>,
    column: Option<u32>,
    width: Option<u32>,
    message: String,
    help: Option<String>,
}

/// The problems of several files.
pub(crate) fn problem_report<'a>(
    files: impl IntoIterator<Item = &'a Diagnostics>,
) -> ProblemReport {
    let mut all = ProblemReport {
        problems: Vec::new(),
        more: 0,
    };
    for file in files {
        all.more = all.more.saturating_add(file.more);
        all.problems.extend(file.list.iter().map(|problem| {
            // A problem of a whole file has no line.
            let if_located = |number| (problem.location.line > 0).then_some(number);
            ReportedProblem {
                file: file.file.to_string(),
                line: if_located(problem.location.line),
                column: if_located(problem.location.column),
                width: if_located(problem.location.width),
                message: problem.message.to_string(),
                help: problem.help.as_deref().map(str::to_owned),
            }
        }));
    }
    all
}

/// Prints one JSON object.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), CommandError> {
    let mut text =
        serde_json::to_string_pretty(value).map_err(|error| CommandError::Other(error.into()))?;
    text.push('\n');
    print(&text)
}
