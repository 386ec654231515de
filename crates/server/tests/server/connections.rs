//! Connections: many, too many, slow, idle at shutdown, and one whose request panics.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, pause};
use tollgate_core::Timestamp;
use tollgate_server::HttpLimits;
use tollgate_server::listen::DrainOutcome;
use tollgate_store::{Clock, ManualClock};

use crate::harness::{serve_demo, start};

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

/// The server answers 100 when it has read this head and waits for the body.
const HEAD_OF_A_BODY_THAT_NEVER_COMES: &str = "POST /v1/check HTTP/1.1\r\nhost: test\r\n\
     expect: 100-continue\r\ncontent-length: 9\r\n\r\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_connections_are_admitted_exactly_the_limit() {
    let server = serve_demo().await;
    let mut clients = JoinSet::new();
    for _ in 0..64 {
        let mut client = server.connect().await;
        clients.spawn(async move {
            let mut admitted = 0;
            for _ in 0..10 {
                let answer = client.get("/v1/check?key=shared").await;
                assert!(matches!(answer.status, 200 | 429), "{answer:?}");
                admitted += u32::from(answer.status == 200);
            }
            admitted
        });
    }
    assert_eq!(clients.join_all().await.iter().sum::<u32>(), 20);
    assert_eq!(server.stop().await, DrainOutcome { aborted: 0 });
}

#[tokio::test]
async fn connections_above_the_limit_are_closed_and_the_others_are_served() {
    let mut limits = HttpLimits::default();
    limits.listener.max_connections = 2;
    let server = start(ManualClock::at(NOW), limits).await;
    let (mut one, mut two) = (server.connect().await, server.connect().await);
    assert_eq!(one.get("/healthz").await.status, 200);
    assert_eq!(two.get("/healthz").await.status, 200);
    assert_eq!(server.connect().await.read_until_closed().await, b"");
    assert_eq!(server.app.counters().refused_connections(), 1);
    assert_eq!(one.get("/healthz").await.status, 200);

    // The slot of a closed connection is free again.
    one.send("GET /healthz HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")
        .await;
    one.read_until_closed().await;
    loop {
        // The client may see the close before the server has counted it.
        let mut three = server.connect().await;
        three
            .send("GET /healthz HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")
            .await;
        if three
            .read_until_closed()
            .await
            .starts_with(b"HTTP/1.1 200 OK\r\n")
        {
            break;
        }
    }
}

/// As many slow connections as the listener has room for once kept health checks and requests out for five seconds at a time.
#[tokio::test]
async fn slow_connections_give_way_and_connections_with_a_request_do_not() {
    let mut limits = HttpLimits::default();
    limits.listener.max_connections = 64;
    let server = start(ManualClock::at(NOW), limits).await;
    let mut first = server.connect().await;
    assert_eq!(first.get("/healthz").await.status, 200);
    let mut slow = Vec::new();
    for _ in 0..1_000 {
        slow.push(server.connect().await);
    }
    for path in ["/healthz", "/readyz", "/v1/check?key=a"] {
        assert_eq!(server.get(path).await.status, 200, "{path}");
    }
    assert_eq!(first.get("/healthz").await.status, 200);
    let counters = server.app.counters();
    assert!(counters.evicted_connections() >= 1_000 - 64);
    assert_eq!(counters.refused_connections(), 0);
    // The oldest were closed.
    assert_eq!(slow[0].read_until_closed().await, b"");
}

/// With tokio's time paused, waiting for a silent client jumps to the next timer. Time is paused only when the server is known
/// to be waiting, so that no timer overtakes bytes in transit.
#[tokio::test]
async fn a_head_that_never_ends_is_cut_after_five_seconds() {
    let server = serve_demo().await;
    let mut slow = server.connect().await;
    assert_eq!(slow.get("/healthz").await.status, 200);
    slow.send("GET /healthz HTTP/1.1\r\nhost: te").await;
    pause();
    let begun = Instant::now();
    assert_eq!(slow.read_until_closed().await, b"");
    // The five seconds began when the first response was sent, a moment before `begun`.
    let waited = begun.elapsed();
    assert!(waited > Duration::from_secs(3), "{waited:?}");
    assert!(waited < Duration::from_secs(6), "{waited:?}");
}

#[tokio::test]
async fn a_body_that_never_ends_is_answered_after_ten_seconds() {
    let server = serve_demo().await;
    let mut slow = server.connect().await;
    slow.send(HEAD_OF_A_BODY_THAT_NEVER_COMES).await;
    assert_eq!(slow.read_response(true).await.status, 100);
    pause();
    let answer = slow.read_response(false).await;
    assert_eq!(answer.status, 408);
    assert_eq!(answer.problem(), "body: it was not complete after 10 s");
}

