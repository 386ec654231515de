//! An answer as HTTP: status, fields and body.
//!
//! Must not know: how it was decided.

use std::cell::Cell;

use bytes::{Bytes, BytesMut};
use http_body_util::Full;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::http::response::Parts;
use hyper::{Response, StatusCode};
use tollgate_core::Nanos;
use tollgate_http::{Merge, Problem, Words};

use crate::saturation::Place;

/// Room for the values of some dozens of answers, so that most take none of their own.
const VALUES_LEN: usize = 4_096;

/// A response being put together.
#[derive(Debug)]
pub(crate) struct Reply {
    response: Response<Bytes>,
    wait: Nanos,
    /// Where it waits.
    place: Option<Place>,
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
    pub(crate) fn refused(status: u16, body: impl Into<Bytes>) -> Self {
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

    pub(crate) fn with(mut self, name: HeaderName, value: &str) -> Self {
        // Values are ours and printable: numbers, and names that were checked when the limit was made.
        if let Ok(value) = HeaderValue::from_str(value) {
            self.response.headers_mut().insert(name, value);
        }
        self
    }

    /// The same with these fields. What is there already is not replaced: lists get another line, others are left alone.
    ///
    /// Values share a buffer of this thread, so what is left to allocate is one buffer for some dozens of answers, and
    /// the map of fields itself.
    pub(crate) fn saying(mut self, words: &Words) -> Self {
        thread_local! {
            static VALUES: Cell<BytesMut> = Cell::new(BytesMut::new());
        }
        let mut values = VALUES.take();
        let headers = self.response.headers_mut();
        for word in words.words() {
            let name = HeaderName::from_static(word.name);
            let is_there = match word.merge {
                Merge::KeepTheirs => headers.contains_key(&name),
                // Saying the same twice says nothing more.
                Merge::Append => headers.get_all(&name).iter().any(|one| one == word.value),
            };
            if is_there {
                continue;
            }
            if values.capacity() < word.value.len() {
                values.reserve(word.value.len().max(VALUES_LEN));
            }
            values.extend_from_slice(word.value);
            if let Ok(value) = HeaderValue::from_maybe_shared(values.split().freeze()) {
                headers.append(name, value);
            }
        }
        VALUES.set(values);
        self
    }

    /// The same with another status.
    pub(crate) fn answered_with(mut self, status: StatusCode) -> Self {
        *self.response.status_mut() = status;
        self
    }

    /// The same, at a place for those who wait, which is free again when it is sent.
    pub(crate) fn at(mut self, place: Place) -> Self {
        self.place = Some(place);
        self
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
        self.response.map(Full::new)
    }

    pub(crate) fn into_parts(self) -> (Parts, Bytes) {
        self.response.into_parts()
    }

    fn new(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        let mut response = Response::new(body.into());
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        // Every answer is about this moment. RFC 6585 forbids storing a 429, and a stored 200 would admit forever.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Self {
            response,
            wait: Nanos::ZERO,
            place: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_core::{Outcome, Status, Unit};
    use tollgate_http::{Answer, Dialects, Policy, Standing};
    use tollgate_testkit::allocation::{Counting, calls};

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    fn words(dialects: &str) -> Words {
        let policy = Policy::new("api", 5, Nanos::MINUTE, Unit::Requests).unwrap();
        let status = Status {
            limit: 5,
            remaining: 0,
            reset_after: Nanos::MINUTE,
        };
        let denied = Outcome::Deny {
            retry_after: Nanos::SECOND,
        };
        let standings = [Standing::new(&policy, denied, &status)];
        let mut words = Words::new();
        Answer::new(denied, &standings).write(dialects.parse::<Dialects>().unwrap(), &mut words);
        words
    }

    fn lines(reply: &Reply, name: &str) -> Vec<String> {
        let all = reply.response.headers().get_all(name).into_iter();
        all.map(|value| value.to_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn fields_that_are_there_already_are_never_replaced() {
        let theirs = |name| HeaderName::from_static(name);
        let reply = Reply::text("upstream")
            .with(theirs("ratelimit"), r#""upstream";r=1"#)
            .with(theirs("x-ratelimit-limit"), "7")
            .with(theirs("retry-after"), "99")
            .saying(&words("draft-11, x-ratelimit"));
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

    /// What is left is the buffer that values share, renewed now and then.
    #[test]
    fn fields_of_the_usual_dialect_hardly_allocate() {
        let words = words("draft-11");
        let plain = || drop(std::hint::black_box(Reply::json("{}")));
        let worded = || drop(std::hint::black_box(Reply::json("{}").saying(&words)));
        worded();
        let without = calls(|| (0..1_000).for_each(|_| plain()));
        let with = calls(|| (0..1_000).for_each(|_| worded()));
        assert!(without > 0 && with - without < 200, "{with} {without}");
    }
}
