//! Bodies of refusals: problem details of the RateLimit draft, and the errors of Discord, OpenAI, Anthropic and GitHub.
//!
//! Must not know: header fields.

use serde_json::Value;
use tollgate_core::Nanos;

use super::instants;
use super::structured_field::Malformed;
use crate::problem_details::ProblemType;
use crate::quota_policy::Scope;
use crate::rate_limit_info::{RateLimitInfo, RefusalReason};

/// Reads a JSON body.
pub(super) fn json(body: &[u8], info: &mut RateLimitInfo) -> Result<(), Malformed> {
    let Ok(Value::Object(body)) = serde_json::from_slice(body) else {
        return Err(Malformed);
    };
    let text = |name: &str| body.get(name).and_then(Value::as_str);
    if let Some(reason) = text("type").and_then(problem) {
        info.reason = Some(reason);
    }
    let millis = body.get("retry-after-ms").and_then(Value::as_u64);
    // Discord's body has fractions of seconds, where `Retry-After` has whole ones.
    let seconds = body.get("retry_after").filter(|wait| wait.is_number());
    let seconds = seconds.and_then(|wait| match instants::retry_after(&wait.to_string())? {
        instants::Instant::After(wait) => Some(wait),
        instants::Instant::At(_) => None,
    });
    if let Some(wait) = millis.map(Nanos::from_millis).or(seconds) {
        // It is what the field rounds up, so it is the better of the two unless it is earlier by more than that.
        let rounded_up = wait.saturating_add(Nanos::from_secs(1));
        if info.retry_after.is_none_or(|field| field <= rounded_up) {
            info.retry_after = Some(wait);
        }
    }
    if body.get("global").and_then(Value::as_bool) == Some(true) {
        info.scope = Some(Scope::Global);
    }
    let error = body.get("error");
    for name in ["code", "type"] {
        let code = error
            .and_then(|error| error.get(name))
            .and_then(Value::as_str);
        if let Some(reason) = code.and_then(error_code) {
            info.reason = Some(reason);
            break;
        }
    }
    let is_secondary = |message: &str| message.contains("secondary rate limit");
    if text("message").is_some_and(is_secondary) {
        info.reason = Some(RefusalReason::Rate);
        // GitHub asks for a minute if it sends no `Retry-After`.
        info.retry_after = info.retry_after.or(Some(Nanos::MINUTE));
    }
    Ok(())
}

fn problem(uri: &str) -> Option<RefusalReason> {
    [
        (ProblemType::QuotaExceeded, RefusalReason::Rate),
        (ProblemType::ReducedCapacity, RefusalReason::Overloaded),
        (ProblemType::AbnormalUsage, RefusalReason::Blocked),
    ]
    .into_iter()
    .find_map(|(problem, reason)| (problem.type_uri() == uri).then_some(reason))
}

/// OpenAI's and Anthropic's codes.
fn error_code(code: &str) -> Option<RefusalReason> {
    Some(match code {
        "insufficient_quota" | "billing_hard_limit_reached" | "billing_error" => {
            RefusalReason::QuotaExhausted
        }
        "rate_limit_exceeded" | "rate_limit_error" | "rate_limit" | "tokens" | "requests" => {
            RefusalReason::Rate
        }
        "overloaded_error" | "server_overloaded" | "lock_timeout" => RefusalReason::Overloaded,
        _ => return None,
    })
}
