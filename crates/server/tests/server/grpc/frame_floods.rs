//! Floods of HTTP/2 frames that ask for nothing. One connection with SETTINGS, PING or PRIORITY frames once kept 0.65 of a core
//! busy for as long as it liked.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::client::SHOULD_RATE_LIMIT;
use super::hostile_clients::{
    CONTINUATION, DATA, DEADLINE, END_HEADERS, END_STREAM, HEADERS, PING, POLICY, PREFACE,
    PRIORITY, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame, goaway_code, head, request_frame, send,
    still_answers,
};
use super::serve_policy;

/// The error code that tells a client that it asks too much.
const ENHANCE_YOUR_CALM: Option<u32> = Some(11);

#[tokio::test]
async fn s37_each_flood_ends_its_connection_and_no_other() {
    let serving = serve_policy(POLICY).await;
    let path = head(SHOULD_RATE_LIMIT);
    let open = frame(HEADERS, END_HEADERS, 1, &path);
    let setting = [0, 4, 0, 1, 0, 0];
    let cases = [
        ("PING", frame(PING, 0, 0, &[7; 8]), 2_000),
        ("SETTINGS", frame(SETTINGS, 0, 0, &[]), 200),
        ("settings", frame(SETTINGS, 0, 0, &setting), 200),
        ("PRIORITY", frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 9]), 2_000),
        (
            "WINDOW_UPDATE",
            frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
            2_000,
        ),
        ("an unknown type", frame(0xbe, 0, 0, b"x"), 2_000),
    ];
    let mut floods = 0;
    for (what, one, count) in cases {
        let flood = [open.clone(), one.repeat(count)].concat();
        let (received, is_closed) = send(&serving, &flood).await;
        assert!(is_closed, "{what}");
        assert_eq!(goaway_code(&received), ENHANCE_YOUR_CALM, "{what}");
        floods += 1;
        assert_eq!(serving.counters.floods(), floods, "{what}");
        still_answers(&serving).await;
    }
    // These are ended by h2, which counts them too, or by the guard.
    let reset = frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]);
    for (what, one) in [
        ("RST_STREAM", reset),
        ("CONTINUATION", frame(CONTINUATION, 0, 1, b"")),
        ("empty DATA", frame(DATA, 0, 1, b"")),
        ("padding", frame(DATA, 8, 1, &[2, 0, 0])),
    ] {
        let flood = [open.clone(), one.repeat(30_000)].concat();
        let (received, is_closed) = send(&serving, &flood).await;
        assert!(is_closed, "{what}");
        assert!(
            goaway_code(&received).is_some_and(|code| code != 0),
            "{what}"
        );
        still_answers(&serving).await;
    }
}

/// What clients of gRPC do: keepalive pings, window updates for each reply, acknowledgements, cancelled calls.
#[tokio::test]
async fn s37_a_busy_honest_client_is_never_cut() {
    let serving = serve_policy(POLICY).await;
    let path = head(SHOULD_RATE_LIMIT);
    let mut stream = TcpStream::connect(serving.address).await.unwrap();
    let mut greeting = PREFACE.to_vec();
    greeting.extend(frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0]));
    greeting.extend(frame(SETTINGS, 1, 0, &[]));
    stream.write_all(&greeting).await.unwrap();
    let mut received = Vec::new();
    for batch in 0..60_u32 {
        let mut calls = Vec::new();
        for number in 0..50_u32 {
            let stream = (batch * 50 + number) * 2 + 1;
            calls.extend(frame(HEADERS, END_HEADERS, stream, &path));
            calls.extend(frame(DATA, 0, stream, &request_frame()));
            calls.extend(frame(DATA, END_STREAM, stream, &[]));
            calls.extend(frame(WINDOW_UPDATE, 0, 0, &[0, 0, 1, 0]).repeat(2));
            calls.extend(frame(PING, 0, 0, &[7; 8]).repeat(2));
            calls.extend(frame(PRIORITY, 0, stream, &[0, 0, 0, 0, 9]));
        }
        let number = u64::from(batch).to_be_bytes();
        calls.extend(frame(PING, 0, 0, &number));
        stream.write_all(&calls).await.unwrap();
        let pong = frame(PING, 1, 0, &number);
        let mut buffer = vec![0; 1 << 16];
        while !received.windows(pong.len()).any(|part| part == pong) {
            let read = timeout(DEADLINE, stream.read(&mut buffer)).await.unwrap();
            let read = read.unwrap();
            assert_ne!(read, 0, "closed: {:?}", goaway_code(&received));
            received.extend_from_slice(&buffer[..read]);
        }
        assert_eq!(goaway_code(&received), None);
        received.clear();
    }
    assert_eq!(serving.counters.floods(), 0);
}
