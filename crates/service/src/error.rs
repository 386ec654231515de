//! Why a service cannot be made, or a policy cannot be put in force.
//!
//! Must not know: how it was found out.

use std::fmt;

use tollgate_engine::LimitIdsExhausted;
use tollgate_policy::source::{Diagnostic, Diagnostics};
use tollgate_store::InvalidSize;

/// Why a service cannot be made, or a policy cannot be put in force.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidService {
    /// The policy cannot be honoured.
    Policy(Vec<Diagnostic>),
    /// Policy files cannot be read or are wrong: the problems of each file.
    Files(Vec<Diagnostics>),
    /// There cannot be so many keys.
    Size(InvalidSize),
    /// There are more states than numbers for them.
    Numbers(LimitIdsExhausted),
}

impl fmt::Display for InvalidService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(problems) => {
                for (index, problem) in problems.iter().enumerate() {
                    let line = problem.location.line;
                    let separator = if index == 0 { "" } else { "; " };
                    write!(f, "{separator}line {line}: {}", problem.message)?;
                }
                Ok(())
            }
            Self::Files(files) => files.iter().try_for_each(|problems| problems.fmt(f)),
            Self::Size(error) => error.fmt(f),
            Self::Numbers(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for InvalidService {}
