//! The model of a test file.
//!
//! Must not know: how files are parsed, how tests are run.

use tollgate_core::{Nanos, Timestamp};
use tollgate_policy::source::{Located, SourceLocation};

use super::request_template::RequestTemplate;

/// A test file.
#[derive(Debug)]
pub(super) struct TestFile {
    /// The policy under test. Only envoyproxy/ratelimit allows several files.
    pub(super) policy: Vec<Located<Box<str>>>,
    pub(super) tests: Vec<PolicyTest>,
}

/// One test: its own engine and clock, and steps in order of time.
#[derive(Debug)]
pub(super) struct PolicyTest {
    pub(super) name: Located<Box<str>>,
    /// The time of the clock at `0s`.
    pub(super) start: Timestamp,
    pub(super) steps: Vec<TestStep>,
}

/// One step of a test, at one instant.
#[derive(Debug)]
pub(super) struct TestStep {
    pub(super) place: SourceLocation,
    pub(super) at: Nanos,
    pub(super) send: u64,
    pub(super) template: RequestTemplate,
    /// The cost of each request, if the caller sets it.
    pub(super) cost: Option<u64>,
    pub(super) respond: UpstreamResponse,
    /// The name under which admitted requests stay in flight.
    pub(super) hold: Option<Located<Box<str>>>,
    /// The name of held requests that are finished before the step sends anything.
    pub(super) finish: Option<Located<Box<str>>>,
    pub(super) expect: Expectations,
}

/// The response of the upstream to an admitted request.
#[derive(Clone, Debug)]
pub(super) struct UpstreamResponse {
    pub(super) status: u16,
    pub(super) headers: Vec<(Box<str>, Box<str>)>,
}

/// When a denied request may be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpectedRetry {
    After(Nanos),
    Never,
}

/// The expectations of a step. Fields that are not set are not checked.
#[derive(Debug, Default)]
pub(super) struct Expectations {
    pub(super) allowed: Option<Located<u64>>,
    pub(super) denied: Option<Located<u64>>,
    /// The waits of admitted requests, in order, without zero waits.
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

/// How often a candidate decided differently from its limit since the test started.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ExpectedDivergence {
    /// Requests that the limit admitted and the candidate would deny.
    pub(super) would_deny: Option<Located<u64>>,
    /// Requests that the limit denied and the candidate would admit.
    pub(super) would_allow: Option<Located<u64>>,
}

/// Requests that limits in shadow mode would have denied.
#[derive(Debug)]
pub(super) enum ExpectedShadowDenials {
    /// By any limit.
    Any(u64),
    /// By each of these limits.
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
