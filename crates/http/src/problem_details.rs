//! Problem details (RFC 9457): what went wrong, for machines and for people.
//!
//! Must not know: stack traces, addresses, anything about the inside of the house. The detail goes to strangers.

use std::fmt;

use tollgate_core::Outcome;

use crate::json::push_string;
use crate::rate_limit_status::RateLimitStatus;
use crate::text::push_integer;

/// The media type of [`Problem::to_json`] and [`Answer::write_problem`].
pub const CONTENT_TYPE: &str = "application/problem+json";

/// Why a request is refused, as the problem types that the RateLimit draft registers (section 5) tell it apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum ProblemType {
    /// The caller has used what they may use.
    #[default]
    QuotaExceeded,
    /// There is less for everybody at the moment, whatever this caller has used.
    ReducedCapacity,
    /// The caller behaves as nobody should, and is kept out for a while.
    AbnormalUsage,
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
        }
    }

    /// The value of `title`: always the same for a type.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::QuotaExceeded => "Quota Exceeded",
            Self::ReducedCapacity => "Temporary Reduced Capacity",
            Self::AbnormalUsage => "Abnormal Usage Detected",
        }
    }

    /// The status code that goes with it, unless something in front of the client needs another.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::QuotaExceeded | Self::AbnormalUsage => 429,
            Self::ReducedCapacity => 503,
        }
    }
}

impl RateLimitStatus<'_> {
    /// Writes the body of a refusal behind what `out` holds, as JSON. `status` is the code that is really sent.
    ///
    /// The detail is the binding limit's own message if it has one. `violated-policies` names every limit that refuses.
    pub fn write_problem(&self, cause: ProblemType, status: u16, out: &mut Vec<u8>) {
        let binding = self.binding();
        if let Some(message) = binding.and_then(|standing| standing.policy.message()) {
            return self.write_problem_with_detail(cause, status, message, out);
        }
        match binding {
            Some(standing) => {
                let detail = DenialDetail {
                    name: standing.policy.quoted_name(),
                    never: self.outcome() == Outcome::Never,
                    wait: self.retry_after_ms(),
                    cost: standing.cost,
                    limit: standing.quota,
                };
                self.write_problem_with_detail(cause, status, detail, out);
            }
            None => self.write_problem_with_detail(cause, status, "the request is refused", out),
        }
    }

    /// The same with a detail of the caller's own, which goes to strangers as it is.
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

/// One problem with a body of its own, for errors that are no decision of a limit and for those who write few.
///
/// ```
/// use tollgate_http::ProblemDetails;
///
/// let problem = ProblemDetails::plain(404, "Not Found", "there is nothing at /nowhere");
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
    /// A problem that its status code already names: `title` is the code's phrase.
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

    /// The status code of the response that carries this problem.
    #[must_use]
    pub const fn status(&self) -> u16 {
        self.members.status
    }

    /// What happened this time, for people.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The same, held against a policy that says nothing of where it stands: it is blocked, or cannot be asked.
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

    /// Writes the body behind what `out` holds.
    pub fn write(&self, out: &mut Vec<u8>) {
        let violated = self.violated.as_deref().into_iter();
        self.members.write(out, &self.detail, violated);
    }
}

/// What every problem has but its detail.
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
        // All of these are ours, and have nothing in them to escape.
        out.extend_from_slice(self.r#type.as_bytes());
        out.extend_from_slice(b"\",\"title\":");
        push_string(out, self.title);
        out.extend_from_slice(b",\"status\":");
        push_integer(out, self.status.into());
        out.extend_from_slice(b",\"detail\":");
        push_string(out, detail);
        let mut lead: &[u8] = b",\"violated-policies\":[";
        let mut any = false;
        for name in violated {
            out.extend_from_slice(lead);
            push_string(out, name);
            lead = b",";
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

/// The usual sentence about a refusal.
struct DenialDetail<'a> {
    /// In quotes.
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
            Some(ms) => write!(f, "; it has after {ms} ms"),
            None => Ok(()),
        }
    }
}