#[tokio::test]
async fn heads_are_bounded_in_bytes_and_fields() {
    let server = serve_demo().await;
    let mut client = server.connect().await;
    let fields = "a: b\r\n".repeat(65);
    client
        .send(&format!("GET /healthz HTTP/1.1\r\n{fields}\r\n"))
        .await;
    assert_eq!(client.read_response(false).await.status, 431);
    let mut client = server.connect().await;
    let padding = "x".repeat(20_000);
    client
        .send(&format!("GET /healthz HTTP/1.1\r\na: {padding}"))
        .await;
    assert_eq!(client.read_response(false).await.status, 431);
}

/// Found behind Traefik and Caddy: a head in one packet was accepted at any length, a head in several packets was not.
#[tokio::test]
async fn a_head_is_as_long_as_it_may_be_however_it_arrives() {
    let server = serve_demo().await;
    let head = |len: usize| {
        let (begin, end) = ("GET /healthz HTTP/1.1\r\na: ", "\r\n\r\n");
        let padding = "x".repeat(len - begin.len() - end.len());
        format!("{begin}{padding}{end}")
    };
    for (len, expected) in [(16_000, 200), (16_385, 431), (20_000, 431), (32_000, 431)] {
        let mut at_once = server.connect().await;
        at_once.send(&head(len)).await;
        assert_eq!(at_once.read_response(false).await.status, expected, "{len}");
        let mut in_pieces = server.connect().await;
        assert_eq!(in_pieces.get("/healthz").await.status, 200);
        let whole = head(len);
        let (one, two) = whole.split_at(9_000);
        in_pieces.send(one).await;
        tokio::task::yield_now().await;
        in_pieces.send(two).await;
        assert_eq!(
            in_pieces.read_response(false).await.status,
            expected,
            "{len}"
        );
    }
}

#[tokio::test]
async fn stopping_does_not_wait_for_idle_connections() {
    let server = serve_demo().await;
    let mut idle = server.connect().await;
    assert_eq!(idle.get("/healthz").await.status, 200);
    let address = server.address;
    assert_eq!(server.stop().await, DrainOutcome { aborted: 0 });
    assert_eq!(idle.read_until_closed().await, b"");
    let refused = tokio::net::TcpStream::connect(address).await;
    assert_eq!(
        refused.unwrap_err().kind(),
        std::io::ErrorKind::ConnectionRefused
    );
}

#[tokio::test]
async fn stopping_waits_no_longer_than_its_bound() {
    let mut limits = HttpLimits::default();
    limits.body_timeout = Duration::from_secs(3_600);
    let server = start(ManualClock::at(NOW), limits).await;
    let mut stuck = server.connect().await;
    stuck.send(HEAD_OF_A_BODY_THAT_NEVER_COMES).await;
    assert_eq!(stuck.read_response(true).await.status, 100);
    pause();
    let begun = Instant::now();
    assert_eq!(server.stop().await, DrainOutcome { aborted: 1 });
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_secs(10), "{waited:?}");
    assert!(waited < Duration::from_secs(11), "{waited:?}");
}

#[tokio::test]
async fn a_panic_costs_one_request_and_nothing_else() {
    struct Fragile(AtomicBool);
    impl Clock for Fragile {
        fn now(&self) -> Timestamp {
            assert!(
                !self.0.load(Ordering::SeqCst),
                "the clock broke, as this test wants"
            );
            NOW
        }
    }
    let server = start(Fragile(AtomicBool::new(false)), HttpLimits::default()).await;
    let mut client = server.connect().await;
    assert_eq!(client.get("/v1/check?key=a&cost=19").await.status, 200);

    server.clock.0.store(true, Ordering::SeqCst);
    let answer = client.get("/v1/check?key=a").await;
    assert_eq!(answer.status, 500);
    assert_eq!(
        answer.problem(),
        "internal error while answering this request"
    );
    assert_eq!(server.app.counters().panics(), 1);

    server.clock.0.store(false, Ordering::SeqCst);
    assert_eq!(
        client.get("/v1/check?key=a").await.status,
        200,
        "same connection, same key"
    );
    assert_eq!(
        client.get("/v1/check?key=a").await.status,
        429,
        "and still limited"
    );
    assert_eq!(server.stop().await, DrainOutcome { aborted: 0 });
}
