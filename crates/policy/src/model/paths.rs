//! How the servers behind read paths and repeated values, as far as a policy says it.
//!
//! Must not know: how paths are read.

use crate::attributes::Attribute;
use crate::source::Located;

/// How the servers behind read paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PathSettings {
    /// Whether `/API` is `/api`.
    pub case: PathCase,
    /// Whether `/api;v=1` is `/api`.
    pub parameters: PathParameters,
}

/// Whether servers tell upper-case from lower-case letters in paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PathCase {
    /// Some do: limits apply either way, and keys keep the case.
    #[default]
    Any,
    /// All do.
    Sensitive,
    /// None does; keys are in lower case.
    Insensitive,
}

/// What servers do with `;parameters` in paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PathParameters {
    /// Some remove them: limits apply either way, and keys are without them.
    #[default]
    Any,
    /// All read them as part of the segment.
    Keep,
    /// All remove them.
    Strip,
}

/// Which value counts if a client sends a header, a cookie or a query parameter more than once, with different values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DuplicateRule {
    /// The first one.
    First,
    /// The last one.
    Last,
    /// All of them, in one value.
    Joined,
    /// None: the request is refused.
    #[default]
    Refused,
}

/// The rule for one attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuplicateSetting {
    /// A header, a cookie or a query parameter.
    pub attribute: Located<Attribute>,
    /// Which value counts.
    pub rule: DuplicateRule,
}
