//! What a request is for: host and path, each in one spelling. Requests that two servers would read differently are refused.
//!
//! Must not know: routes, limits, connections.

use std::borrow::Cow;

use bytes::Bytes;
use hyper::ext::Protocol;
use hyper::header::{HOST, HeaderValue};
use hyper::http::request::Parts;
use hyper::http::uri::PathAndQuery;
use hyper::{Method, StatusCode, Uri, Version};

use super::limits::MAX_TARGET_LEN;
use super::path_spelling::canonical_path;

/// The longest host with its port.
const MAX_HOST_LEN: usize = 262;

/// Why a request is refused, and what the client is told.
pub(super) type Refused = (StatusCode, &'static str);

const fn bad_request(detail: &'static str) -> Refused {
    (StatusCode::BAD_REQUEST, detail)
}

/// Replaces the target by its one spelling in origin form, and the host by one `Host` field.
pub(super) fn normalize(head: &mut Parts) -> Result<(), Refused> {
    check_method(head)?;
    if head
        .uri
        .path_and_query()
        .map_or(0, |target| target.as_str().len())
        > MAX_TARGET_LEN
    {
        return Err((
            StatusCode::URI_TOO_LONG,
            "target: it is longer than 8192 bytes",
        ));
    }
    let host = host(head)?;
    let path = canonical_path(head.uri.path()).map_err(|error| bad_request(error.detail()))?;
    // Most targets have their one spelling already.
    let is_origin_form = head.uri.authority().is_none() && head.uri.scheme().is_none();
    if !is_origin_form || matches!(path, Cow::Owned(_)) {
        let target = match head.uri.query() {
            Some(query) => Bytes::from(format!("{path}?{query}")),
            None => Bytes::from(path.into_owned()),
        };
        let target = PathAndQuery::from_maybe_shared(target);
        let target = target.map_err(|_invalid| bad_request("target: it is not a path"))?;
        head.uri = Uri::from(target);
    }
    if let Some(host) = host {
        head.headers.insert(HOST, host);
    }
    Ok(())
}

/// The host of a normalized request, in lower case and without its port.
pub(super) fn host_name(headers: &hyper::HeaderMap) -> Cow<'_, str> {
    let host = headers
        .get(HOST)
        .and_then(|host| host.to_str().ok())
        .unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_end_matches('.');
    match name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => name.to_ascii_lowercase().into(),
        false => name.into(),
    }
}

fn check_method(head: &Parts) -> Result<(), Refused> {
    match head.method {
        // A tunnel to a host that the client names would make an open proxy. With `:protocol` it is a WebSocket.
        Method::CONNECT if head.extensions.get::<Protocol>().is_none() => Err((
            StatusCode::METHOD_NOT_ALLOWED,
            "method: CONNECT is not supported",
        )),
        // It would send the fields that we add back to the client.
        Method::TRACE => Err((
            StatusCode::METHOD_NOT_ALLOWED,
            "method: TRACE is not supported",
        )),
        _ => Ok(()),
    }
}

/// Checks the host with its port, and returns it if `Host` is missing. A request has exactly one: in the target, in `Host`, or
/// the same in both.
fn host(head: &Parts) -> Result<Option<HeaderValue>, Refused> {
    let mut fields = head.headers.get_all(HOST).iter();
    let (field, more) = (fields.next(), fields.next());
    if more.is_some() {
        return Err(bad_request("Host: it is sent more than once"));
    }
    if let Some(scheme) = head.uri.scheme_str()
        && !matches!(scheme, "http" | "https" | "ws" | "wss")
    {
        return Err(bad_request("target: its scheme is neither http nor https"));
    }
    let authority = head
        .uri
        .authority()
        .map(hyper::http::uri::Authority::as_str);
    let host = match (authority, field) {
        (Some(authority), Some(field))
            if !field.as_bytes().eq_ignore_ascii_case(authority.as_bytes()) =>
        {
            return Err(bad_request("Host: it is not the host of the target"));
        }
        (_, Some(field)) => field.as_bytes(),
        (Some(authority), None) => authority.as_bytes(),
        (None, None) if head.version == Version::HTTP_2 => {
            return Err(bad_request(":authority: it is missing"));
        }
        (None, None) => return Err(bad_request("Host: it is missing")),
    };
    if !is_host(host) {
        return Err(bad_request("Host: it is not a host name or an address"));
    }
    if field.is_some() {
        return Ok(None);
    }
    let host = HeaderValue::from_bytes(host);
    host.map(Some)
        .map_err(|_invalid| bad_request("target: its host is not valid"))
}

