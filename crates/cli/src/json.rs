//! Answers for programs: one JSON object on stdout, whatever the answer is.
//!
//! Must not know: what is answered.

use serde::Serialize;
use tollgate_policy::source::Diagnostics;

use crate::output::{CommandError, print};

/// Everything that is wrong, of all files together.
#[derive(Debug, Serialize)]
pub(crate) struct ProblemReport {
    problems: Vec<ReportedProblem>,
    /// How many more there are than are told.
    more: usize,
}

/// One problem.
#[derive(Debug, Serialize)]
struct ReportedProblem {
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
            // A problem that stands nowhere has no line.
            let somewhere = |number| (problem.location.line > 0).then_some(number);
            ReportedProblem {
                file: file.file.to_string(),
                line: somewhere(problem.location.line),
                column: somewhere(problem.location.column),
                width: somewhere(problem.location.width),
                message: problem.message.to_string(),
                help: problem.help.as_deref().map(str::to_owned),
            }
        }));
    }
    all
}

/// Prints one answer.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), CommandError> {
    let mut text =
        serde_json::to_string_pretty(value).map_err(|error| CommandError::Other(error.into()))?;
    text.push('\n');
    print(&text)
}
