//! Parses plain requests: HTTP/1.1, GET or POST, complete in one read, on a connection that stays open, without a field that
//! needs special handling. Nearly all requests of client libraries are plain.
//!
//! hyper takes every other request and every error, and then keeps the connection. This parser only accepts a request or gives
//! up. Must not know: endpoints, sockets.

use std::mem::MaybeUninit;

use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Method};

use crate::http::cross_site::BodyType;
use crate::http::prefer::BodyForm;

/// The largest head of a plain request, in bytes. hyper has the same limit.
pub(crate) const MAX_HEAD_LEN: usize = 16_384;
/// The most header fields of a plain request. hyper has the same limit.
pub(crate) const MAX_FIELDS: usize = 64;

/// A plain request, borrowed from the input.
#[derive(Debug)]
pub(crate) struct PlainRequest<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) query: &'a str,
    pub(crate) headers: HeaderMap,
    pub(crate) prefer: Option<BodyForm>,
    pub(crate) body: &'a [u8],
    /// The length of the whole request in bytes.
    pub(crate) len: usize,
}

/// What the handler needs of a request.
pub(crate) trait RequestBounds {
    /// The longest body that is read for such a request.
    fn max_body_len(&self, method: &Method, path: &str) -> usize;

    /// Whether the endpoint at this path uses header fields.
    fn reads_headers(&self, path: &str) -> bool;
}

/// Parses the plain request at the start of the input. Returns `None` if it is not plain or not complete.
pub(crate) fn parse_request<'a>(
    input: &'a [u8],
    bounds: &impl RequestBounds,
) -> Option<PlainRequest<'a>> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut []);
    let parsed = request.parse_with_uninit_headers(input, &mut fields);
    let Ok(httparse::Status::Complete(head)) = parsed else {
        return None;
    };
    let method = match (request.method?, request.version?) {
        ("GET", 1) => Method::GET,
        ("POST", 1) => Method::POST,
        _ => return None,
    };
    let target = request.path?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if !path.starts_with('/') || !target.bytes().all(is_unambiguous) {
        return None;
    }
    let reads_headers = bounds.reads_headers(path);
    let length = body_len(request.headers)?;
    // The endpoint would not see these fields, so hyper takes the request.
    if !reads_headers && may_be_from_web_page(request.headers) {
        return None;
    }
    if length > 0 && (method == Method::GET || length > bounds.max_body_len(&method, path)) {
        return None;
    }
    if head > MAX_HEAD_LEN {
        return None;
    }
    let len = head.checked_add(length)?;
    let headers = if reads_headers {
        header_map(request.headers)?
    } else {
        HeaderMap::new()
    };
    Some(PlainRequest {
        body: input.get(head..len)?,
        method,
        path,
        query,
        headers,
        prefer: preferred_form(request.headers),
        len,
    })
}

/// Bytes of a request target that every HTTP implementation reads alike.
const fn is_unambiguous(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'/' | b'?'
                | b'&'
                | b'='
                | b'%'
                | b'-'
                | b'_'
                | b'.'
                | b'~'
                | b'+'
                | b':'
                | b'@'
                | b','
                | b';'
                | b'!'
        )
}

