//! Answers for programs: one JSON object on stdout, whatever the answer is.
//!
//! Must not know: what is answered.

use serde::Serialize;
use tollgate_policy::source::Problems;

use crate::output::{Failure, print};

/// Everything that is wrong, of all files together.
#[derive(Debug, Serialize)]
pub(crate) struct Wrong {
    problems: Vec<Told>,
    /// How many more there are than are told.
    more: usize,
}

/// One problem.
#[derive(Debug, Serialize)]
struct Told {
    file: String,
    line: Option<u32>,
    column: Option<u32>,
    width: Option<u32>,
    message: String,
    help: Option<String>,
}

/// The problems of several files.
pub(crate) fn wrong<'a>(files: impl IntoIterator<Item = &'a Problems>) -> Wrong {
    let mut all = Wrong {
        problems: Vec::new(),
        more: 0,
    };
    for file in files {
        all.more = all.more.saturating_add(file.more);
        all.problems.extend(file.list.iter().map(|problem| {
            // A problem that stands nowhere has no line.
            let somewhere = |number| (problem.place.line > 0).then_some(number);
            Told {
                file: file.file.to_string(),
                line: somewhere(problem.place.line),
                column: somewhere(problem.place.column),
                width: somewhere(problem.place.width),
                message: problem.message.to_string(),
                help: problem.help.as_deref().map(str::to_owned),
            }
        }));
    }
    all
}

/// Prints one answer.
pub(crate) fn answer(value: &impl Serialize) -> Result<(), Failure> {
    let mut text =
        serde_json::to_string_pretty(value).map_err(|error| Failure::Other(error.into()))?;
    text.push('\n');
    print(&text)
}
