//! The short way for plain requests: HTTP/1.1, GET or POST, whole in what was read, and nothing in the head that asks for
//! more than an answer on a connection that stays open. Nearly every request of a client library is one.
//!
//! Anything else, and every error, is left to hyper, which then has the connection for good: this file only ever says that a
//! request is plain or that it cannot tell. Must not know: what is asked or answered, sockets.

use std::mem::MaybeUninit;

use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Method};

/// The largest head of a plain request, in bytes; hyper is told the same bound.
pub(crate) const MAX_HEAD_LEN: usize = 16_384;
/// The most fields that a plain request has, likewise.
pub(crate) const MAX_FIELDS: usize = 64;

/// A request, found in the bytes that were read.
#[derive(Debug)]
pub(crate) struct PlainRequest<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) query: &'a str,
    pub(crate) headers: HeaderMap,
    pub(crate) body: &'a [u8],
    /// Bytes of all of it.
    pub(crate) len: usize,
}

/// What the handler reads of a request.
pub(crate) trait RequestBounds {
    /// The longest body that is read of such a request.
    fn max_body_len(&self, method: &Method, path: &str) -> usize;

    /// Whether anybody looks at the fields of such a request.
    fn reads_headers(&self, path: &str) -> bool;
}

/// The plain request that the input begins with, if it is one.
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
    if !path.starts_with('/') || !target.bytes().all(is_ordinary) {
        return None;
    }
    let length = body_len(request.headers)?;
    if length > 0 && (method == Method::GET || length > bounds.max_body_len(&method, path)) {
        return None;
    }
    if head > MAX_HEAD_LEN {
        return None;
    }
    let len = head.checked_add(length)?;
    let headers = if bounds.reads_headers(path) {
        map(request.headers)?
    } else {
        HeaderMap::new()
    };
    Some(PlainRequest {
        body: input.get(head..len)?,
        method,
        path,
        query,
        headers,
        len,
    })
}

/// Letters that mean the same to everybody who reads a target.
const fn is_ordinary(byte: u8) -> bool {
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

/// How long the body is. `None` if that is said in another way than by one length, or if a field asks for something.
fn body_len(fields: &[httparse::Header<'_>]) -> Option<usize> {
    let mut length = None;
    for field in fields {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        // Lengths first: most fields are told apart by theirs.
        match field.name.len() {
            14 if is("content-length") => {
                let digits = field.value;
                let is_number =
                    matches!(digits.len(), 1..=9) && digits.iter().all(u8::is_ascii_digit);
                let said = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
                if length.replace(said.parse().ok()?).is_some() {
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

fn map(fields: &[httparse::Header<'_>]) -> Option<HeaderMap> {
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
    fn a_plain_request_is_taken_apart_and_what_follows_is_left() {
        let input = b"POST /a?b=c HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}GET";
        let plain = parse_request(input, &Any).unwrap();
        assert_eq!(plain.method, Method::POST);
        assert_eq!((plain.path, plain.query), ("/a", "b=c"));
        assert_eq!((plain.body, plain.len), (&b"{}"[..], input.len() - 3));
        assert!(plain.headers.is_empty(), "nobody looks at them");
    }

    #[test]
    fn fields_are_there_for_those_who_look_at_them() {
        let input = b"GET /fields HTTP/1.1\r\nX-A: 1\r\nx-a: 2\r\nconnection: Keep-Alive\r\n\r\n";
        let plain = parse_request(input, &Any).unwrap();
        let values: Vec<_> = plain.headers.get_all("x-a").iter().collect();
        assert_eq!(values, ["1", "2"]);
    }

    #[test]
    fn no_beginning_of_a_request_is_plain() {
        let whole = "POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}";
        for cut in 0..whole.len() {
            assert!(!is_plain(&whole[..cut]), "{cut}");
        }
        assert!(is_plain(whole));
    }

    /// Each of these is hyper's: it may mean something else to whoever stands before us, or something is to be done.
    #[test]
    fn whatever_is_not_plain_is_left_to_others() {
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
