//! Parses plain requests: HTTP/1.1 without a body, complete, and without a field that changes how the connection is used.
//!
//! hyper takes every other request and every error. This parser only accepts a head or gives up, and what it accepts is what
//! hyper and the framing guard accept; the fuzz target compares them. Must not know: targets, hosts, sockets.

use std::mem::MaybeUninit;

use bytes::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, Uri};

use crate::gateway::limits::{MAX_FIELDS, MAX_HEAD_LEN};

/// Fields that the gateway adds to a request. With room for them the map is not allocated twice.
const ADDED_FIELDS: usize = 8;

/// A plain request.
#[derive(Debug)]
pub(in crate::gateway) struct PlainRequest {
    pub(in crate::gateway) head: Parts,
    /// Whether the client closes the connection after the response.
    pub(in crate::gateway) is_last: bool,
}

/// What the start of some bytes is.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "it is moved once, and a box would cost each request an allocation"
)]
pub(in crate::gateway) enum ParsedHead {
    /// A plain request and its length.
    Plain(PlainRequest, usize),
    /// The start of a head.
    Incomplete,
    NotPlain,
}

/// Parses the head at the start of the bytes.
pub(in crate::gateway) fn parse_head(input: &[u8]) -> ParsedHead {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(input, &mut fields) {
        Ok(httparse::Status::Complete(len)) => match read_head(input, len, &request) {
            Some(request) => ParsedHead::Plain(request, len),
            None => ParsedHead::NotPlain,
        },
        Ok(httparse::Status::Partial) => ParsedHead::Incomplete,
        Err(_invalid) => ParsedHead::NotPlain,
    }
}

/// The request, or `None` if it is not plain.
fn read_head(
    input: &[u8],
    len: usize,
    request: &httparse::Request<'_, '_>,
) -> Option<PlainRequest> {
    let head = input.get(..len).filter(|head| head.len() <= MAX_HEAD_LEN)?;
    let fields = &*request.headers;
    if request.version != Some(1) || !has_whole_line_ends(head, fields) {
        return None;
    }
    let mut is_last = false;
    for field in fields {
        match FieldEffect::of(field) {
            FieldEffect::None => {}
            FieldEffect::Closes => is_last = true,
            FieldEffect::NotPlain => return None,
        }
    }
    let method = Method::from_bytes(request.method?.as_bytes()).ok()?;
    // hyper keeps what a tunnel would need.
    if method == Method::CONNECT {
        return None;
    }
    // All values share one copy.
    let bytes = Bytes::copy_from_slice(head);
    let copied = |part: &[u8]| match position(head, part) {
        Some(at) => bytes.slice(at..at.saturating_add(part.len())),
        None => Bytes::new(),
    };
    let mut headers = HeaderMap::with_capacity(fields.len().saturating_add(ADDED_FIELDS));
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        let value = HeaderValue::from_maybe_shared(copied(field.value)).ok()?;
        headers.append(name, value);
    }
    let target = Uri::from_maybe_shared(copied(request.path?.as_bytes())).ok()?;
    let (mut head, ()) = Request::new(()).into_parts();
    (head.method, head.uri, head.headers) = (method, target, headers);
    Some(PlainRequest { head, is_last })
}

/// Where a part of the input is. `None` if it is empty.
fn position(input: &[u8], part: &[u8]) -> Option<usize> {
    let at = part.as_ptr().addr().checked_sub(input.as_ptr().addr())?;
    let end = at.checked_add(part.len())?;
    (!part.is_empty() && end <= input.len()).then_some(at)
}

/// Whether every line ends with CRLF, and no line is before the request. The parser also takes LF alone and empty lines.
fn has_whole_line_ends(head: &[u8], fields: &[httparse::Header<'_>]) -> bool {
    let ends_before = |field: &httparse::Header<'_>| {
        let line_end =
            position(head, field.name.as_bytes()).and_then(|at| head.get(at.checked_sub(2)?..at));
        line_end == Some(b"\r\n")
    };
    // Each field begins behind the end of the line before it. Nothing inside a line is LF.
    head.first().is_some_and(u8::is_ascii_alphabetic)
        && head.ends_with(b"\r\n\r\n")
        && fields.iter().all(ends_before)
}

