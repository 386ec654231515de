//! What a request costs, and which requests are counted at all.
//!
//! Must not know: how costs are charged.

use crate::attributes::Attribute;

/// What one request costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Always this much.
    Fixed(u64),
    /// By the value of an attribute (points by method); `otherwise` where no value fits.
    ByValue {
        /// Whose value.
        attribute: Attribute,
        /// Exact values and their cost.
        values: Vec<(Box<str>, u64)>,
        /// The cost of any other value, or of none.
        otherwise: u64,
    },
    /// The number that an attribute says, within bounds. What is not a number costs `otherwise`.
    Attribute {
        /// Whose value.
        attribute: Attribute,
        /// Never less than this.
        at_least: u64,
        /// Never more than this.
        at_most: u64,
        /// Where there is no number.
        otherwise: u64,
    },
    /// What the response says, in a header; until then the estimate is charged.
    Response {
        /// The header, lower-case.
        header: Box<str>,
        /// Charged when the request arrives.
        estimate: u64,
        /// Never more than this.
        at_most: u64,
    },
}

impl Default for Cost {
    fn default() -> Self {
        Self::Fixed(1)
    }
}

/// What is counted.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Count {
    /// Every request that is admitted.
    #[default]
    Requests,
    /// Only requests whose response has one of these statuses; a request is only looked at, its response is charged.
    Responses(Vec<StatusClass>),
    /// Only requests that any limit of this policy denied.
    Denials,
}

/// One status, or a hundred of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatusClass {
    /// `404`
    Code(u16),
    /// `4xx` is 4.
    Class(u8),
}

impl StatusClass {
    /// Whether a response's status is meant.
    #[must_use]
    pub const fn matches(self, status: u16) -> bool {
        match self {
            Self::Code(one) => one == status,
            Self::Class(first) => status / 100 == first as u16,
        }
    }
}

impl std::fmt::Display for StatusClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(status) => write!(f, "{status}"),
            Self::Class(first) => write!(f, "{first}xx"),
        }
    }
}
