//! The HTTP/1 fast path compared with hyper: the same bytes get the same responses, or go to hyper.
//!
//! A server with the fast path is compared with one where hyper parses every request: on known request smuggling shapes, on
//! random pipelines, and on arbitrary bytes. `negative_controls.rs` shows that the comparison detects a wrong parser.

mod any_bytes;
mod negative_controls;
mod requests;

use proptest::prelude::*;

use self::any_bytes::both;

/// Shapes on which two HTTP parsers have disagreed about where a request ends or what it asks.
pub(crate) const SHAPES: &[(&str, &str)] = &[
    (
        "CL.TE",
        "POST /v1/check HTTP/1.1\r\nhost: a\r\ncontent-length: 6\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGGET /healthz HTTP/1.1\r\n\r\n",
    ),
    (
        "TE.CL",
        "POST /v1/check HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n5c\r\nGPOST / HTTP/1.1\r\n\r\n0\r\n\r\n",
    ),
    (
        "TE.TE, the second one strange",
        "POST /v1/check HTTP/1.1\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\ntransfer-encoding: cow\r\n\r\n0\r\n\r\n",
    ),
    (
        "a transfer encoding behind a tab",
        "POST /v1/check HTTP/1.1\r\ncontent-length: 2\r\ntransfer-encoding:\tchunked\r\n\r\n{}0\r\n\r\n",
    ),
    (
        "a transfer encoding that is no encoding",
        "POST /v1/check HTTP/1.1\r\ncontent-length: 2\r\ntransfer-encoding: identity\r\n\r\n{}GET /healthz HTTP/1.1\r\n\r\n",
    ),
    (
        "a blank before the colon",
        "POST /v1/check HTTP/1.1\r\ncontent-length : 2\r\n\r\n{}GET /healthz HTTP/1.1\r\n\r\n",
    ),
    (
        "two lengths that differ",
        "POST /v1/check HTTP/1.1\r\ncontent-length: 2\r\ncontent-length: 28\r\n\r\n{}GET /healthz HTTP/1.1\r\n\r\n",
    ),
    (
        "two lengths that agree",
        "POST /v1/check HTTP/1.1\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\n{}GET /healthz HTTP/1.1\r\n\r\n",
    ),
    (
        "two lengths in one line",
        "POST /v1/check HTTP/1.1\r\ncontent-length: 2, 2\r\n\r\n{}GET /healthz HTTP/1.1\r\n\r\n",
    ),
    (
        "a length with a sign",
        "POST /v1/check HTTP/1.1\r\ncontent-length: +2\r\n\r\n{}GET /healthz HTTP/1.1\r\n\r\n",
    ),
    (
        "a length that begins with zero",
        "POST /v1/check HTTP/1.1\r\ncontent-length: 002\r\n\r\n{}GET /healthz HTTP/1.1\r\n\r\n",
    ),
    (
        "a length in hexadecimal",
        "POST /v1/check HTTP/1.1\r\ncontent-length: 0x2\r\n\r\n{}GET /healthz HTTP/1.1\r\n\r\n",
    ),
    (
        "a length beyond any number",
        "POST /v1/check HTTP/1.1\r\ncontent-length: 18446744073709551618\r\n\r\n{}",
    ),
    (
        "an empty length",
        "POST /v1/check HTTP/1.1\r\ncontent-length:\r\n\r\n{}GET /healthz HTTP/1.1\r\n\r\n",
    ),
    (
        "a GET with a body that is a request",
        "GET /healthz HTTP/1.1\r\ncontent-length: 29\r\n\r\nGET /v1/check?key=a HTTP/1.1\r\nGET /healthz HTTP/1.1\r\n\r\n",
    ),
    (
        "a POST whose unread body is a request",
        "POST /healthz HTTP/1.1\r\ncontent-length: 33\r\n\r\nGET /v1/check?key=a HTTP/1.1\r\n\r\n\r\n",
    ),
    (
        "a HEAD before others",
        "HEAD /healthz HTTP/1.1\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n",
    ),
    (
        "a request of HTTP/1.0 before others",
        "GET /healthz HTTP/1.0\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n",
    ),
    (
        "a connection that is to be closed before others",
        "GET /healthz HTTP/1.1\r\nconnection: close\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n",
    ),
    (
        "an upgrade before others",
        "GET /healthz HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n",
    ),
    (
        "an expectation",
        "POST /v1/check HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n{}GET /healthz HTTP/1.1\r\n\r\n",
    ),
    (
        "a folded line",
        "POST /v1/check HTTP/1.1\r\nx: y\r\n content-length: 2\r\n\r\n{}GET /healthz HTTP/1.1\r\n\r\n",
    ),
    (
        "bare line feeds",
        "POST /v1/check HTTP/1.1\ncontent-length: 2\n\n{}GET /healthz HTTP/1.1\n\n",
    ),
    (
        "a bare carriage return in a value",
        "POST /v1/check HTTP/1.1\r\nx: a\rcontent-length: 9\r\ncontent-length: 2\r\n\r\n{}GET /healthz HTTP/1.1\r\n\r\n",
    ),
    (
        "a zero byte in a name",
        "GET /healthz HTTP/1.1\r\na\0b: c\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n",
    ),
    (
        "empty lines before a request",
        "\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n",
    ),
    (
        "two blanks in the request line",
        "GET  /healthz HTTP/1.1\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n",
    ),
    (
        "no version",
        "GET /healthz\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n",
    ),
    (
        "an absolute target with another host",
        "GET http://b/healthz HTTP/1.1\r\nhost: a\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n",
    ),
    (
        "a target of two slashes",
        "GET //v1/check?key=a HTTP/1.1\r\n\r\nGET /v1//check HTTP/1.1\r\n\r\n",
    ),
    (
        "a target with a fragment",
        "GET /healthz#a HTTP/1.1\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n",
    ),
    (
        "two queries",
        "GET /v1/check?key=a?key=b HTTP/1.1\r\n\r\nGET /v1/check? HTTP/1.1\r\n\r\n",
    ),
    (
        "the preface of HTTP/2",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
    ),
    (
        "a gateway's fields twice",
        "GET /auth/nginx HTTP/1.1\r\nx-original-method: GET\r\nX-Original-Method: POST\r\nx-original-uri: /a\r\nx-original-host: h\r\n\
         x-real-ip: 192.0.2.1\r\nX-Real-IP: 192.0.2.2\r\n\r\n",
    ),
    (
        "seventeen plain requests",
        "GET /v1/check?key=a HTTP/1.1\r\nhost: a\r\n\r\nPOST /v1/check HTTP/1.1\r\ncontent-length: 11\r\n\r\n{\"key\":\"a\"}\
         GET /v1/check?key=a HTTP/1.1\r\n\r\nGET /nowhere HTTP/1.1\r\n\r\nGET /v1/settle HTTP/1.1\r\n\r\n",
    ),
    (
        "half a request behind a whole one",
        "GET /healthz HTTP/1.1\r\n\r\nPOST /v1/check HTTP/1.1\r\ncontent-length: 11\r\n\r\n{\"key\"",
    ),
];

