//! The cost of a request, and which requests are counted.
//!
//! Must not know: how costs are charged.

use crate::attributes::Attribute;

/// The cost of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// A constant.
    Fixed(u64),
    /// By the value of an attribute, such as points by method. All other values cost `otherwise`.
    ByValue {
        /// The attribute.
        attribute: Attribute,
        /// Exact values and their cost.
        values: Vec<(Box<str>, u64)>,
        /// The cost of any other value, or if the attribute is absent.
        otherwise: u64,
    },
    /// The number in an attribute, within bounds. If the attribute is absent or not a number, the cost is `otherwise`.
    Attribute {
        /// The attribute.
        attribute: Attribute,
        /// The minimum.
        at_least: u64,
        /// The maximum.
        at_most: u64,
        /// The cost if there is no number.
        otherwise: u64,
    },
    /// The number in a response header. The estimate is charged until the response arrives.
    Response {
        /// The header name, lower-case.
        header: Box<str>,
        /// The cost charged when the request arrives.
        estimate: u64,
        /// The maximum.
        at_most: u64,
    },
    /// The bytes of the response's body. The estimate is charged until the body has ended.
    ResponseBody {
        /// The cost charged when the request arrives.
        estimate: u64,
        /// The maximum.
        at_most: u64,
    },
}

impl Cost {
    /// Whether only the response has the actual cost.
    #[must_use]
    pub const fn is_from_response(&self) -> bool {
        matches!(self, Self::Response { .. } | Self::ResponseBody { .. })
    }
}

impl Default for Cost {
    fn default() -> Self {
        Self::Fixed(1)
    }
}

/// What is counted.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Count {
    /// Every admitted request.
    #[default]
    Requests,
    /// Only requests whose response has one of these statuses. The request is only checked; its response is charged.
    Responses(Vec<StatusClass>),
    /// Only requests that any limit of this policy denied.
    Denials,
}

/// A status code, or a class of status codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatusClass {
    /// A code such as `404`.
    Code(u16),
    /// A class by its first digit: `4xx` is 4.
    Class(u8),
}

impl StatusClass {
    /// Whether a status code matches.
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