/// Whether this is a name or an address, with or without a port.
fn is_host(host: &[u8]) -> bool {
    let (name, port) = match host {
        [b'[', ..] => match host.iter().position(|byte| *byte == b']') {
            Some(end) => host.split_at(end + 1),
            None => return false,
        },
        _ => host.split_at(
            host.iter()
                .position(|byte| *byte == b':')
                .unwrap_or(host.len()),
        ),
    };
    let is_name = match name {
        [b'[', inner @ .., b']'] => {
            std::str::from_utf8(inner).is_ok_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok())
        }
        _ => name
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(byte)),
    };
    let is_port = match port {
        [] => true,
        [b':', digits @ ..] => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    !name.is_empty() && host.len() <= MAX_HOST_LEN && is_name && is_port
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    fn normalized(method: &str, target: &str, hosts: &[&str]) -> Result<(String, String), Refused> {
        let mut request = Request::builder().method(method).uri(target);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        let (mut head, ()) = request.body(()).unwrap().into_parts();
        normalize(&mut head)?;
        Ok((host_name(&head.headers).into_owned(), head.uri.to_string()))
    }

    #[test]
    fn host_and_path_have_one_spelling() {
        for (target, host, expected) in [
            ("/", "a.example", ("a.example", "/")),
            (
                "/a//b/../c?d//e",
                "A.Example.:80",
                ("a.example", "/a/c?d//e"),
            ),
            ("http://a.example/b?c", "a.example", ("a.example", "/b?c")),
            (
                "https://A.example:8443",
                "a.example:8443",
                ("a.example", "/"),
            ),
            ("/", "[::1]:80", ("[::1]", "/")),
            ("/", "192.0.2.7", ("192.0.2.7", "/")),
        ] {
            let found = normalized("GET", target, &[host]).unwrap();
            assert_eq!(found, (expected.0.to_owned(), expected.1.to_owned()));
        }
        let absolute = normalized("GET", "http://a.example/b", &[]).unwrap();
        assert_eq!(absolute, ("a.example".to_owned(), "/b".to_owned()));
    }

    #[test]
    fn requests_that_two_servers_would_read_differently_are_refused() {
        for (method, target, hosts, status) in [
            ("GET", "/", &[][..], 400),
            ("GET", "/", &["a", "a"], 400),
            ("GET", "/", &["a", "b"], 400),
            ("GET", "http://a/", &["b"], 400),
            ("GET", "http://u@a/", &[], 400),
            ("GET", "ftp://a/", &["a"], 400),
            ("GET", "a:80", &["a:80"], 400),
            ("OPTIONS", "*", &["a"], 400),
            ("GET", "/%00", &["a"], 400),
            ("GET", "/%2", &["a"], 400),
            ("GET", "/", &["a/b"], 400),
            ("GET", "/", &["a b"], 400),
            ("GET", "/", &["a@b"], 400),
            ("GET", "/", &["a:b"], 400),
            ("GET", "/", &["a:80:80"], 400),
            ("GET", "/", &[""], 400),
            ("GET", "/", &[":80"], 400),
            ("GET", "/", &["[::1"], 400),
            ("GET", "/", &["[a]"], 400),
            ("CONNECT", "a:443", &["a:443"], 405),
            ("TRACE", "/", &["a"], 405),
        ] {
            let refused = normalized(method, target, hosts).unwrap_err();
            assert_eq!(refused.0.as_u16(), status, "{method} {target} {hosts:?}");
        }
        let long = format!("/{}", "a".repeat(MAX_TARGET_LEN));
        assert_eq!(
            normalized("GET", &long, &["a"]).unwrap_err().0,
            StatusCode::URI_TOO_LONG
        );
    }
}
