//! One byte budget for all connections. 6,000 unfinished batch bodies once took 1.68 GiB, and 1.57 GiB stayed, although each
//! connection was within its limits.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tollgate_core::Timestamp;
use tollgate_server::admin::{AdminApi, AdminTokens};
use tollgate_server::listen::{BufferBudget, ListenAddress};
use tollgate_server::{HttpApi, HttpLimits};
use tollgate_store::ManualClock;

use crate::harness::{HttpClient, TestServer, policy, serve_app};
use crate::running_server::RunningServer;

/// Far above any duration here; only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(30);
const POLICY: &str = "limits: [{ name: demo, key: header.x-api-key, rate: 1000/s }]";
/// The longest body of a batch.
const BATCH_LEN: usize = 262_144;
/// Three batches and some input that is not parsed yet. A quarter more is kept for small requests.
const LARGE_LEN: usize = 3 * BATCH_LEN + 65_536;
const CAPACITY: usize = LARGE_LEN / 3 * 4;

/// Waits until this many bytes are reserved.
pub(crate) async fn until_used(budget: &BufferBudget, is_right: impl Fn(usize) -> bool) {
    let waiting = async {
        while !is_right(budget.used()) {
            tokio::task::yield_now().await;
        }
    };
    let waited = timeout(DEADLINE, waiting).await;
    waited.unwrap_or_else(|_| panic!("{} bytes are reserved", budget.used()));
}

/// A server with a budget for three batches. A quarter is kept for small requests.
async fn serve(limits: HttpLimits) -> (TestServer<ManualClock>, Arc<BufferBudget>) {
    let budget = Arc::new(BufferBudget::new(CAPACITY));
    let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_700_000_000)));
    let app = HttpApi::new(&policy(POLICY), 1_000, Arc::clone(&clock)).unwrap();
    let app = app.with_buffers(Arc::clone(&budget));
    (serve_app(app, clock, limits).await, budget)
}

/// A batch of which the last byte is missing.
async fn unfinished_batch<C>(server: &TestServer<C>) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head =
        format!("POST /v1/check/batch HTTP/1.1\r\nhost: a\r\ncontent-length: {BATCH_LEN}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let body = vec![b' '; BATCH_LEN - 1];
    // The server may refuse it and close before all is sent.
    let _sent = stream.write_all(&body).await;
    stream
}

async fn status(stream: &mut TcpStream) -> String {
    let mut start = [0; 12];
    let read = timeout(DEADLINE, stream.read_exact(&mut start)).await;
    read.unwrap().unwrap();
    String::from_utf8_lossy(&start[9..]).into_owned()
}

#[tokio::test]
async fn i06_unfinished_bodies_are_bounded_and_other_requests_are_served_meanwhile() {
    let (server, budget) = serve(HttpLimits::default()).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(unfinished_batch(&server).await);
    }
    until_used(&budget, |used| used == 3 * BATCH_LEN).await;
    // A large body is refused by its declared length, before it is sent.
    let mut client = server.connect().await;
    client
        .send("POST /v1/check/batch HTTP/1.1\r\nhost: a\r\ncontent-length: 200000\r\n\r\n")
        .await;
    let refused = client.read_response(false).await;
    assert_eq!(
        (refused.status, refused.field("retry-after")),
        (503, Some("1"))
    );
    let detail = refused.problem();
    assert!(
        detail.starts_with("body: the server buffers too many requests"),
        "{detail}"
    );
    // One without a declared length is refused when it has become large.
    let mut client = server.connect().await;
    let chunk = format!("18000\r\n{}\r\n", " ".repeat(0x18000));
    let head = "POST /v1/check/batch HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    client.send(&format!("{head}{chunk}")).await;
    assert_eq!(client.read_response(false).await.status, 503);
    assert_eq!(server.app.counters().refused_buffers(), 2);
    // Small requests are served, with and without the fast path, and so are health checks.
    let mut client = server.connect().await;
    assert_eq!(
        client.post("/v1/check", r#"{"key": "a"}"#).await.status,
        200
    );
    let small = "POST /v1/check HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\n{ }\r\n0\r\n\r\n";
    client.send(small).await;
    assert_eq!(client.read_response(false).await.status, 200);
    assert_eq!(client.get("/healthz").await.status, 200);
    // A body that is completed is decided, and its bytes are free.
    held[0].write_all(b"x").await.unwrap();
    assert_eq!(status(&mut held[0]).await, "400");
    until_used(&budget, |used| used == 2 * BATCH_LEN).await;
    // So are those of clients that leave midway.
    drop(held);
    until_used(&budget, |used| used == 0).await;
    let mut again = unfinished_batch(&server).await;
    again.write_all(b"x").await.unwrap();
    assert_eq!(status(&mut again).await, "400", "there is room again");
}

