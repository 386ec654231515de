//! Errors of operator requests. A request that fails changes nothing.
//!
//! Must not know: how requests are carried out.

use std::fmt;

use tollgate_policy::grammar::{GrammarError, quote};

/// Why an operator's request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperatorError {
    /// The policy has no such limit.
    UnknownLimit {
        /// The name in the request.
        name: Box<str>,
        /// The most similar name, if one is close.
        nearest: Option<Box<str>>,
    },
    /// The values do not form a key of the limit.
    BadKey {
        /// The limit.
        limit: Box<str>,
        /// The number of values in the request.
        value_count: usize,
        /// The attributes of the limit's keys, for each level.
        parts: Vec<Vec<String>>,
    },
    /// A field has an invalid value.
    InvalidField {
        /// The name of the field.
        field: &'static str,
        /// What is wrong, and what would be valid.
        error: GrammarError,
    },
    /// The limit cannot count this quota.
    InvalidQuota {
        /// The limit.
        limit: Box<str>,
        /// The reason.
        reason: String,
    },
    /// The limit has no units that an operator can charge or refund.
    NotAdjustable {
        /// The limit.
        limit: Box<str>,
        /// The reason.
        reason: &'static str,
    },
    /// The limit's quota depends on attributes that are not given.
    MissingAttributes {
        /// The limit.
        limit: Box<str>,
    },
    /// The maximum number already exists.
    TooMany {
        /// The plural name of the items.
        kind: &'static str,
        /// The maximum.
        max: usize,
    },
    /// A field is too long.
    TooLong {
        /// The name of the field.
        field: &'static str,
        /// The most bytes.
        max: usize,
    },
    /// There is nothing to remove.
    NotFound {
        /// The name of the missing item.
        kind: &'static str,
    },
    /// The operator's name or reason is empty, too long, or has control characters.
    MissingAttribution {
        /// The name of the field.
        field: &'static str,
        /// The most bytes.
        max: usize,
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
                value_count,
                parts,
            } => {
                let parts: Vec<String> = parts.iter().map(|parts| parts.join(", ")).collect();
                let parts = match parts.join(" | ") {
                    empty if empty.is_empty() => "no values: it has no key".to_owned(),
                    parts => format!("one value for each of {parts}, addresses as 192.0.2.7"),
                };
                write!(
                    f,
                    "key: {value_count} values name no key of `{limit}`: give {parts}"
                )
            }
            Self::InvalidField { field, error } => {
                write!(f, "{field}: {}", error.message)?;
                match &error.help {
                    Some(help) => write!(f, "; {help}"),
                    None => Ok(()),
                }
            }
            Self::InvalidQuota { limit, reason } => {
                write!(f, "quota: limit `{limit}` cannot count it: {reason}")
            }
            Self::NotAdjustable { limit, reason } => write!(
                f,
                "limit: units of `{limit}` cannot be charged or refunded: {reason}"
            ),
            Self::MissingAttributes { limit } => write!(
                f,
                "attributes: the quota of `{limit}` depends on the request: give the attributes that select it, or {{}} for the limit's own quota"
            ),
            Self::TooMany { kind, max } => {
                write!(
                    f,
                    "there are {max} {kind} already, which is the maximum; remove some first"
                )
            }
            Self::TooLong { field, max } => write!(f, "{field}: at most {max} bytes"),
            Self::NotFound { kind } => write!(f, "there is no such {kind}"),
            Self::MissingAttribution { field, max } => {
                write!(f, "{field}: required, on one line of at most {max} bytes")
            }
        }
    }
}

impl std::error::Error for OperatorError {}