/// The length of the body. `None` if it is given in another way than by one `Content-Length`, or if a field needs special
/// handling.
fn body_len(fields: &[httparse::Header<'_>]) -> Option<usize> {
    let mut length = None;
    for field in fields {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        // Compare lengths first: most field names differ in theirs.
        match field.name.len() {
            14 if is("content-length") => {
                let digits = field.value;
                let is_number =
                    matches!(digits.len(), 1..=9) && digits.iter().all(u8::is_ascii_digit);
                let text = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
                if length.replace(text.parse().ok()?).is_some() {
                    return None;
                }
            }
            10 if is("connection") && !field.value.eq_ignore_ascii_case(b"keep-alive") => {
                return None;
            }
            17 if is("transfer-encoding") => return None,
            6 if is("expect") => return None,
            7 if is("upgrade") => return None,
            _ => {}
        }
    }
    Some(length.unwrap_or(0))
}

/// Whether a browser may have sent the request for a web page, or its body may be no JSON. See `cross_site.rs`.
fn may_be_from_web_page(fields: &[httparse::Header<'_>]) -> bool {
    let mut has_type = false;
    fields.iter().any(|field| {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        match field.name.len() {
            6 => is("origin"),
            12 if is("content-type") => {
                std::mem::replace(&mut has_type, true)
                    || BodyType::parse(field.value) == BodyType::Other
            }
            14 => is("sec-fetch-site"),
            _ => false,
        }
    })
}

/// The body that the client prefers, which is seen also where other header fields are not collected.
fn preferred_form(fields: &[httparse::Header<'_>]) -> Option<BodyForm> {
    let is_prefer = |name: &str| name.len() == 6 && name.eq_ignore_ascii_case("prefer");
    let sent = fields.iter().filter(|field| is_prefer(field.name));
    BodyForm::from_fields(sent.map(|field| field.value))
}

fn header_map(fields: &[httparse::Header<'_>]) -> Option<HeaderMap> {
    let mut map = HeaderMap::with_capacity(fields.len());
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        map.append(name, HeaderValue::from_bytes(field.value).ok()?);
    }
    Some(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Any;

    impl RequestBounds for Any {
        fn max_body_len(&self, method: &Method, _path: &str) -> usize {
            if *method == Method::POST { 8 } else { 0 }
        }

        fn reads_headers(&self, path: &str) -> bool {
            path == "/fields"
        }
    }

    fn is_plain(request: &str) -> bool {
        parse_request(request.as_bytes(), &Any).is_some()
    }

    #[test]
    fn a_plain_request_is_parsed_and_the_next_one_is_left() {
        let input = b"POST /a?b=c HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}GET";
        let plain = parse_request(input, &Any).unwrap();
        assert_eq!(plain.method, Method::POST);
        assert_eq!((plain.path, plain.query), ("/a", "b=c"));
        assert_eq!((plain.body, plain.len), (&b"{}"[..], input.len() - 3));
        assert!(plain.headers.is_empty(), "nobody looks at them");
    }

    #[test]
    fn header_fields_are_collected_where_the_endpoint_reads_them() {
        let input = b"GET /fields HTTP/1.1\r\nX-A: 1\r\nx-a: 2\r\norigin: a\r\nconnection: Keep-Alive\r\n\r\n";
        let plain = parse_request(input, &Any).unwrap();
        let values: Vec<_> = plain.headers.get_all("x-a").iter().collect();
        assert_eq!(values, ["1", "2"]);
    }

    #[test]
    fn no_incomplete_request_is_plain() {
        let whole = "POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}";
        for cut in 0..whole.len() {
            assert!(!is_plain(&whole[..cut]), "{cut}");
        }
        assert!(is_plain(whole));
    }

    /// hyper handles each of these: another proxy may read it differently, or it needs special handling.
    #[test]
    fn requests_that_are_not_plain_are_left_to_hyper() {
        let post = |fields: &str| format!("POST / HTTP/1.1\r\n{fields}\r\n{{}}");
        for request in [
            post("content-length: 2\r\ncontent-length: 2\r\n"),
            post("content-length: +2\r\n"),
            post("content-length: 2, 2\r\n"),
            post("content-length: \r\n"),
            post("content-length: 99999999999999999999\r\n"),
            post("content-length: 2\r\ntransfer-encoding: chunked\r\n"),
            post("Transfer-Encoding: identity\r\n"),
            post("content-length: 2\r\nexpect: 100-continue\r\n"),
            post("content-length: 2\r\nupgrade: h2c\r\n"),
            post("content-length: 2\r\norigin: http://a\r\n"),
            post("content-length: 2\r\nSec-Fetch-Site: cross-site\r\n"),
            post("content-length: 2\r\nContent-Type: text/plain\r\n"),
            post(&"content-type: application/json\r\n".repeat(2)),
            post("content-length: 2\r\nconnection: close\r\n"),
            post("content-length: 2\r\nconnection: keep-alive, upgrade\r\n"),
            post("content-length: 9\r\n") + "1234567890",
            "GET / HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}".to_owned(),
            "GET / HTTP/1.0\r\n\r\n".to_owned(),
            "HEAD / HTTP/1.1\r\n\r\n".to_owned(),
            "OPTIONS * HTTP/1.1\r\n\r\n".to_owned(),
            "GET http://a/ HTTP/1.1\r\n\r\n".to_owned(),
            "GET /a#b HTTP/1.1\r\n\r\n".to_owned(),
            "GET /\"a HTTP/1.1\r\n\r\n".to_owned(),
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\r\n a: folded\r\n\r\n".to_owned(),
            format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(65)),
            format!("GET / HTTP/1.1\r\na: {}\r\n\r\n", "b".repeat(MAX_HEAD_LEN)),
        ] {
            assert!(!is_plain(&request), "{request}");
        }
    }
}