/// What a field changes of the connection or of the end of the request.
enum FieldEffect {
    None,
    /// The connection is closed after the response.
    Closes,
    NotPlain,
}

impl FieldEffect {
    fn of(field: &httparse::Header<'_>) -> Self {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        // Compare lengths first: most field names differ in theirs.
        match field.name.len() {
            14 if is("content-length") => Self::NotPlain,
            17 if is("transfer-encoding") => Self::NotPlain,
            10 if is("connection") => match field.value {
                value if value.eq_ignore_ascii_case(b"keep-alive") => Self::None,
                value if value.eq_ignore_ascii_case(b"close") => Self::Closes,
                _ => Self::NotPlain,
            },
            7 if is("upgrade") => Self::NotPlain,
            6 if is("expect") => Self::NotPlain,
            _ => Self::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> ParsedHead {
        parse_head(text.as_bytes())
    }

    #[test]
    fn a_plain_head_is_parsed_and_what_follows_is_left() {
        let text = "GET /a?b=c HTTP/1.1\r\nHost: x\r\nX-A: 1\r\nx-a:\t2 \r\nx-empty:\r\nConnection: Keep-Alive\r\n\r\n";
        let ParsedHead::Plain(PlainRequest { head, is_last }, len) =
            parsed(&format!("{text}GET /next"))
        else {
            panic!("it is plain");
        };
        assert!(!is_last);
        assert_eq!(len, text.len());
        assert_eq!(
            (head.method, head.uri),
            (Method::GET, Uri::from_static("/a?b=c"))
        );
        let values: Vec<_> = head.headers.get_all("x-a").iter().collect();
        assert_eq!(values, ["1", "2"]);
        assert_eq!(
            (&head.headers["host"], &head.headers["x-empty"]),
            (&"x".parse().unwrap(), &"".parse().unwrap())
        );
    }

    #[test]
    fn a_request_may_be_the_last_of_its_connection() {
        for (fields, expected) in [
            ("Connection: Close\r\n", true),
            ("Connection: close\r\nConnection: keep-alive\r\n", true),
            ("Connection: keep-alive\r\n", false),
        ] {
            let text = format!("GET / HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
            let ParsedHead::Plain(request, _) = parsed(&text) else {
                panic!("it is plain");
            };
            assert_eq!(request.is_last, expected, "{fields}");
        }
    }

    #[test]
    fn a_head_is_incomplete_until_its_last_byte() {
        let text = "DELETE / HTTP/1.1\r\nHost: x\r\n\r\n";
        for cut in 0..text.len() {
            assert!(
                matches!(parsed(&text[..cut]), ParsedHead::Incomplete),
                "{cut}"
            );
        }
        assert!(matches!(parsed(text), ParsedHead::Plain(..)));
    }

    /// Two servers may read each of these differently, or hyper has more to do than to answer it.
    #[test]
    fn heads_that_are_not_plain_are_left_to_hyper() {
        let get = |fields: &str| format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        for text in [
            get("Content-Length: 0\r\n"),
            get("content-length: 2\r\ncontent-length: 2\r\n"),
            get("Transfer-Encoding: chunked\r\n"),
            get("Connection: close, x-a\r\n"),
            get("Connection: keep-alive, x-a\r\n"),
            get("Upgrade: websocket\r\n"),
            get("EXPECT: 100-continue\r\n"),
            get("X-A: b\n"),
            get("X-A : b\r\n"),
            get("X-A: b\r\n folded\r\n"),
            get("X-A: \0\r\n"),
            get(&"a: b\r\n".repeat(MAX_FIELDS)),
            get(&format!("a: {}\r\n", "b".repeat(MAX_HEAD_LEN))),
            "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\nHost: a\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\r\nHost: a\n\r\n".to_owned(),
            "GET / HTTP/1.1\r\nHost: a\r\n\n".to_owned(),
            "GET / HTTP/1.1\n\n".to_owned(),
            "GET / HTTP/1.0\r\nHost: a\r\n\r\n".to_owned(),
            "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n".to_owned(),
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        ] {
            assert!(matches!(parsed(&text), ParsedHead::NotPlain), "{text:?}");
        }
    }
}
