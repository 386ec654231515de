//! Bounds of requests: the size of a body, and the connections of an address.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tollgate_server::gateway::GatewayLimits;

use super::recorder::Recorder;
use super::{DEADLINE, OK, exchange, get, start, start_with};

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
