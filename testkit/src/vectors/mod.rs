//! Test vectors: quotas, traces and expected answers as data files, and the runner that every store must pass.
//!
//! The format is described in `testdata/vectors/README.md`. The expected answers there were worked out from the
//! specification, not taken from the code, so that code and files can disagree.
//!
//! ```no_run
//! use tollgate_testkit::vectors::{CoreSubject, Suite, run};
//!
//! let suite = Suite::load("testdata/vectors/token_bucket.yaml".as_ref(), 10)?;
//! run(&suite, &mut CoreSubject::default())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Must not know: how any subject decides.

mod model;
mod op;
mod parse;
mod plan;
mod quota;
mod run;
mod store_subject;
mod subject;

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

pub use parse::LedgerStep;
pub use run::{Mismatch, run};
pub use store_subject::{Batches, VectorBatch};
pub use subject::{CoreSubject, Subject, SubjectDecision, SubjectRequest, SubjectReservation};

/// The cases of one file, checked and ready to run.
#[derive(Debug)]
pub struct Suite {
    file: String,
    cases: Vec<plan::PlannedCase>,
}

/// A vector file that cannot be used. The text names the file, and the line and the field where there is one.
#[derive(Debug)]
pub struct InvalidVectorFile(String);

impl fmt::Display for InvalidVectorFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidVectorFile {}

impl Suite {
    /// Loads a file and asks for at least so many cases, so that a file cannot quietly become empty.
    ///
    /// # Errors
    /// The file cannot be read, says something unknown or impossible, or has too few cases.
    pub fn load(path: &Path, at_least: usize) -> Result<Self, InvalidVectorFile> {
        let file = path
            .file_name()
            .unwrap_or(path.as_os_str())
            .to_string_lossy();
        let text = std::fs::read_to_string(path)
            .map_err(|error| InvalidVectorFile(format!("{}: {error}", path.display())))?;
        Self::parse(&file, &text, at_least)
    }

    /// Reads the text of a file of this name.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn parse(file: &str, text: &str, at_least: usize) -> Result<Self, InvalidVectorFile> {
        let read: model::VectorFile = serde_saphyr::from_str(text).map_err(|error| {
            let line = error.location().map_or(1, |location| location.line());
            InvalidVectorFile(format!("{file}:{line}: {}", error.without_snippet()))
        })?;
        let mut names = BTreeSet::new();
        let mut cases = Vec::with_capacity(read.cases.len());
        for written in read.cases {
            let name = written.value.name.clone();
            let case = plan::case(written).map_err(|problem| {
                InvalidVectorFile(format!("{file}:{}: {name}: {}", problem.line, problem.text))
            })?;
            if !names.insert(name) {
                let (line, name) = (case.line, case.name);
                return Err(InvalidVectorFile(format!(
                    "{file}:{line}: name: `{name}` is taken"
                )));
            }
            cases.push(case);
        }
        if cases.len() < at_least {
            let found = cases.len();
            return Err(InvalidVectorFile(format!(
                "{file}: cases: {found} found, at least {at_least} expected"
            )));
        }
        Ok(Self {
            file: file.to_owned(),
            cases,
        })
    }

    /// How many cases there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.cases.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cases.is_empty()
    }
}

#[cfg(test)]
mod tests;
