//! Problem details (RFC 9457): what went wrong, for machines and for people.
//!
//! Must not know: stack traces, addresses, anything about the inside of the house. The detail goes to strangers.

use serde::Serialize;
use tollgate_core::Outcome;

use crate::fields::Policy;

/// The media type of [`Problem::to_json`].
pub const CONTENT_TYPE: &str = "application/problem+json";

/// Registered by the RateLimit draft, section 5.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// One problem, ready to be sent.
///
/// ```
/// use tollgate_http::Problem;
///
/// let problem = Problem::plain(404, "Not Found", "there is nothing at /nowhere");
/// assert_eq!(
///     problem.to_json(),
///     r#"{"type":"about:blank","title":"Not Found","status":404,"detail":"there is nothing at /nowhere"}"#,
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Problem {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    violated_policies: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

impl Problem {
    /// A problem that its status code already names: `title` is the code's phrase.
    #[must_use]
    pub fn plain(status: u16, title: &'static str, detail: impl Into<String>) -> Self {
        Self {
            r#type: "about:blank",
            title,
            status,
            detail: detail.into(),
            violated_policies: Vec::new(),
            retry_after_ms: None,
        }
    }

    /// The answer to a request that `policy`, which admits at most `limit` at once, did not admit.
    ///
    /// ```
    /// use tollgate_core::{Nanos, Outcome, Unit};
    /// use tollgate_http::{Policy, Problem};
    ///
    /// let policy = Policy::new("demo", 20, Nanos::from_secs(2), Unit::Requests)?;
    /// let denied = Outcome::Deny { retry_after: Nanos::from_millis(100) };
    /// let problem = Problem::quota_exceeded(&policy, denied, 1, 20);
    /// assert_eq!(problem.detail(), "the limit \"demo\" has no room for a cost of 1 now; it has after 100 ms");
    /// # Ok::<(), tollgate_http::InvalidPolicyName>(())
    /// ```
    #[must_use]
    pub fn quota_exceeded(policy: &Policy, outcome: Outcome, cost: u64, limit: u64) -> Self {
        let name = policy.name();
        let wait = match outcome {
            Outcome::Deny { retry_after } => Some(retry_after.as_millis_ceil()),
            Outcome::Allow | Outcome::Wait(_) | Outcome::Never => None,
        };
        let detail = match wait {
            Some(ms) => {
                format!(
                    "the limit {name:?} has no room for a cost of {cost} now; it has after {ms} ms"
                )
            }
            None => format!(
                "a cost of {cost} is above {limit}, the most that the limit {name:?} ever admits at once; \
                 waiting does not help"
            ),
        };
        Self {
            r#type: QUOTA_EXCEEDED,
            title: "Quota Exceeded",
            status: 429,
            detail,
            violated_policies: vec![name.to_owned()],
            retry_after_ms: wait,
        }
    }

    /// The status code of the response that carries this problem.
    #[must_use]
    pub const fn status(&self) -> u16 {
        self.status
    }

    /// What happened this time, for people.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The body.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Serialising strings and integers into memory cannot fail. If it ever did, an empty object is still a valid
        // problem: every member of RFC 9457 is optional.
        serde_json::to_string(self).unwrap_or_else(|_| String::from("{}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use tollgate_core::{Nanos, Unit};

    fn policy(name: &str) -> Policy {
        Policy::new(name, 20, Nanos::from_secs(2), Unit::Requests).unwrap()
    }

    fn body(problem: &Problem) -> Value {
        serde_json::from_str(&problem.to_json()).unwrap()
    }

    #[test]
    fn a_denial_names_the_policy_and_the_exact_wait() {
        let retry_after = Nanos::from_nanos(1_500_000_001);
        let outcome = Outcome::Deny { retry_after };
        let problem = Problem::quota_exceeded(&policy("demo"), outcome, 3, 20);
        let expected = json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Quota Exceeded",
            "status": 429,
            "detail": "the limit \"demo\" has no room for a cost of 3 now; it has after 1501 ms",
            "violated-policies": ["demo"],
            "retry-after-ms": 1501,
        });
        assert_eq!(body(&problem), expected);
    }

    #[test]
    fn a_cost_that_never_fits_says_that_waiting_does_not_help() {
        let problem = Problem::quota_exceeded(&policy("demo"), Outcome::Never, 21, 20);
        let body = body(&problem);
        assert_eq!(
            body["detail"],
            "a cost of 21 is above 20, the most that the limit \"demo\" ever admits at once; waiting does not help"
        );
        assert_eq!(body.get("retry-after-ms"), None);
        assert_eq!(body["violated-policies"], json!(["demo"]));
    }

    #[test]
    fn names_and_details_are_escaped() {
        let name = r#"a"b\c"#;
        let outcome = Outcome::Deny {
            retry_after: Nanos::SECOND,
        };
        let denied = body(&Problem::quota_exceeded(&policy(name), outcome, 1, 20));
        assert_eq!(denied["violated-policies"], json!([name]));

        let nasty = "line\nbreak, \"quote\", \u{1}, \u{2028}, </script>";
        let plain = Problem::plain(400, "Bad Request", nasty);
        assert_eq!(body(&plain)["detail"], nasty);
        assert!(!plain.to_json().contains('\n'));
    }
}
