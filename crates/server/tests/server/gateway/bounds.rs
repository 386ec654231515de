//! Bounds of requests: the size of a body, the connections of an address, and long responses that nobody reads.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tollgate_server::gateway::GatewayLimits;

use super::recorder::Recorder;
use super::{DEADLINE, OK, exchange, get, start, start_plain, start_with, wait_until};

/// The bound of the route counts, else that of the gateway. A body without a length is cut off where it is too long.
#[tokio::test]
async fn a_body_above_the_bound_gets_413_and_the_upstream_no_whole_request() {
    let recorder = Recorder::start(OK).await;
    let text = "limits: none\ngateway: { max_body_size: 4, upstreams: { app: http://UPSTREAM }, \
                routes: [{ upstream: app }, { path: /large, upstream: app, max_body_size: 1KiB }, { path: /none, upstream: app, max_body_size: 0 }] }";
    let gateway = start(text, recorder.address).await;
    for (path, body, status) in [
        ("/a", "1234", "200"),
        ("/a", "12345", "413"),
        ("/large", "12345", "200"),
        ("/none", "1", "413"),
    ] {
        let len = body.len();
        for framed in [
            format!("Content-Length: {len}\r\n\r\n{body}"),
            format!("Transfer-Encoding: chunked\r\n\r\n{len}\r\n{body}\r\n0\r\n\r\n"),
        ] {
            let before = recorder.requests().len();
            let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n");
            let response = exchange(gateway.address, &format!("{head}{framed}")).await;
            assert_eq!(&response[9..12], status, "{path} {framed}: {response}");
            let is_seen = recorder.requests().len() > before;
            assert_eq!(is_seen, status == "200", "{path} {framed}");
        }
    }
    // It is refused before it is sent.
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    let head = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    let mut start = [0; 12];
    let read = timeout(DEADLINE, client.read_exact(&mut start)).await;
    read.unwrap().unwrap();
    assert_eq!(&start, b"HTTP/1.1 413");
    gateway.running.stop().await;
}

/// Idle connections of one address give way to new ones of the same address.
#[tokio::test]
async fn s_36_one_address_has_a_bounded_number_of_connections() {
    let recorder = Recorder::start(OK).await;
    let mut limits = GatewayLimits::default();
    limits.listener.max_connections_per_address = 4;
    let text = "limits: none\ngateway: { upstreams: { app: http://UPSTREAM }, routes: [{ upstream: app }] }";
    let gateway = start_with(text, recorder.address, limits, "").await;
    let mut slow = Vec::new();
    for _ in 0..32 {
        let mut client = TcpStream::connect(gateway.address).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost:").await.unwrap();
        slow.push(client);
    }
    let response = exchange(gateway.address, &get("/", "")).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    // All but four of the slow ones were closed. The end of one that gave way arrives by itself.
    let mut closed = 0;
    for client in slow.iter_mut().take(28) {
        let read = timeout(DEADLINE, client.read(&mut [0; 64])).await;
        closed += usize::from(matches!(read.unwrap(), Ok(0) | Err(_)));
    }
    assert_eq!(closed, 28);
    gateway.running.stop().await;
}

/// Heads and bodies that never end are closed when their time is up, and other clients do not notice.
#[tokio::test]
async fn s_36_slow_clients_are_closed_and_others_are_served() {
    let recorder = Recorder::start(OK).await;
    let mut limits = GatewayLimits::default();
    limits.header_timeout = Duration::from_millis(300);
    limits.body_timeout = Duration::from_millis(300);
    let text = "limits: none\ngateway: { upstreams: { app: http://UPSTREAM }, routes: [{ upstream: app }] }";
    let gateway = start_with(text, recorder.address, limits, "").await;
    let mut slow = Vec::new();
    for number in 0..64 {
        let mut client = TcpStream::connect(gateway.address).await.unwrap();
        let start: &[u8] = match number % 3 {
            0 => b"GET / HTTP/1.1\r\nHost: a\r\nX",
            1 => b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab",
            _ => b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab",
        };
        client.write_all(start).await.unwrap();
        slow.push((number, client));
    }
    let response = exchange(gateway.address, &get("/", "")).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    for (number, mut client) in slow {
        let mut answer = Vec::new();
        let read = timeout(DEADLINE, client.read_to_end(&mut answer)).await;
        let _reset = read.expect("a closed connection");
        let answer = String::from_utf8_lossy(&answer);
        let is_fine = answer.is_empty() || answer.starts_with("HTTP/1.1 408");
        assert!(
            is_fine && (number % 3 == 0 || !answer.is_empty()),
            "{number}: {answer}"
        );
    }
    assert_eq!(recorder.requests().len(), 1);
    let counters = Arc::clone(gateway.gateway.counters());
    wait_until(|| counters.open() == 0).await;
    gateway.running.stop().await;
}

/// The gateway reads from the upstream only what the client takes.
#[tokio::test]
async fn s_36_a_response_that_nobody_reads_is_not_buffered() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = start_plain(listener.local_addr().unwrap()).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    client.write_all(get("/", "").as_bytes()).await.unwrap();
    let (mut upstream, _) = listener.accept().await.unwrap();
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n";
    upstream.write_all(head).await.unwrap();
    let piece = vec![b'x'; 1 << 16];
    let mut sent = 0_usize;
    // The socket buffers of both connections fill up, and then nothing moves.
    while let Ok(written) = timeout(Duration::from_millis(300), upstream.write(&piece)).await {
        sent += written.unwrap();
        assert!(sent < 64 << 20, "the gateway reads without end");
    }
    // As soon as the client reads, the upstream can go on.
    let mut read = vec![0; 1 << 16];
    let progress = async {
        loop {
            tokio::select! {
                written = upstream.write(&piece) => return written.unwrap(),
                read = client.read(&mut read) => assert_ne!(read.unwrap(), 0),
            }
        }
    };
    assert_ne!(timeout(DEADLINE, progress).await.unwrap(), 0);
    drop((client, upstream));
    gateway.running.stop().await;
}
