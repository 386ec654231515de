//! The client under the pacer of `tollgate call`: it tells the user of every response.
//!
//! Must not know: pace and retries.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use tollgate_client::{Clock as _, RateLimitInfo, ResponseReader, SystemClock};
use tower_service::Service;

use super::report;
use crate::http_client::{HttpClient, RequestBody, RequestFailure};
use crate::output::print_error;

/// Sends requests, and prints a line about each refusal. Clones share what they have learned.
#[derive(Clone, Debug)]
pub(super) struct ReportingClient {
    client: HttpClient,
    is_quiet: bool,
    learned: Arc<Mutex<Learned>>,
}

/// What the responses have told.
#[derive(Clone, Debug, Default)]
pub(super) struct Learned {
    pub(super) attempts: u32,
    /// What the last response says about limits.
    pub(super) info: RateLimitInfo,
}

impl ReportingClient {
    pub(super) fn new(client: HttpClient, is_quiet: bool) -> Self {
        Self {
            client,
            is_quiet,
            learned: Arc::default(),
        }
    }

    pub(super) fn learned(&self) -> Learned {
        let learned = self.learned.lock();
        learned.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn report(&self, response: &Response<Incoming>) {
        let mut reader = ResponseReader::new(SystemClock::new().now());
        for (name, value) in response.headers() {
            reader.field(name.as_str(), value.as_bytes());
        }
        let info = reader.finish();
        if !self.is_quiet && is_refusal(response.status(), &info) {
            print_error(&report::refusal(response.status(), &info));
        }
        let learned = self.learned.lock();
        let mut learned = learned.unwrap_or_else(PoisonError::into_inner);
        learned.attempts = learned.attempts.saturating_add(1);
        learned.info = info;
    }
}

/// Whether a response refuses because of a limit, as far as its head says. GitHub and others do so with 403.
fn is_refusal(status: StatusCode, info: &RateLimitInfo) -> bool {
    let is_limited =
        info.retry_after.is_some() || info.limits.iter().any(|limit| limit.remaining == Some(0));
    match status.as_u16() {
        429 | 503 | 529 => true,
        403 => is_limited,
        _ => false,
    }
}

impl Service<Request<RequestBody>> for ReportingClient {
    type Response = Response<Incoming>;
    type Error = RequestFailure;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, RequestFailure>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), RequestFailure>> {
        // The client makes connections as it needs them.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let response = this.client.request(request).await?;
            this.report(&response);
            Ok(response)
        })
    }
}