#[test]
fn shapes_that_smuggle_requests_are_answered_as_by_hyper_wherever_they_are_cut() {
    for (name, bytes) in SHAPES {
        let bytes = bytes.as_bytes();
        for cut in 0..bytes.len() {
            let (first, second) = bytes.split_at(cut);
            let (fast, by_hyper) = both(&[first, second]);
            assert_eq!(fast, by_hyper, "{name}, cut at {cut}");
        }
    }
}

/// Requests that are too long for the fast path, or for any parser.
///
/// Nothing precedes a long head: how far hyper lets a head exceed its limit depends on the position of the head in hyper's
/// buffer, so on which parser has read the request before it.
#[test]
fn long_requests_are_answered_as_by_hyper() {
    let plain = "GET /healthz HTTP/1.1\r\n\r\n";
    let head = |len: usize| {
        let padding = "y".repeat(len);
        format!("GET /healthz HTTP/1.1\r\nx: {padding}\r\n\r\n{plain}")
    };
    let body = |len: usize| {
        let body = format!("{{\"key\":\"{}\"}}", "k".repeat(len));
        let len = body.len();
        format!("{plain}POST /v1/check HTTP/1.1\r\ncontent-length: {len}\r\n\r\n{body}{plain}")
    };
    let fields = |count: usize| {
        let fields = "x: y\r\n".repeat(count);
        format!("{plain}GET /healthz HTTP/1.1\r\n{fields}\r\n{plain}")
    };
    let heads = [100, 16_300, 16_340, 16_350, 16_360, 16_384, 40_000].map(head);
    let bodies = [100, 8_000, 8_180, 8_192, 8_193, 40_000].map(body);
    let many = [1, 63, 64, 65, 100].map(fields);
    for bytes in heads.iter().chain(&bodies).chain(&many) {
        let bytes = bytes.as_bytes();
        let in_pieces: Vec<&[u8]> = bytes.chunks(1_000).collect();
        for packets in [vec![bytes], in_pieces] {
            let (fast, by_hyper) = both(&packets);
            assert!(fast == by_hyper, "{} bytes: {fast} {by_hyper}", bytes.len());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn random_pipelines_are_answered_as_by_hyper(sent in requests::pipelined_requests()) {
        let (fast, by_hyper) = both(&sent.packets());
        prop_assert_eq!(fast, by_hyper);
    }
}
