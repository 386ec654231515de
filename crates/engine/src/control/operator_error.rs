//! Why an operator's request makes no sense. Nothing has changed then.
//!
//! Must not know: how requests are carried out.

use std::fmt;

use tollgate_policy::grammar::{GrammarError, quote};

use super::Attribution;

const MAX_WHO_BYTES: usize = 128;
const MAX_WHY_BYTES: usize = 512;

/// Why an operator's request was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperatorError {
    /// The policy has no such limit.
    UnknownLimit {
        /// As it was asked for.
        name: Box<str>,
        /// The one that was probably meant.
        nearest: Option<Box<str>>,
    },
    /// These values are no key of the limit.
    BadKey {
        /// The limit.
        limit: Box<str>,
        /// How many values were given.
        value_count: usize,
        /// What its keys are made of, level by level.
        parts: Vec<Vec<String>>,
    },
    /// A text is not what it should be.
    InvalidField {
        /// Which one.
        field: &'static str,
        /// Why not, and what would be right.
        wrong: GrammarError,
    },
    /// A quota cannot be given to keys of this limit.
    InvalidQuota {
        /// The limit.
        limit: Box<str>,
        /// Why not.
        why: String,
    },
    /// There are as many as may be kept.
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        most: usize,
    },
    /// A text is longer than any that makes sense.
    TooLong {
        /// Which one.
        field: &'static str,
        /// How many bytes it may have.
        most: usize,
    },
    /// There is nothing to take back.
    NotFound {
        /// What there is none of.
        what: &'static str,
    },
    /// It does not say who or why, or not on one line, or at too great a length.
    MissingAttribution {
        /// Which of the two.
        field: &'static str,
        /// How many bytes it may have.
        most: usize,
    },
}

impl fmt::Display for OperatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownLimit { name, nearest } => {
                write!(f, "there is no limit {}", quote(name))?;
                match nearest {
                    Some(nearest) => write!(f, "; did you mean `{nearest}`?"),
                    None => Ok(()),
                }
            }
            Self::BadKey {
                limit,
                value_count: given,
                parts,
            } => {
                let parts: Vec<String> = parts.iter().map(|parts| parts.join(", ")).collect();
                let parts = match parts.join(" | ") {
                    empty if empty.is_empty() => "no values: everyone shares it".to_owned(),
                    parts => format!("one value for each of {parts}, addresses as 192.0.2.7"),
                };
                write!(
                    f,
                    "key: {given} values name no key of `{limit}`: give {parts}"
                )
            }
            Self::InvalidField { field, wrong } => {
                write!(f, "{field}: {}", wrong.message)?;
                match &wrong.help {
                    Some(help) => write!(f, "; {help}"),
                    None => Ok(()),
                }
            }
            Self::InvalidQuota { limit, why } => {
                write!(f, "quota: a key of `{limit}` cannot have it: {why}")
            }
            Self::TooMany { what, most } => {
                write!(
                    f,
                    "there are {most} {what} already, which is the most; lift some first"
                )
            }
            Self::TooLong { field, most } => write!(f, "{field}: at most {most} bytes"),
            Self::NotFound { what } => write!(f, "there is no such {what}"),
            Self::MissingAttribution { field, most } => {
                write!(f, "{field}: say it, on one line of at most {most} bytes")
            }
        }
    }
}

impl std::error::Error for OperatorError {}

/// Nothing is done without saying who does it and why.
pub(super) fn check_attribution(by: Attribution<'_>) -> Result<(), OperatorError> {
    for (field, text, most) in [
        ("who", by.who, MAX_WHO_BYTES),
        ("why", by.why, MAX_WHY_BYTES),
    ] {
        // A line of the log is one event, so nobody may begin another.
        if text.trim().is_empty() || text.len() > most || text.chars().any(char::is_control) {
            return Err(OperatorError::MissingAttribution { field, most });
        }
    }
    Ok(())
}
