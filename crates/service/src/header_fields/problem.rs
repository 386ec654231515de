//! The problem details of a refusal (RFC 9457): the type, and a sentence for people.
//!
//! Must not know: sockets, header fields, how requests are decided.

use std::fmt;

use tollgate_core::Outcome;
use tollgate_engine::{DenialReason, Verdict};
use tollgate_http::{ProblemDetails, ProblemType, RateLimitStatus};
use tollgate_policy::rules::MeterRole;

/// Appends the problem details of a refusal to `out`, with the policy's own message if it has one. `status` is the code
/// of the response.
pub fn write_problem(
    verdict: &Verdict,
    rate_limit: &RateLimitStatus<'_>,
    status: u16,
    out: &mut Vec<u8>,
) {
    let detail = RefusalDetail(verdict);
    let cause = match verdict.reason() {
        // A limit with `status: 503` counts what the service can afford: it sheds.
        Some(DenialReason::Rate | DenialReason::Quota | DenialReason::Concurrency)
            if status == ProblemType::Overloaded.status() =>
        {
            ProblemType::Overloaded
        }
        Some(DenialReason::Rate | DenialReason::Quota | DenialReason::Concurrency) => {
            ProblemType::QuotaExceeded
        }
        Some(DenialReason::Capacity) => ProblemType::ReducedCapacity,
        Some(DenialReason::Blocked) => ProblemType::AbnormalUsage,
        _ => {
            let phrase = http::StatusCode::from_u16(status).ok();
            let phrase = phrase.and_then(|status| status.canonical_reason());
            let title = phrase.unwrap_or("Refused");
            return ProblemDetails::new(status, title, detail.to_string()).write(out);
        }
    };
    if verdict.binding().is_some() {
        rate_limit.write_problem_with_detail(cause, status, detail, out);
    } else {
        // Refused before the store was asked, so there is no status to send.
        ProblemDetails::new(status, cause.title(), detail.to_string())
            .with_violated_policy(cause, verdict.rule_name(), rate_limit.retry_after_ms())
            .write(out);
    }
}

/// The name of a meter's role in its rule.
#[must_use]
pub const fn role_name(role: MeterRole) -> &'static str {
    match role {
        MeterRole::Main => "main",
        MeterRole::Local => "local",
        MeterRole::Share => "share",
        MeterRole::Spillover => "spillover",
        MeterRole::Block => "block",
        MeterRole::Offences => "offences",
        MeterRole::Distinct => "seen",
        MeterRole::Candidate => "candidate",
        _ => "other",
    }
}

/// A name in quotes. Nearly all names have nothing to escape, and `Debug` looks up every character.
struct QuotedName<'a>(&'a str);

impl fmt::Display for QuotedName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
        if !self.0.bytes().all(is_plain) {
            return fmt::Debug::fmt(self.0, f);
        }
        f.write_str("\"")?;
        f.write_str(self.0)?;
        f.write_str("\"")
    }
}

/// The explanation for people.
struct RefusalDetail<'a>(&'a Verdict);

impl fmt::Display for RefusalDetail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = self.0;
        if let Some(message) = verdict.message() {
            return f.write_str(message);
        }
        let name = QuotedName(verdict.rule_name().unwrap_or("?"));
        match (verdict.reason(), verdict.outcome()) {
            (
                Some(DenialReason::Rate | DenialReason::Quota | DenialReason::Concurrency),
                Outcome::Never,
            ) => {
                return write!(
                    f,
                    "the request asks for more than the limit {name} ever admits at once; waiting does not help"
                );
            }
            // Without `write!`, which costs as much as the rest: most refusals are one of these two.
            (Some(DenialReason::Rate), _) => {
                f.write_str("the limit ")?;
                name.fmt(f)?;
                f.write_str(" has no room for this now")
            }
            (Some(DenialReason::Quota), _) => {
                f.write_str("the quota ")?;
                name.fmt(f)?;
                f.write_str(" is used up")
            }
            (Some(DenialReason::Concurrency), _) => {
                write!(
                    f,
                    "the limit {name} has reached its maximum of concurrent requests"
                )
            }
            (Some(DenialReason::Blocked), _) => match verdict.rule_name() {
                Some(name) => write!(
                    f,
                    "earlier requests exceeded the limit {}, which blocks for a while",
                    QuotedName(name)
                ),
                None => f.write_str("requests from this address are blocked"),
            },
            (Some(DenialReason::Capacity), _) => f.write_str("the limiter cannot decide this now"),
            (Some(DenialReason::Listed), _) => f.write_str("the policy refuses such requests"),
            (Some(DenialReason::MissingKey), _) => {
                return write!(
                    f,
                    "the limit {name} needs an attribute that the request does not have"
                );
            }
            (Some(DenialReason::Unreadable), _) => match verdict.unreadable() {
                Some(reason) => write!(f, "the request cannot be read: {reason}"),
                None => f.write_str("the request cannot be read"),
            },
            _ => f.write_str("the request is refused"),
        }?;
        match verdict.outcome() {
            Outcome::Deny { retry_after } => {
                f.write_str("; try again after ")?;
                retry_after.as_millis_ceil().fmt(f)?;
                f.write_str(" ms")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_as_debug_quotes_them() {
        for name in [
            "", "per-key", "a b~", "a\"b", "a\\b", "é", "a\nb", "\u{7f}", "'",
        ] {
            assert_eq!(QuotedName(name).to_string(), format!("{name:?}"));
        }
    }
}
