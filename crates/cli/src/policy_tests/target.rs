//! The engine under test: the interface that steps use to send requests and observe decisions.
//!
//! Must not know: test files, expectations.

use tollgate_core::{Nanos, Timestamp};

use super::model::{ExpectedRetry, UpstreamResponse};
use super::request_template::RequestTemplate;

/// The number of keys that the store of a test holds.
pub(super) const KEYS: usize = 1 << 16;

/// The fixed secret for hashed keys, so that tests are repeatable.
pub(super) const SECRET: [u8; 16] = [0; 16];

/// An engine with a policy, its own store and its own clock.
pub(super) trait TestTarget {
    /// Sets the clock.
    fn set_time(&mut self, now: Timestamp);

    /// Decides on a request. If it is admitted, finishes it at once, or holds it until `finish_held`.
    ///
    /// # Errors
    /// The request is not valid, or the store is full.
    fn send(&mut self, test_request: &TestRequest<'_>) -> Result<Observation, String>;

    /// Finishes all requests that are held under a name.
    ///
    /// # Errors
    /// The store is full.
    fn finish_held(&mut self, name: &str, reply: &UpstreamResponse) -> Result<(), String>;

    /// The limits that apply to a request, whether or not one denies it.
    fn matching_limits(&mut self, asked: &RequestTemplate, number: u64) -> Vec<String>;

    /// How often the candidate of a limit would have denied an admitted request, and admitted a denied one. `None` if the limit
    /// has no candidate.
    fn divergence(&self, limit: &str) -> Option<(u64, u64)>;
}

/// One request of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct TestRequest<'a> {
    pub(super) template: &'a RequestTemplate,
    pub(super) number: u64,
    pub(super) cost: Option<u64>,
    pub(super) reply: &'a UpstreamResponse,
    pub(super) hold: Option<&'a str>,
}

/// The observed decision on a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Observation {
    pub(super) admitted: bool,
    pub(super) wait: Option<Nanos>,
    pub(super) retry: Option<ExpectedRetry>,
    pub(super) limit: Option<String>,
    pub(super) level: Option<String>,
    pub(super) reason: Option<&'static str>,
    pub(super) status: Option<u16>,
    pub(super) message: Option<String>,
    /// By limit, and by `limit/level`.
    pub(super) remaining: Vec<(String, u64)>,
    /// The limits in shadow mode that would have denied it, each once.
    pub(super) shadow_denied: Vec<String>,
}

impl Observation {
    /// Records the remaining units of a limit. With several windows it keeps the smallest number.
    pub(super) fn record_remaining(&mut self, name: &str, left: u64) {
        let before = self.remaining.iter_mut().find(|(other, _)| other == name);
        match before {
            Some((_, least)) => *least = left.min(*least),
            None => self.remaining.push((name.to_owned(), left)),
        }
    }
}
