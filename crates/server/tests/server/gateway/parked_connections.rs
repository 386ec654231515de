//! Connections that have given up their buffers serve the next request, however its bytes arrive.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tollgate_server::gateway::GatewayLimits;
use tollgate_testkit::allocation::held_bytes;

use super::recorder::Recorder;
use super::{DEADLINE, OK, TestGateway, start_with};

/// Connections park as soon as nothing can be read.
async fn start_parking(recorder: &Recorder) -> TestGateway {
    let mut limits = GatewayLimits::default();
    limits.park_after = Duration::ZERO;
    let text = "limits: none\ngateway: { upstreams: { app: http://UPSTREAM }, routes: [{ upstream: app }] }";
    start_with(text, recorder.address, limits, "").await
}

/// Reads this many responses. Their bodies are `ok`.
async fn read_responses(client: &mut TcpStream, count: usize) {
    let mut text = Vec::new();
    let reading = async {
        while text.windows(6).filter(|end| *end == b"\r\n\r\nok").count() < count {
            assert_ne!(client.read_buf(&mut text).await.unwrap(), 0);
        }
    };
    timeout(DEADLINE, reading).await.expect("the responses");
    assert!(text.ends_with(b"\r\n\r\nok"));
}

fn targets(recorder: &Recorder) -> Vec<String> {
    let requests = recorder.requests();
    requests.iter().map(|one| one.target.clone()).collect()
}

#[tokio::test]
async fn a_parked_connection_serves_requests_in_pieces_with_bodies_and_pipelined() {
    let recorder = Recorder::start(OK).await;
    let gateway = start_parking(&recorder).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    client.set_nodelay(true).unwrap();
    let post = "POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
    let get = "GET /get HTTP/1.1\r\nHost: a\r\n\r\n";
    // Each byte arrives alone: a byte that is written and read shows that the one before was read.
    for round in 0..3 {
        for byte in post.as_bytes() {
            client.write_all(&[*byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
        read_responses(&mut client, 1).await;
        client.write_all(get.as_bytes()).await.unwrap();
        read_responses(&mut client, 1).await;
        // Two requests and the first bytes of a third in one piece, which a parked connection reads.
        let pipelined = format!("{get}{post}{}", &get[..9]);
        client.write_all(pipelined.as_bytes()).await.unwrap();
        read_responses(&mut client, 2).await;
        client.write_all(&get.as_bytes()[9..]).await.unwrap();
        read_responses(&mut client, 1).await;
        let each = ["/body", "/get", "/get", "/body", "/get"];
        assert_eq!(targets(&recorder), each.repeat(round + 1));
    }
    let bodies = recorder.requests();
    let mut bodies = bodies.iter().filter(|one| one.target == "/body");
    assert!(bodies.all(|one| one.body == b"hello"));
    gateway.running.stop().await;
}

/// A parked connection kept hyper's empty read buffer, so that 10,000 of them still took 200 MB.
#[test]
fn a_parked_connection_holds_no_buffer() {
    const CONNECTIONS: usize = 40;
    // In a debug build its tasks take 8 KB. hyper's buffer has 16.
    const MOST: usize = 12_000;
    // Shorter than the time after which idle connections are closed, which would return everything.
    const PATIENCE: Duration = Duration::from_secs(10);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    let recorder = runtime.block_on(Recorder::start(OK));
    let gateway = runtime.block_on(start_parking(&recorder));
    let open = async || {
        let mut client = TcpStream::connect(gateway.address).await.unwrap();
        let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        client.write_all(request).await.unwrap();
        read_responses(&mut client, 1).await;
        client
    };
    let mut clients = Vec::with_capacity(CONNECTIONS);
    drop(runtime.block_on(open()));
    let mut held = held_bytes(|| {
        for _ in 0..CONNECTIONS {
            clients.push(runtime.block_on(open()));
        }
    });
    let start = Instant::now();
    while held / CONNECTIONS > MOST && start.elapsed() < PATIENCE {
        let more = held_bytes(|| runtime.block_on(tokio::task::yield_now()));
        held = held.wrapping_add(more);
    }
    let each = held / CONNECTIONS;
    assert!(each <= MOST, "{each} bytes for each connection");
    runtime.block_on(gateway.running.stop());
}

/// What makes a request ambiguous is noticed also if it comes in the bytes that woke the connection.
#[tokio::test]
async fn a_parked_connection_refuses_ambiguous_requests() {
    let recorder = Recorder::start(OK).await;
    let gateway = start_parking(&recorder).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    client
        .write_all(b"GET /first HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .unwrap();
    read_responses(&mut client, 1).await;
    let ambiguous =
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi";
    client.write_all(ambiguous).await.unwrap();
    let mut response = String::new();
    let read = timeout(DEADLINE, client.read_to_string(&mut response)).await;
    read.unwrap().unwrap();
    assert!(response.starts_with("HTTP/1.1 400"), "{response}");
    assert_eq!(targets(&recorder), ["/first"]);
    gateway.running.stop().await;
}

#[tokio::test]
async fn a_parked_connection_ends_when_the_gateway_stops() {
    let recorder = Recorder::start(OK).await;
    let gateway = start_parking(&recorder).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .unwrap();
    read_responses(&mut client, 1).await;
    gateway.running.stop().await;
    let read = timeout(DEADLINE, client.read(&mut [0; 1])).await;
    assert_eq!(read.unwrap().unwrap(), 0);
}
