//! What tests need of a policy that is put to work: send a request at some instant and see what comes of it.
//!
//! Must not know: files of tests, expectations.

use tollgate_core::{Nanos, Timestamp};

use super::model::{ExpectedRetry, UpstreamResponse};
use super::request_template::RequestTemplate;

/// The keys that a test's memory has room for.
pub(super) const KEYS: usize = 1 << 16;

/// What hashed keys are hashed with: always the same, so that a test that passes passes again.
pub(super) const SECRET: [u8; 16] = [0; 16];

/// A policy at work, with its own memory and its own time.
pub(super) trait TestTarget {
    /// Moves the time.
    fn set_time(&mut self, now: Timestamp);

    /// Decides on a request and answers it if it is admitted, at once or when it is finished.
    ///
    /// # Errors
    /// The request makes no sense, or the memory gave out.
    fn send(&mut self, sent: &TestRequest<'_>) -> Result<Observation, String>;

    /// Answers all requests that are held under a name.
    ///
    /// # Errors
    /// The memory gave out.
    fn finish_held(&mut self, name: &str, reply: &UpstreamResponse) -> Result<(), String>;

    /// The limits that a request falls under, whatever it is denied by.
    fn matching_limits(&mut self, asked: &RequestTemplate, number: u64) -> Vec<String>;

    /// How often a limit's candidate would have denied what was admitted, and admitted what was denied. None without one.
    fn divergence(&self, limit: &str) -> Option<(u64, u64)>;
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub(super) struct TestRequest<'a> {
    pub(super) template: &'a RequestTemplate,
    pub(super) number: u64,
    pub(super) cost: Option<u64>,
    pub(super) reply: &'a UpstreamResponse,
    pub(super) hold: Option<&'a str>,
}

/// What came of a request.
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
    /// The limits in shadow that would have refused it, each once.
    pub(super) shadow_denied: Vec<String>,
}

impl Observation {
    /// Notes what is left of a limit; of several windows the least.
    pub(super) fn record_remaining(&mut self, name: &str, left: u64) {
        let before = self.remaining.iter_mut().find(|(other, _)| other == name);
        match before {
            Some((_, least)) => *least = left.min(*least),
            None => self.remaining.push((name.to_owned(), left)),
        }
    }
}
