//! Problem details (RFC 9457) of refusals and errors.
//!
//! Must not know: stack traces, internal addresses, anything that strangers must not see in `detail`.

use std::fmt;

use tollgate_core::Outcome;

use crate::json::{push_str, push_string};
use crate::rate_limit_status::RateLimitStatus;
use crate::text::push_integer;

/// The media type of [`ProblemDetails::to_json`] and [`RateLimitStatus::write_problem`].
pub const CONTENT_TYPE: &str = "application/problem+json";

/// Why a request is refused: the problem types that the RateLimit draft registers (section 5), and our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum ProblemType {
    /// The caller has exhausted its quota.
    #[default]
    QuotaExceeded,
    /// The service has reduced capacity, whatever this caller has used.
    ReducedCapacity,
    /// The caller is blocked because of abnormal usage.
    AbnormalUsage,
    /// The service is overloaded and sheds requests, whatever this caller has used.
    Overloaded,
}

impl ProblemType {
    /// The value of `type`.
    #[must_use]
    pub const fn type_uri(self) -> &'static str {
        match self {
            Self::QuotaExceeded => "https://iana.org/assignments/http-problem-types#quota-exceeded",
            Self::ReducedCapacity => {
                "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
            }
            Self::AbnormalUsage => {
                "https://iana.org/assignments/http-problem-types#abnormal-usage-detected"
            }
            Self::Overloaded => {
                "https://github.com/tollgate-rs/tollgate/blob/main/docs/headers.md#overloaded"
            }
        }
    }

    /// The value of `title`, constant for a type.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::QuotaExceeded => "Quota Exceeded",
            Self::ReducedCapacity => "Temporary Reduced Capacity",
            Self::AbnormalUsage => "Abnormal Usage Detected",
            Self::Overloaded => "Overloaded",
        }
    }

    /// The default status code.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::QuotaExceeded | Self::AbnormalUsage => 429,
            Self::ReducedCapacity | Self::Overloaded => 503,
        }
    }
}

impl RateLimitStatus<'_> {
    /// Appends the body of a refusal to `out`, as JSON. `status` is the code of the response.
    ///
    /// `detail` is the binding limit's message if it has one. `violated-policies` lists every limit that denies.
    pub fn write_problem(&self, cause: ProblemType, status: u16, out: &mut Vec<u8>) {
        let binding = self.binding();
        if let Some(message) = binding.and_then(|item| item.policy.message()) {
            return self.write_problem_with_detail(cause, status, message, out);
        }
        match binding {
            Some(item) => {
                let detail = DenialDetail {
                    name: item.policy.quoted_name(),
                    never: self.outcome() == Outcome::Never,
                    wait: self.retry_after_ms(),
                    cost: item.cost,
                    limit: item.quota,
                };
                self.write_problem_with_detail(cause, status, detail, out);
            }
            None => self.write_problem_with_detail(cause, status, "the request is refused", out),
        }
    }

    /// The same with another `detail`, which strangers will see.
    pub fn write_problem_with_detail(
        &self,
        cause: ProblemType,
        status: u16,
        detail: impl fmt::Display,
        out: &mut Vec<u8>,
    ) {
        let members = ProblemMembers {
            r#type: cause.type_uri(),
            title: cause.title(),
            status,
            retry_after_ms: self.retry_after_ms(),
        };
        let refusing = self.items().iter().filter(|one| one.is_denied());
        members.write(out, detail, refusing.map(|one| one.policy.name()));
    }
}

/// Problem details of an error that is not a limit's denial.
///
/// ```
/// use tollgate_http::ProblemDetails;
///
/// let problem = ProblemDetails::new(404, "Not Found", "there is nothing at /nowhere");
/// assert_eq!(
///     problem.to_json(),
///     r#"{"type":"about:blank","title":"Not Found","status":404,"detail":"there is nothing at /nowhere"}"#,
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProblemDetails {
    members: ProblemMembers,
    detail: String,
    violated: Option<String>,
}

impl ProblemDetails {
    /// Problem details without a type of their own. `title` is the status code's phrase.
    #[must_use]
    pub fn new(status: u16, title: &'static str, detail: impl Into<String>) -> Self {
        Self {
            members: ProblemMembers {
                r#type: "about:blank",
                title,
                status,
                retry_after_ms: None,
            },
            detail: detail.into(),
            violated: None,
        }
    }

    /// The status code of the response.
    #[must_use]
    pub const fn status(&self) -> u16 {
        self.members.status
    }

    /// The explanation for people.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Adds a type, the violated policy and a wait, for a limit that blocks the caller or that could not be evaluated.
    #[must_use]
    pub fn with_violated_policy(
        mut self,
        cause: ProblemType,
        policy: Option<&str>,
        retry_after_ms: Option<u64>,
    ) -> Self {
        self.members.r#type = cause.type_uri();
        self.members.title = cause.title();
        self.members.retry_after_ms = retry_after_ms;
        self.violated = policy.map(str::to_owned);
        self
    }

    /// The body.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut out = Vec::new();
        self.write(&mut out);
        String::from_utf8(out).unwrap_or_default()
    }

    /// Appends the body to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let violated = self.violated.as_deref().into_iter();
        self.members.write(out, &self.detail, violated);
    }
}

/// The members other than `detail` and `violated-policies`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProblemMembers {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    retry_after_ms: Option<u64>,
}

impl ProblemMembers {
    fn write<'n>(
        &self,
        out: &mut Vec<u8>,
        detail: impl fmt::Display,
        violated: impl Iterator<Item = &'n str>,
    ) {
        out.extend_from_slice(b"{\"type\":\"");
        // All types are constants without characters to escape.
        out.extend_from_slice(self.r#type.as_bytes());
        out.extend_from_slice(b"\",\"title\":");
        push_str(out, self.title);
        out.extend_from_slice(b",\"status\":");
        push_integer(out, self.status.into());
        out.extend_from_slice(b",\"detail\":");
        push_string(out, detail);
        let mut separator: &[u8] = b",\"violated-policies\":[";
        let mut any = false;
        for name in violated {
            out.extend_from_slice(separator);
            push_str(out, name);
            separator = b",";
            any = true;
        }
        if any {
            out.push(b']');
        }
        if let Some(millis) = self.retry_after_ms {
            out.extend_from_slice(b",\"retry-after-ms\":");
            push_integer(out, millis);
        }
        out.push(b'}');
    }
}

/// The default `detail` of a denial.
struct DenialDetail<'a> {
    /// The name in quotes.
    name: &'a str,
    never: bool,
    wait: Option<u64>,
    cost: Option<u64>,
    limit: u64,
}

impl fmt::Display for DenialDetail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, limit, .. } = *self;
        if self.never {
            return match self.cost {
                Some(cost) if cost > limit => write!(
                    f,
                    "a cost of {cost} is above {limit}, the most that the limit {name} ever admits at once; \
                     waiting does not help"
                ),
                _ => write!(
                    f,
                    "the limit {name} never admits this; waiting does not help"
                ),
            };
        }
        write!(f, "the limit {name} has no room")?;
        if let Some(cost) = self.cost {
            write!(f, " for a cost of {cost}")?;
        }
        f.write_str(" now")?;
        match self.wait {
            Some(ms) => write!(f, "; retry after {ms} ms"),
            None => Ok(()),
        }
    }
}