/// The attack itself: many times more bodies than fit.
#[tokio::test]
async fn i06_hundreds_of_unfinished_bodies_never_exceed_the_budget() {
    let (server, budget) = serve(HttpLimits::default()).await;
    let mut held = Vec::new();
    for _ in 0..200 {
        held.push(unfinished_batch(&server).await);
        assert!(budget.used() <= LARGE_LEN, "{}", budget.used());
    }
    let answer = server.get("/v1/check?key=a").await;
    assert_eq!(answer.status, 200);
    assert!(server.app.counters().refused_buffers() > 100);
    drop(held);
    until_used(&budget, |used| used == 0).await;
}

#[tokio::test]
async fn a_body_that_does_not_progress_is_dropped_sooner_when_the_budget_is_nearly_used_up() {
    let mut limits = HttpLimits::default();
    limits.body_timeout = Duration::from_secs(20);
    let (server, budget) = serve(limits).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(unfinished_batch(&server).await);
    }
    until_used(&budget, |used| used == 3 * BATCH_LEN).await;
    drop(held.pop());
    until_used(&budget, |used| used == 2 * BATCH_LEN).await;
    // The next one fills it. From then on clients have the smallest time.
    held.push(unfinished_batch(&server).await);
    until_used(&budget, |used| used == 3 * BATCH_LEN).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    // The declared length is small enough, and never comes.
    let head = b"POST /v1/check HTTP/1.1\r\nhost: a\r\ncontent-length: 4000\r\n\r\n{";
    stream.write_all(head).await.unwrap();
    assert_eq!(status(&mut stream).await, "408");
    let mut rest = String::new();
    let _closed = stream.read_to_string(&mut rest).await;
    // Of 20 s, less than 3 are left.
    let is_short = (1..=3).any(|time| rest.contains(&format!("not complete after {time} s")));
    assert!(is_short, "{rest}");
}

/// A short request may have a long reply: 32 KiB of pipelined requests once made the server buffer more than 10 MB for a client
/// that reads nothing.
#[tokio::test]
async fn i06_replies_that_nobody_reads_are_bounded_and_complete_for_a_slow_reader() {
    let (server, budget) = serve(HttpLimits::default()).await;
    let request = "GET /openapi.json HTTP/1.1\r\nhost: a\r\n\r\n";
    let count = 32_768 / request.len();
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let pipelined = request.repeat(count);
    stream.write_all(pipelined.as_bytes()).await.unwrap();
    // The replies do not fit into the socket's buffers, so that some are held back.
    until_used(&budget, |used| used > 0).await;
    assert!(budget.used() < 600_000, "{}", budget.used());
    assert_eq!(server.get("/healthz").await.status, 200);
    let mut buffer = vec![0; 1 << 16];
    let (mut text, mut replies) = (Vec::new(), 0);
    while replies < count {
        let read = timeout(DEADLINE, stream.read(&mut buffer)).await.unwrap();
        text.extend_from_slice(&buffer[..read.unwrap()]);
        let ends = b"HTTP/1.1 200 OK\r\n";
        replies += text.windows(ends.len()).filter(|part| part == ends).count();
        text.drain(..text.len().saturating_sub(ends.len() - 1));
    }
    assert_eq!(replies, count);
    drop(stream);
    until_used(&budget, |used| used == 0).await;
}

/// The kill switch works while clients hold the whole budget.
#[tokio::test]
async fn operators_are_counted_and_never_refused() {
    let (server, budget) = serve(HttpLimits::default()).await;
    let place = ListenAddress::Tcp(([127, 0, 0, 1], 0).into());
    let admin = AdminApi::new(Arc::clone(&server.app), &place, AdminTokens::default()).unwrap();
    let admin = Arc::new(admin);
    let limits = HttpLimits::default();
    let running =
        RunningServer::start(|listener, shutdown| admin.run(listener, limits, shutdown)).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(unfinished_batch(&server).await);
    }
    until_used(&budget, |used| used == 3 * BATCH_LEN).await;
    let why = "x".repeat(200);
    let padding = " ".repeat(10_000);
    let body = format!(r#"{{"limit": "*", "to": "off", "who": "ada", "why": "{why}"{padding}}}"#);
    let (start, end) = body.split_at(9_000);
    let mut operator = HttpClient::to(running.address).await;
    let length = body.len();
    let json = "content-type: application/json";
    operator
        .send(&format!(
            "PUT /v1/switches HTTP/1.1\r\nhost: 127.0.0.1\r\n{json}\r\ncontent-length: {length}\r\n\r\n{start}"
        ))
        .await;
    until_used(&budget, |used| used > 3 * BATCH_LEN).await;
    operator.send(end).await;
    assert_eq!(operator.read_response(false).await.status, 200);
    until_used(&budget, |used| used == 3 * BATCH_LEN).await;
    operator
        .send("GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        .await;
    let page = operator.read_response(false).await;
    for line in [
        format!("tollgate_buffered_bytes {}\n", 3 * BATCH_LEN),
        format!("tollgate_buffered_bytes_most {CAPACITY}\n"),
        "tollgate_buffer_refusals_total{listener=\"api\"} 0\n".to_owned(),
        "tollgate_http2_floods_total{listener=\"api\"} 0\n".to_owned(),
    ] {
        assert!(page.body.contains(&line), "{line}");
    }
}
