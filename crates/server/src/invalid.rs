//! Why an app cannot be made, in words that say what to change.
//!
//! Must not know: how it was found out.

use std::fmt;

use tollgate_engine::OutOfNumbers;
use tollgate_policy::envoy::FilesRefused;
use tollgate_policy::source::{Problem, Problems};
use tollgate_store::InvalidSize;

/// Why an app cannot be made, or a policy not be put in force.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidApp {
    /// The policy cannot be honoured.
    Policy(Vec<Problem>),
    /// The policy's file cannot be read, or is wrong.
    File(Problems),
    /// Files of envoyproxy/ratelimit cannot be read, or are wrong.
    Files(FilesRefused),
    /// There cannot be so many keys.
    Size(InvalidSize),
    /// There are more states than numbers for them.
    Numbers(OutOfNumbers),
}

impl fmt::Display for InvalidApp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(problems) => {
                for (index, problem) in problems.iter().enumerate() {
                    let line = problem.place.line;
                    let separator = if index == 0 { "" } else { "; " };
                    write!(f, "{separator}line {line}: {}", problem.message)?;
                }
                Ok(())
            }
            Self::File(problems) => problems.fmt(f),
            Self::Files(refused) => refused.fmt(f),
            Self::Size(error) => error.fmt(f),
            Self::Numbers(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for InvalidApp {}
