//! An HTTP response: status, header fields and body.
//!
//! Must not know: how it was decided.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use tollgate_core::Nanos;
use tollgate_http::{HeaderFields, Merge, ProblemDetails};

use super::field_lines::FieldLines;
use tollgate_service::{Refusal, WaitPermit};

const ALLOW: &str = "allow";
const CACHE_CONTROL: &str = "cache-control";
const CONNECTION: &str = "connection";
const CONTENT_TYPE: &str = "content-type";
const RETRY_AFTER: &str = "retry-after";

/// A response under construction.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    status: StatusCode,
    fields: FieldLines,
    body: ResponseBody,
    wait: Nanos,
    /// The wait permit of a delayed response.
    wait_permit: Option<WaitPermit>,
    is_closing: bool,
}

/// The body of a response.
#[derive(Debug)]
pub(crate) enum ResponseBody {
    Constant(&'static [u8]),
    Rendered(Vec<u8>),
}

impl HttpResponse {
    pub(crate) fn text(body: impl Into<ResponseBody>) -> Self {
        Self::new(StatusCode::OK, "text/plain; charset=utf-8", body)
    }

    pub(crate) fn html(body: impl Into<ResponseBody>) -> Self {
        Self::new(StatusCode::OK, "text/html; charset=utf-8", body)
    }

    pub(crate) fn empty(status: StatusCode) -> Self {
        Self::new(status, None, "")
    }

    pub(crate) fn json(body: impl Into<ResponseBody>) -> Self {
        Self::new(StatusCode::OK, "application/json", body)
    }

    /// A response with another content type.
    pub(crate) fn text_of_type(content_type: &'static str, body: String) -> Self {
        Self::new(StatusCode::OK, content_type, body)
    }

    /// A refusal whose body is already problem details.
    pub(crate) fn problem_body(status: u16, body: impl Into<ResponseBody>) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
        Self::new(status, tollgate_http::CONTENT_TYPE, body)
    }

    pub(crate) fn problem(problem: &ProblemDetails) -> Self {
        let status = StatusCode::from_u16(problem.status());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self::new(status, tollgate_http::CONTENT_TYPE, problem.to_json())
    }

    /// A refusal without rate limit fields: its status and `Retry-After`.
    pub(crate) fn refusal(refusal: Refusal, detail: impl Into<String>) -> Self {
        let status = StatusCode::from_u16(refusal.status);
        let response =
            Self::status_problem(status.unwrap_or(StatusCode::SERVICE_UNAVAILABLE), detail);
        match refusal.retry_after_seconds() {
            Some(seconds) => response.with_header(RETRY_AFTER, &seconds.to_string()),
            None => response,
        }
    }

    /// A problem that `status` describes sufficiently.
    pub(crate) fn status_problem(status: StatusCode, detail: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or("Error");
        Self::problem(&ProblemDetails::new(status.as_u16(), title, detail))
    }

    pub(crate) fn allow(self, methods: &'static str) -> Self {
        self.with_header(ALLOW, methods)
    }

    /// Sets a header field. Values are numbers and names that were validated when the limit was created.
    pub(crate) fn with_header(mut self, name: &'static str, value: &str) -> Self {
        self.fields.remove(name);
        self.fields.push(name, value.as_bytes());
        self
    }

    /// Adds header fields. An existing field is not replaced: list fields get another line, others stay unchanged.
    pub(crate) fn with_header_fields(mut self, fields: &HeaderFields) -> Self {
        for field in fields.fields() {
            let is_there = match field.merge {
                Merge::KeepExisting => self.fields.values(field.name).next().is_some(),
                // An identical value adds nothing.
                Merge::Append => self.fields.values(field.name).any(|one| one == field.value),
            };
            if !is_there {
                self.fields.push(field.name, field.value);
            }
        }
        self
    }

    /// The same with another status.
    pub(crate) fn with_status(mut self, status: u16) -> Self {
        self.status = StatusCode::from_u16(status).unwrap_or(self.status);
        self
    }

    /// Attaches the wait permit, which is released when the response is sent.
    pub(crate) fn with_wait_permit(mut self, wait_permit: WaitPermit) -> Self {
        self.wait_permit = Some(wait_permit);
        self
    }

    /// Takes the wait permit, which has to live until the response is sent.
    pub(crate) const fn take_wait_permit(&mut self) -> Option<WaitPermit> {
        self.wait_permit.take()
    }

    /// Closes the connection after the response.
    pub(crate) fn closing(mut self) -> Self {
        self.is_closing = true;
        self.with_header(CONNECTION, "close")
    }

    /// Whether the connection is closed after the response.
    pub(crate) const fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Delays the response.
    pub(crate) const fn with_delay(mut self, wait: Nanos) -> Self {
        self.wait = wait;
        self
    }

