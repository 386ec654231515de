//! Any bytes as what a client sends over HTTP/1.1, for fuzzing: how heads are framed, refused and normalized.
//!
//! hyper reads the bytes twice, with the guard and without it. The fast path reads the plain requests at their start. Must not know: routes, upstreams, limits.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HOST, TRANSFER_ENCODING, UPGRADE};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::time::Instant;

use super::framing_guard::FramingGuard;
use super::head_timer::HeadTimer;
use super::header_rules::remove_hop_by_hop;
use super::http1::fast_parser::{ParsedHead, parse_head};
use super::limits::{MAX_FIELDS, MAX_HEAD_LEN};
use super::request_framing::RequestFraming;
use super::request_target::normalize;
use super::tracked_stream::TrackedStream;
use super::websocket::ConnectionTunnel;

/// The longest input, and room for all responses to it.
const MAX_LEN: usize = 4_096;
const PIPE_LEN: usize = 1 << 20;

/// Fragments that random bytes rarely contain. A byte below their number stands for one of them.
const FRAGMENTS: [&[u8]; 29] = [
    b"GET / HTTP/1.1\r\nHost: a\r\n",
    b"POST /a HTTP/1.1\r\nHost: a\r\n",
    b"GET http://a/%2e%2E//b?c HTTP/1.1\r\n",
    b"POST / HTTP/1.0\r\n",
    b"Host: a\r\n",
    b"Content-Length: 5\r\n",
    b"content-length:0\r\n",
    b"Content-Length: 5",
    b"Transfer-Encoding: chunked\r\n",
    b"transfer-encoding: CHUNKED\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Connection: close, x-a, content-length\r\n",
    b"Connection: upgrade\r\nUpgrade: websocket\r\n",
    b"Expect: 100-continue\r\n",
    b"X-A: b\r\n",
    b" folded\r\n",
    b"\r\n",
    b"\r\n\r\n",
    b"\n",
    b"\r",
    b"5\r\nabcde\r\n",
    b"0\r\n\r\n",
    b"0\r\nX-A: b\r\n\r\n",
    b"5;x=y\r\n",
    b"abcde",
    b"FFFFFFFFFFFFFFFF\r\n",
    b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
    b"\x00",
    b"Connection: close\r\n",
];

/// Reads the bytes as requests.
///
/// # Panics
/// The framing depends on how the bytes are cut, the guard changes a request that it does not refuse, the fast path reads other
/// requests than hyper, or a normalized head is not normal.
#[doc(hidden)]
pub fn fuzz_request_head(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else {
        return;
    };
    let mut input = Vec::new();
    for byte in rest {
        match FRAGMENTS.get(usize::from(*byte)) {
            Some(fragment) => input.extend_from_slice(fragment),
            None => input.push(*byte),
        }
    }
    input.truncate(MAX_LEN);
    let refused = refused_at(&input, MAX_LEN);
    assert_eq!(refused_at(&input, usize::from(*first % 61) + 1), refused);
    let plain = requests(&input, |stream| stream);
    let guarded = requests(&input, guarded_stream);
    assert!(plain.starts_with(&guarded), "{plain:?} {guarded:?}");
    assert!(refused.is_some() || plain == guarded);
    let fast = requests_by_fast_path(&input);
    assert_eq!(fast, guarded, "the fast path reads other requests");
}

/// The requests that the fast path finds in the bytes, until one is not plain, and then those that hyper finds.
fn requests_by_fast_path(input: &[u8]) -> Vec<String> {
    let (mut found, mut rest) = (Vec::new(), input);
    while let [_, ..] = rest
        && let ParsedHead::Plain(mut request, len) = parse_head(rest)
    {
        found.push(format!(
            "{} {:?}",
            describe(&mut request.head),
            Bytes::new()
        ));
        if request.is_last {
            return found;
        }
        rest = rest.get(len..).unwrap_or_default();
    }
    found.extend(requests(rest, guarded_stream));
    found
}

