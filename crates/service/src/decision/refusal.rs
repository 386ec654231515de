//! How a request is refused: 429 or 503, and when to retry. Covers verdicts of the engine, requests that cannot wait, and
//! requests that could not be decided.
//!
//! Must not know: how a status is sent, dialects.

use tollgate_core::{Nanos, Outcome};
use tollgate_engine::{DenialReason, EnforcementMode, Verdict};
use tollgate_http::retry_after;
use tollgate_policy::model::OnStoreFailure;

/// How a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status for the client.
    pub status: u16,
    /// Why the request is refused.
    pub reason: Option<DenialReason>,
    /// The time after which the same request may be admitted. `None` if that is not known.
    pub retry_after: Option<Nanos>,
}

impl Refusal {
    /// The refusal of a verdict: the status of the limit that denies, 503 if the limiter cannot decide, 403 if an operator or
    /// the policy denies the request whatever its rate. `None` if the verdict admits.
    #[must_use]
    #[inline]
    pub fn from_verdict(verdict: &Verdict) -> Option<Self> {
        Some(Self {
            status: verdict.status()?,
            reason: verdict.reason(),
            retry_after: match verdict.outcome() {
                Outcome::Deny { retry_after } => Some(retry_after),
                _ => None,
            },
        })
    }

    /// The refusal of a request that would have to wait while the wait queue is full. `None` if every limit that makes it
    /// wait has `on_store_failure: open`; then the request proceeds. One limit with `closed` makes it 503. With `local` it
    /// is the limit's own status: without a queue the limit would deny.
    #[must_use]
    pub fn wait_queue_full(verdict: &Verdict) -> Option<Self> {
        let Outcome::Wait(wait) = verdict.outcome() else {
            return None;
        };
        let refused = |status, reason| Self {
            status,
            reason: Some(reason),
            retry_after: Some(wait),
        };
        let mut refusal = None;
        for state in verdict.limits() {
            let makes_wait = matches!(state.outcome, Outcome::Wait(_));
            let Some(rule) = verdict.rule(state) else {
                continue;
            };
            if !makes_wait || state.enforcement != EnforcementMode::Enforced {
                continue;
            }
            match rule.on_store_failure {
                OnStoreFailure::Open => {}
                OnStoreFailure::Closed => return Some(refused(503, DenialReason::Capacity)),
                OnStoreFailure::Local => {
                    let reason = verdict.reason().unwrap_or(DenialReason::Rate);
                    refusal = Some(refused(rule.status, reason));
                }
            }
        }
        refusal
    }

    /// The refusal if the store did not answer and the transport has no fallback.
    #[must_use]
    pub const fn store_unavailable() -> Self {
        Self {
            status: 503,
            reason: Some(DenialReason::Capacity),
            retry_after: Some(Nanos::SECOND),
        }
    }

    /// The refusal of a rule without a status of its own.
    #[must_use]
    pub const fn over_limit(retry_after: Option<Nanos>) -> Self {
        Self {
            status: 429,
            reason: Some(DenialReason::Rate),
            retry_after,
        }
    }

    /// The value of `Retry-After` in whole seconds: rounded up and never zero.
    #[must_use]
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.retry_after
            .and_then(|wait| retry_after(Outcome::Deny { retry_after: wait }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_in_whole_seconds_and_never_zero() {
        for (wait, seconds) in [(0, 1), (1, 1), (1_000, 1), (1_001, 2)] {
            let refusal = Refusal::over_limit(Some(Nanos::from_millis(wait)));
            assert_eq!(refusal.retry_after_seconds(), Some(seconds));
        }
        assert_eq!(Refusal::over_limit(None).retry_after_seconds(), None);
        let unavailable = Refusal::store_unavailable();
        assert_eq!(
            (unavailable.status, unavailable.retry_after_seconds()),
            (503, Some(1))
        );
    }
}
