//! The errors of building a service and of replacing its policy.
//!
//! Must not know: how the errors are found.

use std::fmt;

use tollgate_engine::LimitIdsExhausted;
use tollgate_policy::source::{Diagnostic, Diagnostics};
use tollgate_store::InvalidSize;

/// Why a service cannot be built, or a policy cannot take effect.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidService {
    /// The policy is invalid.
    Policy(Vec<Diagnostic>),
    /// Policy files cannot be read or are invalid: the problems of each file.
    Files(Vec<Diagnostics>),
    /// The store cannot have that many keys.
    Size(InvalidSize),
    /// There are more limits than limit ids.
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