/// The parts of a head that matter, as text.
fn describe(head: &mut Parts) -> String {
    let mut text = format!(
        "{} {} {:?} {:?}",
        head.method, head.uri, head.version, head.headers
    );
    if normalize(head).is_ok() {
        check_normal(head);
        text.push_str(" normal");
    }
    text
}

/// A stream as the gateway reads it.
fn guarded_stream(stream: DuplexStream) -> TrackedStream<DuplexStream> {
    let guard = FramingGuard::new(ConnectionTunnel::default());
    let timer = HeadTimer::new(Duration::MAX, Duration::MAX, Instant::now());
    TrackedStream::new(stream, guard, timer.tracker())
}

/// Where the bytes are refused if they arrive in pieces of this length.
fn refused_at(input: &[u8], len: usize) -> Option<usize> {
    let mut framing = RequestFraming::new();
    let mut pieces = input.chunks(len).enumerate();
    pieces.find_map(|(number, piece)| Some(number * len + framing.scan(piece)?))
}

/// The requests that hyper finds in the bytes.
fn requests<S>(input: &[u8], wrap: impl FnOnce(DuplexStream) -> S) -> Vec<String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut client, server) = duplex(PIPE_LEN);
    let found = Arc::<Mutex<Vec<String>>>::default();
    let seen = Arc::clone(&found);
    let service = service_fn(move |request| answer(request, Arc::clone(&seen)));
    let connection = http1::Builder::new()
        // The input ends before it is answered.
        .half_close(true)
        .max_buf_size(MAX_HEAD_LEN)
        .max_headers(MAX_FIELDS)
        .serve_connection(TokioIo::new(wrap(server)), service);
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let Ok(runtime) = runtime else {
        return Vec::new();
    };
    runtime.block_on(async {
        // Both end early when the server refuses.
        let _sent = client.write_all(input).await;
        let _closed = client.shutdown().await;
        let _ended = connection.await;
    });
    let found = found.lock().unwrap_or_else(PoisonError::into_inner);
    found.clone()
}

async fn answer(
    request: Request<Incoming>,
    found: Arc<Mutex<Vec<String>>>,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    let (mut head, body) = request.into_parts();
    let mut text = describe(&mut head);
    if let Ok(body) = body.collect().await {
        text.push_str(&format!(" {:?}", body.to_bytes()));
        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
        found.push(text);
    }
    Ok(Response::new(Empty::new()))
}

fn check_normal(head: &mut Parts) {
    let (target, host) = (head.uri.clone(), head.headers.get(HOST).cloned());
    assert!(target.path().starts_with('/') && target.authority().is_none());
    assert!(!target.path().contains("//") && !target.path().contains("/../"));
    assert_eq!(head.headers.get_all(HOST).iter().count(), 1);
    assert!(normalize(head).is_ok());
    assert_eq!(
        (&head.uri, head.headers.get(HOST)),
        (&target, host.as_ref())
    );
    remove_hop_by_hop(&mut head.headers);
    for name in [CONNECTION, UPGRADE, TRANSFER_ENCODING] {
        assert!(!head.headers.contains_key(name));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn any_bytes_are_framed_and_normalized(bytes in prop::collection::vec(prop_oneof![4 => 0..29_u8, 1 => any::<u8>()], 0..24)) {
            fuzz_request_head(&bytes);
        }
    }

    /// Negative control: a parser that takes LF as the end of a line finds a request that the guard refuses.
    #[test]
    fn control_the_parser_of_hyper_alone_accepts_lines_without_cr() {
        let input = b"GET / HTTP/1.1\nHost: a\n\n";
        assert_eq!(requests(input, |stream| stream).len(), 1);
        assert_eq!(requests_by_fast_path(input), Vec::<String>::new());
    }

    /// Negative control: without the guard, hyper finds a request where both fields were sent.
    #[test]
    fn control_hyper_alone_accepts_two_lengths() {
        let input =
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nabcde";
        assert_eq!(requests(input, |stream| stream).len(), 1);
        let guarded = requests(input, guarded_stream);
        assert_eq!(guarded, Vec::<String>::new());
    }
}