    /// How long the response is delayed.
    pub(crate) const fn delay(&self) -> Nanos {
        self.wait
    }

    pub(crate) fn into_response(self) -> Response<Full<Bytes>> {
        let body = match self.body {
            ResponseBody::Constant(bytes) => Bytes::from_static(bytes),
            ResponseBody::Rendered(bytes) => bytes.into(),
        };
        let mut response = Response::new(Full::new(body));
        *response.status_mut() = self.status;
        for (name, value) in self.fields.iter() {
            if let (Ok(name), Ok(value)) = (
                HeaderName::from_bytes(name.as_bytes()),
                HeaderValue::from_bytes(value),
            ) {
                response.headers_mut().append(name, value);
            }
        }
        response
    }

    pub(crate) const fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) const fn fields(&self) -> &FieldLines {
        &self.fields
    }

    pub(crate) fn body(&self) -> &[u8] {
        match &self.body {
            ResponseBody::Constant(bytes) => bytes,
            ResponseBody::Rendered(bytes) => bytes,
        }
    }

    fn new(
        status: StatusCode,
        content_type: impl Into<Option<&'static str>>,
        body: impl Into<ResponseBody>,
    ) -> Self {
        let mut fields = FieldLines::new();
        if let Some(content_type) = content_type.into() {
            fields.push(CONTENT_TYPE, content_type.as_bytes());
        }
        // Every response is about this moment. RFC 6585 forbids storing a 429, and a stored 200 would admit forever.
        fields.push(CACHE_CONTROL, b"no-store");
        Self {
            status,
            fields,
            body: body.into(),
            wait: Nanos::ZERO,
            wait_permit: None,
            is_closing: false,
        }
    }
}

impl From<&'static str> for ResponseBody {
    fn from(text: &'static str) -> Self {
        Self::Constant(text.as_bytes())
    }
}

impl From<String> for ResponseBody {
    fn from(text: String) -> Self {
        Self::Rendered(text.into_bytes())
    }
}

impl From<Vec<u8>> for ResponseBody {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Rendered(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_core::{Outcome, QuotaStatus, QuotaUnit};
    use tollgate_http::{Dialects, QuotaPolicy, RateLimitItem, RateLimitStatus};
    use tollgate_testkit::allocation::{CountingAllocator, calls};

    #[global_allocator]
    static ALLOCATOR: CountingAllocator = CountingAllocator;

    fn header_fields(dialects: &str) -> HeaderFields {
        let policy = QuotaPolicy::new("api", 5, Nanos::MINUTE, QuotaUnit::Requests).unwrap();
        let status = QuotaStatus {
            limit: 5,
            remaining: 0,
            reset_after: Nanos::MINUTE,
        };
        let denied = Outcome::Deny {
            retry_after: Nanos::SECOND,
        };
        let standings = [RateLimitItem::new(&policy, denied, &status)];
        let mut fields = HeaderFields::new();
        RateLimitStatus::new(denied, &standings)
            .write(dialects.parse::<Dialects>().unwrap(), &mut fields);
        fields
    }

    fn lines(reply: &HttpResponse, name: &str) -> Vec<String> {
        let values = reply.fields.values(name);
        values
            .map(|value| String::from_utf8(value.to_vec()).unwrap())
            .collect()
    }

    #[test]
    fn fields_that_are_there_already_are_never_replaced() {
        let reply = HttpResponse::text("upstream")
            .with_header("ratelimit", r#""upstream";r=1"#)
            .with_header("x-ratelimit-limit", "7")
            .with_header("retry-after", "99")
            .with_header_fields(&header_fields("draft-11, x-ratelimit"));
        assert_eq!(
            lines(&reply, "ratelimit"),
            [r#""upstream";r=1"#, r#""api";r=0;t=1"#]
        );
        assert_eq!(lines(&reply, "ratelimit-policy"), [r#""api";q=5;w=60"#]);
        assert_eq!(
            lines(&reply, "x-ratelimit-limit"),
            ["7"],
            "one number can be read"
        );
        assert_eq!(lines(&reply, "x-ratelimit-remaining"), ["0"]);
        assert_eq!(lines(&reply, "retry-after"), ["99"]);
        assert_eq!(
            lines(&reply, "cache-control"),
            ["no-store"],
            "once is enough"
        );
    }

    #[test]
    fn fields_of_the_usual_dialect_allocate_nothing_more() {
        let fields = header_fields("draft-11");
        let plain = || drop(std::hint::black_box(HttpResponse::json("{}")));
        let with_fields = || {
            drop(std::hint::black_box(
                HttpResponse::json("{}").with_header_fields(&fields),
            ));
        };
        let without = calls(|| (0..1_000).for_each(|_| plain()));
        let with = calls(|| (0..1_000).for_each(|_| with_fields()));
        assert!(without > 0 && with == without, "{with} {without}");
    }
}
