//! An answer as HTTP: status, fields and body.
//!
//! Must not know: how it was decided.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use tollgate_core::Nanos;
use tollgate_http::Problem;

pub(crate) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
pub(crate) const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// A response being put together.
#[derive(Debug)]
pub(crate) struct Reply {
    response: Response<Full<Bytes>>,
    wait: Nanos,
}

impl Reply {
    pub(crate) fn text(body: impl Into<Bytes>) -> Self {
        Self::new(StatusCode::OK, "text/plain; charset=utf-8", body)
    }

    pub(crate) fn empty(status: StatusCode) -> Self {
        let mut reply = Self::new(status, "", Bytes::new());
        reply.response.headers_mut().remove(CONTENT_TYPE);
        reply
    }

    pub(crate) fn json(body: impl Into<Bytes>) -> Self {
        Self::new(StatusCode::OK, "application/json", body)
    }

    /// Text of another kind.
    pub(crate) fn page(content_type: &'static str, body: String) -> Self {
        Self::new(StatusCode::OK, content_type, body)
    }

    /// A refusal whose body is already problem details.
    pub(crate) fn refused(status: u16, body: String) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
        Self::new(status, tollgate_http::CONTENT_TYPE, body)
    }

    pub(crate) fn problem(problem: &Problem) -> Self {
        let status = StatusCode::from_u16(problem.status());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self::new(status, tollgate_http::CONTENT_TYPE, problem.to_json())
    }

    /// A problem that `status` already names.
    pub(crate) fn plain(status: StatusCode, detail: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or("Error");
        Self::problem(&Problem::plain(status.as_u16(), title, detail))
    }

    pub(crate) fn allow(self, methods: &'static str) -> Self {
        self.with(ALLOW, methods)
    }

    pub(crate) fn retry_after(self, seconds: u64) -> Self {
        self.with(RETRY_AFTER, &seconds.to_string())
    }

    pub(crate) fn with(mut self, name: HeaderName, value: &str) -> Self {
        // Values are ours and printable: numbers, and names that were checked when the limit was made.
        if let Ok(value) = HeaderValue::from_str(value) {
            self.response.headers_mut().insert(name, value);
        }
        self
    }

    pub(crate) fn is_success(&self) -> bool {
        self.response.status().is_success()
    }

    /// The same, sent only after a while.
    pub(crate) const fn after(mut self, wait: Nanos) -> Self {
        self.wait = wait;
        self
    }

    /// How long it is to be held back.
    pub(crate) const fn wait(&self) -> Nanos {
        self.wait
    }

    pub(crate) fn into_response(self) -> Response<Full<Bytes>> {
        self.response
    }

    fn new(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        let mut response = Response::new(Full::new(body.into()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        // Every answer is about this moment. RFC 6585 forbids storing a 429, and a stored 200 would admit forever.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Self {
            response,
            wait: Nanos::ZERO,
        }
    }
}
