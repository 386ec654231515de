//! The same request as HTTP/1.1 and as HTTP/2: where the authority stands, and which fields each version has.
//!
//! Both functions take what either of them left, because a retry may go to an address with the other version. Must not
//! know: connections, routes.

use bytes::Bytes;
use hyper::header::{CONNECTION, COOKIE, HOST, HeaderMap, HeaderValue, TE, UPGRADE};
use hyper::http::uri::{Authority, PathAndQuery, Scheme};
use hyper::{Method, Request, Uri, Version};
use tollgate_policy::model::UpstreamProtocol;

use crate::gateway::request_body::RequestBody;

/// The request as HTTP/1.1: the target in origin form, the authority in `Host`, one `Cookie` line.
pub(super) fn to_http1<B>(request: &mut Request<B>) {
    *request.version_mut() = Version::HTTP_11;
    if let Some(authority) = request.uri().authority() {
        let host = HeaderValue::from_str(authority.as_str());
        let path = request.uri().path_and_query().cloned();
        *request.uri_mut() = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
        if let Ok(host) = host {
            request.headers_mut().insert(HOST, host);
        }
    }
    let headers = request.headers_mut();
    join_cookies(headers);
    if headers.contains_key(TE) && !headers.contains_key(UPGRADE) {
        headers.insert(CONNECTION, HeaderValue::from_static("te"));
    }
}

/// The request as HTTP/2: the target with scheme and authority, and no field of a connection.
pub(super) fn to_http2<B>(request: &mut Request<B>, protocol: UpstreamProtocol) {
    *request.version_mut() = Version::HTTP_2;
    let headers = request.headers_mut();
    headers.remove(CONNECTION);
    let host = headers.remove(HOST);
    let authority = host.and_then(|host| {
        Authority::from_maybe_shared(Bytes::copy_from_slice(host.as_bytes())).ok()
    });
    if let Some(authority) = authority {
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        parts.scheme = Some(match protocol {
            UpstreamProtocol::Https => Scheme::HTTPS,
            UpstreamProtocol::Http | UpstreamProtocol::H2c => Scheme::HTTP,
        });
        parts.authority = Some(authority);
        *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    }
}

/// HTTP/2 clients may send each cookie in a field of its own (RFC 9113, section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(COOKIE).iter().nth(1).is_none() {
        return;
    }
    let lines: Vec<&[u8]> = headers
        .get_all(COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    // Valid values stay valid when they are joined.
    if let Ok(joined) = HeaderValue::from_bytes(&lines.join(&b"; "[..])) {
        headers.insert(COOKIE, joined);
    }
}

/// The same request without a body.
pub(super) fn copy_head(request: &Request<RequestBody>) -> Request<RequestBody> {
    let mut copy = Request::new(RequestBody::Empty);
    *copy.method_mut() = Method::clone(request.method());
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_both_versions_in_any_order() {
        let mut request = Request::builder()
            .uri("/a?b")
            .header(HOST, "a.example:8080")
            .header(COOKIE, "a=1")
            .header(COOKIE, "b=2")
            .header(TE, "trailers")
            .body(())
            .unwrap();
        for _ in 0..2 {
            to_http2(&mut request, UpstreamProtocol::H2c);
            assert_eq!(request.uri(), "http://a.example:8080/a?b");
            assert!(
                !request.headers().contains_key(HOST)
                    && !request.headers().contains_key(CONNECTION)
            );
            to_http1(&mut request);
            assert_eq!(request.uri(), "/a?b");
            assert_eq!(request.headers()[HOST], "a.example:8080");
            assert_eq!(request.headers()[COOKIE], "a=1; b=2");
            assert_eq!(request.headers()[CONNECTION], "te");
        }
        to_http2(&mut request, UpstreamProtocol::Https);
        assert_eq!(request.uri().scheme_str(), Some("https"));
    }
}
