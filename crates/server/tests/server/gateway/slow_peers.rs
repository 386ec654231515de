//! Clients and upstreams that are slow on purpose: heads and bodies that never end, and bodies that nobody reads.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::Request;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tollgate_server::gateway::GatewayLimits;

use super::recorder::Recorder;
use super::{
    BY_HYPER, DEADLINE, OK, TestGateway, exchange, get, start_plain, start_with, wait_until,
};

/// Short enough for a test, and long enough for what is not slow.
const PATIENCE: Duration = Duration::from_millis(300);
/// How long slow peers wait between two bytes.
const PAUSE: Duration = Duration::from_millis(20);

async fn start_impatient(upstream: SocketAddr) -> TestGateway {
    let mut limits = GatewayLimits::default();
    limits.header_timeout = PATIENCE;
    limits.body_timeout = PATIENCE;
    limits.listener.write_timeout = PATIENCE;
    let text = "limits: none\ngateway: { upstreams: { app: http://UPSTREAM }, routes: [{ upstream: app }] }";
    start_with(text, upstream, limits, "").await
}

/// Heads and bodies that never end get 408 when their time is up, and other clients do not notice.
#[tokio::test]
async fn s_36_slow_clients_are_closed_and_others_are_served() {
    let recorder = Recorder::start(OK).await;
    let gateway = start_impatient(recorder.address).await;
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
        assert!(answer.starts_with("HTTP/1.1 408"), "{number}: {answer}");
    }
    assert_eq!(recorder.requests().len(), 1);
    let counters = Arc::clone(gateway.gateway.counters());
    wait_until(|| counters.open() == 0).await;
    gateway.running.stop().await;
}

/// A connection between two requests is closed without a response: a client could take it for one to its next request.
#[tokio::test]
async fn an_idle_connection_is_closed_without_a_response() {
    let recorder = Recorder::start(OK).await;
    let gateway = start_impatient(recorder.address).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .unwrap();
    let mut responses = String::new();
    let read = timeout(DEADLINE, client.read_to_string(&mut responses)).await;
    read.unwrap().unwrap();
    assert_eq!(responses.matches("HTTP/1.1").count(), 1, "{responses}");
    gateway.running.stop().await;
}

/// A byte now and then is progress, and still too slow.
#[tokio::test]
async fn s_36_a_body_that_trickles_gets_408() {
    let recorder = Recorder::start(OK).await;
    let gateway = start_impatient(recorder.address).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n";
    client.write_all(head).await.unwrap();
    let (mut response, mut sent) = ([0; 12], 0);
    let trickling = async {
        while timeout(PAUSE, client.read_exact(&mut response))
            .await
            .is_err()
        {
            client.write_all(b"x").await.unwrap();
            sent += 1;
        }
    };
    timeout(DEADLINE, trickling).await.expect("a response");
    assert_eq!(&response, b"HTTP/1.1 408");
    assert!(sent > 3, "{sent}");
    assert_eq!(recorder.requests().len(), 0);
    gateway.running.stop().await;
}

/// HTTP/2: the client opens the window of its stream by two bytes now and then. The work of the upstream is cancelled, and the
/// connection serves the next request.
#[tokio::test]
async fn s_36_a_stream_whose_client_reads_too_slowly_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = start_impatient(listener.local_addr().unwrap()).await;
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let mut builder = h2::client::Builder::new();
    let handshake = builder.initial_window_size(2).handshake::<_, Bytes>(stream);
    let (mut client, connection) = handshake.await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { drop(connection.await) });
    let request = || Request::get("http://a.example/").body(()).unwrap();
    let (response, _) = client.send_request(request(), true).unwrap();
    let (mut upstream, _) = listener.accept().await.unwrap();
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 401\r\n\r\n";
    upstream.write_all(head).await.unwrap();
    upstream.write_all(&[b'x'; 200]).await.unwrap();
    let mut body = timeout(DEADLINE, response)
        .await
        .unwrap()
        .unwrap()
        .into_body();
    // hyper takes one piece ahead, so the second one waits for the client.
    let first = timeout(DEADLINE, body.data()).await.unwrap().unwrap();
    let released = body.flow_control().release_capacity(first.unwrap().len());
    released.unwrap();
    upstream.write_all(&[b'x'; 200]).await.unwrap();
    let trickling = async {
        while let Some(Ok(piece)) = body.data().await {
            // Nothing arrives before the window is opened.
            let waited = timeout(PAUSE, body.data()).await;
            assert!(waited.is_err(), "{waited:?}");
            body.flow_control().release_capacity(piece.len()).unwrap();
        }
    };
    let mut rest = Vec::new();
    tokio::select! {
        closed = timeout(DEADLINE, upstream.read_to_end(&mut rest)) => {
            let _reset = closed.expect("a closed connection");
        }
        () = trickling => panic!("the client got the whole body"),
    }
    let (response, _) = client.send_request(request(), true).unwrap();
    let (mut upstream, _) = listener.accept().await.unwrap();
    upstream.write_all(OK.as_bytes()).await.unwrap();
    let response = timeout(DEADLINE, response).await.unwrap().unwrap();
    assert_eq!(response.status(), 200);
    gateway.running.stop().await;
}

/// What an upstream does not take of long requests is counted in the byte budget, and given back when the upstream leaves.
#[tokio::test]
async fn requests_that_no_upstream_reads_are_counted_in_the_byte_budget() {
    const CLIENTS: usize = 4;
    /// More than what is never counted.
    const LEAST: usize = 4 * 1_024;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = start_plain(listener.local_addr().unwrap()).await;
    let mut tasks = JoinSet::new();
    let mut upstreams = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = TcpStream::connect(gateway.address).await.unwrap();
        let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n";
        client.write_all(head).await.unwrap();
        tasks.spawn(async move {
            let piece = vec![b'x'; 1 << 16];
            while client.write_all(&piece).await.is_ok() {}
        });
        upstreams.push(listener.accept().await.unwrap());
    }
    let buffers = Arc::clone(&gateway.buffers);
    // A piece is counted for a moment while it passes too. All of them are counted at once only if they wait.
    wait_until(|| buffers.used() > CLIENTS * LEAST).await;
    drop(upstreams);
    wait_until(|| buffers.used() == 0).await;
    drop(tasks);
    gateway.running.stop().await;
}

/// The gateway reads from the upstream only what the client takes.
#[tokio::test]
async fn s_36_a_response_that_nobody_reads_is_not_buffered() {
    for fields in ["", BY_HYPER] {
        send_to_slow_reader(fields).await;
    }
}

async fn send_to_slow_reader(fields: &str) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = start_plain(listener.local_addr().unwrap()).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    client.write_all(get("/", fields).as_bytes()).await.unwrap();
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
