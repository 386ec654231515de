//! What a response says about limits, whichever dialect it is in.
//!
//! Must not know: how fields are written or read.

use tollgate_core::Nanos;

use crate::quota_policy::Scope;

/// What a response says about the limits of the server. [`ResponseReader`](crate::ResponseReader) reads it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RateLimitInfo {
    /// The limits, at most 32.
    pub limits: Vec<LimitInfo>,
    /// The wait that `Retry-After` or a variant of it demands.
    pub retry_after: Option<Nanos>,
    /// Discord's bucket: routes with the same bucket share their limits.
    pub bucket: Option<Box<str>>,
    /// GitHub's resource: requests for the same resource share their limits.
    pub resource: Option<Box<str>>,
    /// Discord's scope of the limit that denies.
    pub scope: Option<Scope>,
    /// Why the request was refused, if the response says so.
    pub reason: Option<RefusalReason>,
    /// Whether the server says that a retry can or cannot succeed.
    pub may_retry: Option<bool>,
    /// Whether a cache sent the response. Then it says nothing about the limits now, and `limits` is empty.
    pub is_cached: bool,
    /// The number of fields that were ignored because they are malformed or too long.
    pub malformed_fields: u32,
}

/// The status of one limit. A value that the response does not have is `None`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LimitInfo {
    /// The limit's name, if the dialect sends one.
    pub name: Option<Box<str>>,
    /// What is counted.
    pub unit: LimitUnit,
    /// The quota of a window.
    pub quota: Option<u64>,
    /// The window.
    pub window: Option<Nanos>,
    /// The quota that is available now.
    pub remaining: Option<u64>,
    /// The time until more quota is available.
    pub reset_after: Option<Nanos>,
    /// The cost of the request.
    pub cost: Option<u64>,
    /// The partition key, as base64.
    pub partition: Option<Box<str>>,
}

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum LimitUnit {
    /// Requests.
    #[default]
    Requests,
    /// Bytes of content.
    Bytes,
    /// Requests at the same time.
    ConcurrentRequests,
    /// Tokens of a language model, of prompt and answer together.
    Tokens,
    /// Tokens of the prompt.
    InputTokens,
    /// Tokens of the answer.
    OutputTokens,
    /// Something else.
    Other,
}

impl LimitUnit {
    /// The name of the unit, as [`from_name`](Self::from_name) reads it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Bytes => "content-bytes",
            Self::ConcurrentRequests => "concurrent-requests",
            Self::Tokens => "tokens",
            Self::InputTokens => "input-tokens",
            Self::OutputTokens => "output-tokens",
            Self::Other => "other",
        }
    }

    /// The unit of this name: of the parameter `qu`, or a suffix of a vendor's fields.
    #[must_use]
    pub fn from_name(name: &str) -> Self {
        match name {
            "requests" | "request" => Self::Requests,
            "content-bytes" | "bytes" => Self::Bytes,
            "concurrent-requests" => Self::ConcurrentRequests,
            "tokens" => Self::Tokens,
            "input-tokens" => Self::InputTokens,
            "output-tokens" => Self::OutputTokens,
            _ => Self::Other,
        }
    }
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalReason {
    /// Too many requests in a short time: wait and retry.
    Rate,
    /// A quota is used up, such as a month's or a prepaid budget: a retry soon cannot succeed.
    QuotaExhausted,
    /// The server has too little capacity, whatever this client sent.
    Overloaded,
    /// The client is blocked because of abnormal usage.
    Blocked,
}
