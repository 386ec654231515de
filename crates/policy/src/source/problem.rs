//! What is wrong with a file: where, what, and what would be right; shown with the line and a caret below it.
//!
//! Must not know: what fields mean.

use std::fmt;

use super::node::Place;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// What is wrong, naming the field and the value.
    pub message: Box<str>,
    /// What would be right.
    pub help: Option<Box<str>>,
}

impl Problem {
    /// What is wrong at a place, and what would be right.
    pub fn new(place: Place, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            place,
            message: message.into().into(),
            help: Some(help.into().into()),
        }
    }

    /// What is wrong at a place, where there is nothing to advise.
    pub fn bare(place: Place, message: impl Into<String>) -> Self {
        Self {
            place,
            message: message.into().into(),
            help: None,
        }
    }
}

/// Everything that is wrong with a file, in the order of its lines; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    /// What the file is called in messages.
    pub file: Box<str>,
    /// What is wrong.
    pub list: Vec<Problem>,
    /// The lines that problems point at, by number, so that they can be shown.
    pub(crate) lines: Vec<(u32, Box<str>)>,
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.list {
            let Place { line, column, .. } = problem.place;
            writeln!(f, "{}:{line}:{column}: {}", self.file, problem.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
