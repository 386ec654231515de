//! What was decided on a request, for logs of the application.
//!
//! Must not know: how requests are decided, how logs are written.

use std::time::Duration;

use tollgate_service::{DenialReason, Outcome, Verdict};

/// What was decided on a request. With [`report_decisions`](crate::TollgateLayerBuilder::report_decisions) the layer puts it
/// into the extensions of each response.
///
/// It has no keys, so that it can be logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionInfo {
    is_admitted: bool,
    reason: Option<&'static str>,
    limit: Option<Box<str>>,
    wait: Duration,
}

impl DecisionInfo {
    pub(crate) fn from_verdict(verdict: &Verdict) -> Self {
        let binding = || {
            let rule = verdict.rule(verdict.binding()?)?;
            Some(&*rule.name)
        };
        Self {
            is_admitted: verdict.is_admitted(),
            reason: verdict.reason().map(DenialReason::as_str),
            limit: verdict.rule_name().or_else(binding).map(Box::from),
            wait: match verdict.outcome() {
                Outcome::Wait(wait) => wait.into(),
                _ => Duration::ZERO,
            },
        }
    }

    /// A request that had to wait while the wait queue was full: it was let through or refused.
    pub(crate) fn without_wait(peeked: &Verdict, is_admitted: bool) -> Self {
        Self {
            is_admitted,
            reason: Some("capacity"),
            wait: Duration::ZERO,
            ..Self::from_verdict(peeked)
        }
    }

    /// Whether the request was admitted, at once or after a wait.
    #[must_use]
    pub const fn is_admitted(&self) -> bool {
        self.is_admitted
    }

    /// The outcome as a word: `admitted`, `delayed` or `denied`.
    #[must_use]
    pub const fn outcome(&self) -> &'static str {
        match (self.is_admitted, self.wait.is_zero()) {
            (true, true) => "admitted",
            (true, false) => "delayed",
            (false, _) => "denied",
        }
    }

    /// Why the request was denied or delayed: `rate`, `quota`, `concurrency` and so on, as in metrics.
    #[must_use]
    pub const fn reason(&self) -> Option<&'static str> {
        self.reason
    }

    /// The name of the binding limit: the one that denies or delays, else the one with the smallest fraction left. `None` if
    /// no limit applies, or if a list or an operator denies.
    #[must_use]
    pub fn limit(&self) -> Option<&str> {
        self.limit.as_deref()
    }

    /// How long the request had to wait.
    #[must_use]
    pub const fn wait(&self) -> Duration {
        self.wait
    }
}
