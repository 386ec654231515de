//! Hostile clients (S-37): each is answered or disconnected, and all other clients are served.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tollgate_server::grpc::GrpcLimits;

use super::client::{Descriptor, SHOULD_RATE_LIMIT, framed, request};
use super::{OK, TestGrpcServer, serve_policy};

pub(super) const DEADLINE: Duration = Duration::from_secs(30);
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(super) const POLICY: &str = "limits: [{ name: all, rate: 100000/s }]";

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut out = length[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

/// The head of a call, without header compression.
pub(super) fn head(path: &str) -> Vec<u8> {
    let mut out = vec![0x83, 0x86, 0x04, u8::try_from(path.len()).unwrap()];
    out.extend(path.as_bytes());
    out.extend([0x01, 1, b'a', 0x0f, 0x10, 16]);
    out.extend(b"application/grpc");
    out
}

pub(super) fn request_frame() -> Vec<u8> {
    framed(&request("d", &[Descriptor::new(&[("a", "b")])], 0))
}

/// Sends bytes after the connection preface, and reads until the server closes or is idle.
pub(super) async fn send(serving: &TestGrpcServer, bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut all = PREFACE.to_vec();
    all.extend(frame(SETTINGS, 0, 0, &[]));
    all.extend(bytes);
    send_raw(serving, &all).await
}

async fn send_raw(serving: &TestGrpcServer, bytes: &[u8]) -> (Vec<u8>, bool) {
    let stream = TcpStream::connect(serving.address).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let mut received = Vec::new();
    let sending = async {
        // The server may close before all bytes are sent.
        let _sent = writer.write_all(bytes).await;
        // The reply to a ping means that the server has processed everything before it.
        let _sent = writer.write_all(&frame(PING, 0, 0, b"the end!")).await;
    };
    let reading = async {
        let mut buffer = vec![0; 1 << 16];
        loop {
            match reader.read(&mut buffer).await {
                Ok(0) | Err(_) => return true,
                Ok(count) => received.extend(&buffer[..count]),
            }
            let answered = frame(PING, 1, 0, b"the end!");
            if received
                .windows(answered.len())
                .any(|part| part == answered)
            {
                return false;
            }
        }
    };
    let both = async { tokio::join!(sending, reading) };
    let ((), is_closed) = timeout(DEADLINE, both).await.expect("an end");
    (received, is_closed)
}

/// The error code of the last GOAWAY frame.
pub(super) fn goaway_code(mut received: &[u8]) -> Option<u32> {
    let mut reason = None;
    while let Some((head, rest)) = received.split_at_checked(9) {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let Some((payload, rest)) = rest.split_at_checked(length) else {
            break;
        };
        if head[3] == 7 {
            reason = Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
        }
        received = rest;
    }
    reason
}

pub(super) async fn still_answers(serving: &TestGrpcServer) {
    let mut client = serving.connect().await;
    let message = request("d", &[Descriptor::new(&[("a", "b")])], 0);
    assert_eq!(client.should_rate_limit(&message).await.overall, OK);
}

#[tokio::test]
async fn s37_malformed_frames_end_their_connection_with_a_reason_and_no_other() {
    let serving = serve_policy(POLICY).await;
    let path = head(SHOULD_RATE_LIMIT);
    let huge = vec![0; 16_385];
    let cases: [(&str, Vec<u8>); 14] = [
        ("data on no stream", frame(DATA, 0, 0, b"x")),
        ("data before a head", frame(DATA, 0, 1, b"x")),
        ("a head on no stream", frame(HEADERS, END_HEADERS, 0, &path)),
        (
            "a head on a stream of ours",
            frame(HEADERS, END_HEADERS, 2, &path),
        ),
        (
            "a head that is no head",
            frame(HEADERS, END_HEADERS, 1, &[0xff; 40]),
        ),
        (
            "the end of no head",
            frame(CONTINUATION, END_HEADERS, 1, &path),
        ),
        ("a frame that is too long", frame(DATA, 0, 1, &huge)),
        ("settings of a wrong length", frame(SETTINGS, 0, 0, &[0; 5])),
        ("settings on a stream", frame(SETTINGS, 0, 1, &[])),
        (
            "a window that is no number",
            frame(WINDOW_UPDATE, 0, 0, &[0; 4]),
        ),
        (
            "a window beyond all windows",
            frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]),
        ),
        (
            "a promise from a client",
            frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2]),
        ),
        ("a ping of a wrong length", frame(PING, 0, 0, &[0; 7])),
        (
            "a reset of what never was",
            frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]),
        ),
    ];
    for (what, bytes) in cases {
        let (received, is_closed) = send(&serving, &bytes).await;
        assert!(is_closed, "{what}: it goes on");
        assert!(
            goaway_code(&received).is_some_and(|reason| reason != 0),
            "{what}"
        );
        still_answers(&serving).await;
    }
    // A HEADERS frame inside a header block.
    let mut within = frame(HEADERS, 0, 1, &path);
    within.extend(frame(DATA, 0, 1, b"x"));
    assert!(send(&serving, &within).await.1);
    // A stream that depends on itself affects only itself.
    send(&serving, &frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 9])).await;
    for garbage in [
        &b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"[..],
        &[0x16, 3, 1, 0, 200, 1, 0, 0, 196],
        b"*1\r\n$4\r\nPING\r\n padding that is as long as a preface",
    ] {
        assert!(send_raw(&serving, garbage).await.1, "{garbage:?}");
    }
    still_answers(&serving).await;
}

