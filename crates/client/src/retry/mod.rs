//! Retries: what a response refuses and why, how long to back off, and how many retries a client may send.
//!
//! Must not know: pace, any HTTP library.

use tollgate_core::Nanos;
use tollgate_http::{RateLimitInfo, RefusalReason};

use crate::random::Random;
use crate::settings::PacerSettings;

/// The first backoff is a random part of this; each further one of twice as much.
const FIRST_BACKOFF: Nanos = Nanos::from_millis(100);
const MAX_BACKOFF_DOUBLINGS: u32 = 8;

/// A response that refuses the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerRefusal {
    /// Why it was refused.
    pub reason: RefusalReason,
    /// The wait that the server asks for.
    pub retry_after: Option<Nanos>,
    /// Whether the server says that a retry can succeed.
    pub may_retry: Option<bool>,
}

/// Whether a refused request is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryDecision {
    /// Acquire again and send it again. The pacer makes it wait as long as the server asks for, or backs off.
    Retry,
    /// Pass the refusal on.
    GiveUp,
}

/// Whether a request with this method may be sent twice (RFC 9110, section 9.2.2).
///
/// ```
/// assert!(tollgate_client::is_idempotent("PUT"));
/// assert!(!tollgate_client::is_idempotent("POST"));
/// ```
#[must_use]
pub fn is_idempotent(method: &str) -> bool {
    matches!(
        method,
        "GET" | "HEAD" | "PUT" | "DELETE" | "OPTIONS" | "TRACE"
    )
}

/// Reads the refusal out of a response, if it is one.
pub(crate) fn classify(
    status: u16,
    info: &RateLimitInfo,
    settings: &PacerSettings,
) -> Option<ServerRefusal> {
    let is_exhausted = |limit: &tollgate_http::LimitInfo| limit.remaining == Some(0);
    let exhausted = info.limits.iter().filter(|limit| is_exhausted(limit));
    let reset = exhausted.filter_map(|limit| limit.reset_after).max();
    let default = match status {
        429 => RefusalReason::Rate,
        503 | 529 => RefusalReason::Overloaded,
        // GitHub and others answer 403 to requests over the limit; other 403s are not about limits.
        403 if info.retry_after.is_some() || info.limits.iter().any(is_exhausted) => {
            RefusalReason::Rate
        }
        // gRPC's status is in its own field.
        200 => info.reason?,
        _ => return None,
    };
    let retry_after = info.retry_after.or(reset);
    let mut reason = info.reason.unwrap_or(default);
    // A wait of hours is a used-up quota, such as a day's: no request can succeed soon.
    if reason == RefusalReason::Rate && retry_after.is_some_and(|wait| wait > settings.max_block) {
        reason = RefusalReason::QuotaExhausted;
    }
    Some(ServerRefusal {
        reason,
        retry_after,
        may_retry: info.may_retry,
    })
}

/// A random part of a span that doubles with each failure: full jitter.
pub(crate) fn backoff(failures: u32, random: &mut Random) -> Nanos {
    let doublings = failures.saturating_sub(1).min(MAX_BACKOFF_DOUBLINGS);
    let most = FIRST_BACKOFF.as_nanos() << doublings;
    // In millionths, so that no float becomes a span.
    let part = random.millionths();
    Nanos::from_nanos(most / 1_000_000 * part)
}
