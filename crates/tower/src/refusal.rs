//! The response to a refused request: problem details over HTTP, a status over gRPC.
//!
//! Must not know: how requests are decided, which limits exist.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Response, StatusCode};
use tollgate_service::{
    Clock, HeaderSubject, PROBLEM_CONTENT_TYPE, ProblemDetails, RateLimitService, Refusal, Shed,
    Verdict, with_header_fields, write_problem,
};

use crate::grpc;
use crate::response_fields::ResponseFields;

/// The problem details of a request that is shed.
const SHED_PROBLEM: &str = concat!(
    r#"{"type":"https://github.com/tollgate-rs/tollgate/blob/main/docs/headers.md#overloaded","#,
    r#""title":"Overloaded","status":503,"#,
    r#""detail":"the service is overloaded and sheds requests; try again later"}"#,
);

/// Room for the problem details of most refusals, and for the fields of their responses.
const PROBLEM_LEN: usize = 512;
const FIELDS: usize = 8;

/// The refusal of a verdict, with its rate limit fields.
pub(crate) fn refuse<C: Clock>(
    service: &RateLimitService<C>,
    verdict: &Verdict,
    refusal: Refusal,
    is_grpc: bool,
) -> Response<Bytes> {
    service.with_rate_limit_status(verdict, HeaderSubject::Request, |status| {
        let mut body = Vec::with_capacity(PROBLEM_LEN);
        write_problem(verdict, status, refusal.status, &mut body);
        let mut response = match is_grpc {
            true => grpc::refusal(refusal, &detail_of(&body)),
            false => problem(refusal.status, body),
        };
        with_header_fields(|fields| {
            status.write(service.headers().dialects(), fields);
            ResponseFields::new(fields).merge_into(response.headers_mut());
        });
        response
    })
}

/// The refusal of a request that would have to wait while the wait queue is full.
pub(crate) fn refuse_wait(refusal: Refusal, is_grpc: bool) -> Response<Bytes> {
    let detail = "the request would have to wait, and the wait queue is full";
    if is_grpc {
        return grpc::refusal(refusal, detail);
    }
    let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    let title = status.canonical_reason().unwrap_or("Refused");
    let body = ProblemDetails::new(refusal.status, title, detail).to_json();
    let mut response = problem(refusal.status, body);
    if let Some(seconds) = refusal.retry_after_seconds() {
        response
            .headers_mut()
            .insert(RETRY_AFTER, retry_after(seconds));
    }
    response
}

/// The refusal of a request that is shed: 503 with a problem type of its own.
pub(crate) fn refuse_shed(shed: Shed, is_grpc: bool) -> Response<Bytes> {
    let refusal = shed.refusal();
    if is_grpc {
        return grpc::refusal(refusal, Shed::DETAIL);
    }
    // The body never changes, because shedding must be cheap.
    let mut response = problem(refusal.status, Bytes::from_static(SHED_PROBLEM.as_bytes()));
    if let Some(seconds) = refusal.retry_after_seconds() {
        response
            .headers_mut()
            .insert(RETRY_AFTER, retry_after(seconds));
    }
    response
}

/// The value of `Retry-After`.
fn retry_after(seconds: u64) -> HeaderValue {
    // Requests that are shed wait a few seconds, and a static value needs no allocation.
    const FEW: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    let few = usize::try_from(seconds)
        .ok()
        .and_then(|index| FEW.get(index));
    few.map_or_else(
        || HeaderValue::from(seconds),
        |text| HeaderValue::from_static(text),
    )
}

fn problem(status: u16, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    let headers = response.headers_mut();
    *headers = HeaderMap::with_capacity(FIELDS);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_CONTENT_TYPE));
    // RFC 6585 forbids storing a 429.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The sentence for people in problem details.
fn detail_of(problem: &[u8]) -> String {
    let parsed: Option<serde_json::Value> = serde_json::from_slice(problem).ok();
    let detail = parsed
        .as_ref()
        .and_then(|value| value.get("detail")?.as_str());
    detail.unwrap_or("the request is refused").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_waits_are_written_as_seconds() {
        for seconds in [0, 1, 9, 10, 11, u64::MAX] {
            assert_eq!(retry_after(seconds), seconds.to_string());
        }
    }
}