#[tokio::test]
async fn s37_a_flood_of_cancelled_calls_ends_the_connection() {
    let serving = serve_policy(POLICY).await;
    let path = head(SHOULD_RATE_LIMIT);
    let mut flood = Vec::new();
    for number in 0..20_000 {
        let stream = number * 2 + 1;
        flood.extend(frame(HEADERS, END_HEADERS, stream, &path));
        flood.extend(frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]));
    }
    let (received, is_closed) = send(&serving, &flood).await;
    assert!(is_closed);
    assert_eq!(goaway_code(&received), Some(11), "enhance your calm");
    still_answers(&serving).await;
}

#[tokio::test]
async fn s37_floods_of_other_frames_are_survived() {
    let serving = serve_policy(POLICY).await;
    let path = head(SHOULD_RATE_LIMIT);
    // An endless header block.
    let mut endless = frame(HEADERS, 0, 1, &path);
    for _ in 0..2_000 {
        endless.extend(frame(CONTINUATION, 0, 1, &[0x40, 1, b'x', 1, b'y']));
    }
    assert!(send(&serving, &endless).await.1);
    // Endless empty DATA frames.
    let mut empty = frame(HEADERS, END_HEADERS, 1, &path);
    for _ in 0..20_000 {
        empty.extend(frame(DATA, 0, 1, &[]));
    }
    send(&serving, &empty).await;
    // Floods of PING, SETTINGS and PRIORITY.
    let mut noise = Vec::new();
    for _ in 0..5_000 {
        noise.extend(frame(PING, 0, 0, &[7; 8]));
        noise.extend(frame(SETTINGS, 0, 0, &[]));
        noise.extend(frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 9]));
    }
    send(&serving, &noise).await;
    // Trailers in the middle, and data after the end.
    let mut late = frame(HEADERS, END_HEADERS | END_STREAM, 1, &path);
    late.extend(frame(DATA, END_STREAM, 1, &request_frame()));
    send(&serving, &late).await;
    still_answers(&serving).await;
}

#[tokio::test]
async fn s37_a_head_that_is_too_large_costs_its_call() {
    let serving = serve_policy(POLICY).await;
    let mut large = head(SHOULD_RATE_LIMIT);
    for _ in 0..20 {
        // A field with a name of one byte and a value of a thousand bytes. Lengths above 126 take three bytes.
        large.extend([0x00, 1, b'x', 0x7f, 0xe9, 0x06]);
        large.extend([b'y'; 1_000]);
    }
    let mut bytes = frame(HEADERS, 0, 1, &large[..16_000]);
    bytes.extend(frame(CONTINUATION, END_HEADERS, 1, &large[16_000..]));
    bytes.extend(frame(HEADERS, END_HEADERS, 3, &head(SHOULD_RATE_LIMIT)));
    bytes.extend(frame(DATA, END_STREAM, 3, &request_frame()));
    let (received, is_closed) = send(&serving, &bytes).await;
    assert!(!is_closed && !received.is_empty());
    still_answers(&serving).await;
}

#[tokio::test]
async fn s37_more_calls_at_once_than_allowed_are_refused_and_the_others_answered() {
    let mut limits = GrpcLimits::default();
    limits.max_concurrent_streams = 8;
    let serving = super::serve_policy_with(POLICY, limits).await;
    let path = head(SHOULD_RATE_LIMIT);
    let mut bytes = Vec::new();
    // A client that has not seen the settings yet may open more streams. These are refused one by one.
    for number in 0..200_u32 {
        bytes.extend(frame(HEADERS, END_HEADERS, number * 2 + 1, &path));
    }
    let (received, is_closed) = send(&serving, &bytes).await;
    assert!(is_closed || received.len() > 9 * 100, "refused or cut off");
    still_answers(&serving).await;
}
