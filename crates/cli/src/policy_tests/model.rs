//! What a file of tests says.
//!
//! Must not know: how it is written or run.

use tollgate_core::{Nanos, Timestamp};
use tollgate_policy::source::{Located, SourceLocation};

use super::request_template::RequestTemplate;

/// A whole file.
#[derive(Debug)]
pub(super) struct TestFile {
    /// The policy under test; several files only if they are of envoyproxy/ratelimit.
    pub(super) policy: Vec<Located<Box<str>>>,
    pub(super) tests: Vec<PolicyTest>,
}

/// One test: its own engine, its own time, steps in order.
#[derive(Debug)]
pub(super) struct PolicyTest {
    pub(super) name: Located<Box<str>>,
    /// What the clock says at `0s`.
    pub(super) start: Timestamp,
    pub(super) steps: Vec<TestStep>,
}

/// What happens at one instant.
#[derive(Debug)]
pub(super) struct TestStep {
    pub(super) place: SourceLocation,
    pub(super) at: Nanos,
    pub(super) send: u64,
    pub(super) template: RequestTemplate,
    /// What requests cost, where the caller knows better than the policy.
    pub(super) cost: Option<u64>,
    pub(super) respond: UpstreamResponse,
    /// Keeps admitted requests in flight under a name.
    pub(super) hold: Option<Located<Box<str>>>,
    /// Answers the requests that were held under a name, before anything is sent.
    pub(super) finish: Option<Located<Box<str>>>,
    pub(super) expect: Expectations,
}

/// What an upstream answers to an admitted request.
#[derive(Clone, Debug)]
pub(super) struct UpstreamResponse {
    pub(super) status: u16,
    pub(super) headers: Vec<(Box<str>, Box<str>)>,
}

/// When a refused request may come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpectedRetry {
    After(Nanos),
    Never,
}

/// What should come of a step. What is not said is not looked at.
#[derive(Debug, Default)]
pub(super) struct Expectations {
    pub(super) allowed: Option<Located<u64>>,
    pub(super) denied: Option<Located<u64>>,
    /// The waits of admitted requests, in order, those without one left out.
    pub(super) waits: Option<Located<Vec<Nanos>>>,
    pub(super) limit: Option<Located<Box<str>>>,
    pub(super) level: Option<Located<Box<str>>>,
    pub(super) reason: Option<Located<&'static str>>,
    pub(super) status: Option<Located<u64>>,
    pub(super) message: Option<Located<Box<str>>>,
    pub(super) retry_after: Option<Located<ExpectedRetry>>,
    /// By limit, or by `limit/level`.
    pub(super) remaining: Vec<(Located<Box<str>>, Located<u64>)>,
    pub(super) matched: Option<Located<Vec<Located<Box<str>>>>>,
    pub(super) shadow_denied: Option<Located<ExpectedShadowDenials>>,
    pub(super) candidates: Vec<(Located<Box<str>>, ExpectedDivergence)>,
}

/// How often a candidate decides differently from its limit, since the test began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ExpectedDivergence {
    /// What the limit admits and the candidate would deny.
    pub(super) would_deny: Option<Located<u64>>,
    /// What the limit denies and the candidate would admit.
    pub(super) would_allow: Option<Located<u64>>,
}

/// Requests that limits in shadow would have refused.
#[derive(Debug)]
pub(super) enum ExpectedShadowDenials {
    /// By any of them.
    Any(u64),
    /// By each of these.
    By(Vec<(Located<Box<str>>, Located<u64>)>),
}

impl Expectations {
    /// Whether nothing is expected.
    pub(super) fn is_empty(&self) -> bool {
        let Self {
            allowed,
            denied,
            waits,
            limit,
            level,
            reason,
            status,
            message,
            retry_after,
            remaining,
            matched,
            shadow_denied,
            candidates,
        } = self;
        allowed.is_none()
            && denied.is_none()
            && waits.is_none()
            && limit.is_none()
            && level.is_none()
            && reason.is_none()
            && status.is_none()
            && message.is_none()
            && retry_after.is_none()
            && remaining.is_empty()
            && matched.is_none()
            && shadow_denied.is_none()
            && candidates.is_empty()
    }
}
