//! Upstreams that fail, are slow or full: statuses, retries, ejection, health checks, timeouts, and aborts by clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::recorder::Recorder;
use super::{BY_HYPER, DEADLINE, OK, exchange, get, start, start_plain, wait_until};

/// An address at which nobody listens.
async fn closed_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

/// An upstream that reads requests and closes the connection without an answer. Returns how many it has read.
async fn closing_upstream(tasks: &mut JoinSet<()>) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&count);
    tasks.spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = [0; 4_096];
            if stream.read(&mut bytes).await.unwrap() > 0 {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    (address, count)
}

fn two(first: SocketAddr, more: &str) -> String {
    format!(
        "limits: none\ngateway: {{ upstreams: {{ app: {{ addresses: [http://{first}, http://UPSTREAM], {more} }} }}, routes: [{{ upstream: app }}] }}"
    )
}

#[tokio::test]
async fn an_upstream_that_cannot_be_reached_is_502() {
    let gateway = start_plain(closed_address().await).await;
    let response = exchange(gateway.address, &get("/", "")).await;
    assert!(response.starts_with("HTTP/1.1 502"), "{response}");
    assert!(
        response.contains("application/problem+json") && !response.contains("127.0.0.1"),
        "{response}"
    );
    gateway.running.stop().await;
}

/// Nothing was sent, so even a POST with a body goes to another address.
#[tokio::test]
async fn a_request_of_which_nothing_was_sent_goes_to_another_address() {
    let recorder = Recorder::start(OK).await;
    let text = two(closed_address().await, "ejection: { failures: 1000 }");
    let gateway = start(&text, recorder.address).await;
    for number in 0..8 {
        let request = format!(
            "POST /{number} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi"
        );
        let response = exchange(gateway.address, &request).await;
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    }
    assert_eq!(recorder.requests().len(), 8);
    gateway.running.stop().await;
}

/// A POST that was sent may have been executed. It is not sent again.
#[tokio::test]
async fn a_request_that_was_sent_is_repeated_only_if_it_is_idempotent() {
    let mut tasks = JoinSet::new();
    let (address, count) = closing_upstream(&mut tasks).await;
    let text = "limits: none\ngateway: { upstreams: { app: { addresses: http://UPSTREAM, retries: 2 } }, routes: [{ upstream: app }] }";
    let gateway = start(text, address).await;
    let response = exchange(gateway.address, &get("/", "")).await;
    assert!(response.starts_with("HTTP/1.1 502"), "{response}");
    assert_eq!(count.load(Ordering::Relaxed), 3, "twice again");
    for request in [
        "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        "PUT / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi",
    ] {
        let before = count.load(Ordering::Relaxed);
        let response = exchange(gateway.address, request).await;
        assert!(response.starts_with("HTTP/1.1 502"), "{response}");
        assert_eq!(count.load(Ordering::Relaxed), before + 1, "{request}");
    }
    gateway.running.stop().await;
}

#[tokio::test]
async fn retries_end_with_their_budget() {
    let mut tasks = JoinSet::new();
    let (address, count) = closing_upstream(&mut tasks).await;
    let text = "limits: none\ngateway: { upstreams: { app: { addresses: http://UPSTREAM, retry_budget: 1% } }, routes: [{ upstream: app }] }";
    let gateway = start(text, address).await;
    for _ in 0..30 {
        exchange(gateway.address, &get("/", "")).await;
    }
    assert_eq!(
        count.load(Ordering::Relaxed),
        30 + 10,
        "ten retries are saved up"
    );
    gateway.running.stop().await;
}

#[tokio::test]
async fn an_address_that_fails_is_ejected_and_the_last_one_never_is() {
    let mut tasks = JoinSet::new();
    let (broken, count) = closing_upstream(&mut tasks).await;
    let recorder = Recorder::start(OK).await;
    let text = two(
        broken,
        "ejection: { failures: 2, duration: 1h }, retries: 0",
    );
    let gateway = start(&text, recorder.address).await;
    for _ in 0..40 {
        exchange(gateway.address, &get("/", "")).await;
    }
    assert_eq!(count.load(Ordering::Relaxed), 2, "then it is out");
    assert_eq!(recorder.requests().len(), 38);
    let counts = gateway.gateway.counts();
    assert_eq!(counts.routes, [("*/".into(), [0, 38, 0, 0, 2])]);
    let upstream = &counts.upstreams[0];
    assert_eq!(
        (upstream.requests, upstream.failures, upstream.retries),
        (40, 2, 0)
    );
    let ejected: Vec<_> = upstream
        .addresses
        .iter()
        .map(|one| (one.ejections, one.is_available))
        .collect();
    assert_eq!(ejected, [(1, false), (0, true)]);
    gateway.running.stop().await;
    let text = "limits: none\ngateway: { upstreams: { app: { addresses: http://UPSTREAM, retries: 0, ejection: { failures: 1, duration: 1h } } }, routes: [{ upstream: app }] }";
    let gateway = start(text, broken).await;
    for _ in 0..5 {
        exchange(gateway.address, &get("/", "")).await;
    }
    assert_eq!(
        count.load(Ordering::Relaxed),
        7,
        "the only address is always tried"
    );
    gateway.running.stop().await;
}

#[tokio::test]
async fn health_checks_take_an_address_out() {
    let sick = Recorder::start("HTTP/1.1 503 Sick\r\ncontent-length: 0\r\n\r\n").await;
    let recorder = Recorder::start(OK).await;
    let text = two(
        sick.address,
        "health_check: { path: /up, interval: 10ms, unhealthy_after: 1 }, ejection: { failures: 1000 }",
    );
    let gateway = start(&text, recorder.address).await;
    let checks = |recorder: &Recorder| {
        recorder
            .requests()
            .iter()
            .filter(|seen| seen.target == "/up")
            .count()
    };
    wait_until(|| checks(&sick) >= 2 && checks(&recorder) >= 1).await;
    for _ in 0..20 {
        let response = exchange(gateway.address, &get("/", "")).await;
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    }
    gateway.running.stop().await;
}

#[tokio::test]
async fn a_slow_upstream_is_504_and_its_connection_is_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let text = "limits: none\ngateway: { upstreams: { app: { addresses: http://UPSTREAM, first_byte_timeout: 50ms } }, routes: [{ upstream: app }] }";
    let gateway = start(text, listener.local_addr().unwrap()).await;
    let request = get("/", "");
    let (response, closed) = tokio::join!(exchange(gateway.address, &request), async {
        let (mut upstream, _) = listener.accept().await.unwrap();
        let mut bytes = Vec::new();
        timeout(DEADLINE, upstream.read_to_end(&mut bytes))
            .await
            .is_ok()
    });
    assert!(response.starts_with("HTTP/1.1 504") && closed, "{response}");
    gateway.running.stop().await;
}

/// `first_byte_timeout` counts from when the upstream has the whole request. The upload was part of it, so that clients with long
/// uploads got 504.
#[tokio::test]
async fn a_slow_upload_is_no_slow_upstream() {
    const PATIENCE: Duration = Duration::from_millis(50);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let text = "limits: none\ngateway: { upstreams: { app: { addresses: http://UPSTREAM, first_byte_timeout: 50ms } }, routes: [{ upstream: app }] }";
    let gateway = start(text, listener.local_addr().unwrap()).await;
    for is_answered in [true, false] {
        let mut client = TcpStream::connect(gateway.address).await.unwrap();
        let head =
            b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 4\r\n\r\nab";
        client.write_all(head).await.unwrap();
        let (mut upstream, _) = listener.accept().await.unwrap();
        let mut answer = [0; 12];
        let early = timeout(4 * PATIENCE, client.read(&mut answer)).await;
        assert!(
            early.is_err(),
            "answered while the client was slow: {answer:?}"
        );
        client.write_all(b"cd").await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"abcd") {
            assert_ne!(upstream.read_buf(&mut request).await.unwrap(), 0);
        }
        if is_answered {
            upstream.write_all(OK.as_bytes()).await.unwrap();
        }
        let read = timeout(DEADLINE, client.read_exact(&mut answer)).await;
        read.expect("an answer").unwrap();
        let expected = if is_answered {
            "HTTP/1.1 200"
        } else {
            "HTTP/1.1 504"
        };
        assert_eq!(String::from_utf8_lossy(&answer), expected);
    }
    gateway.running.stop().await;
}

/// An upstream that stops in the middle of a body. The client must not take it for the whole.
#[tokio::test]
async fn a_body_that_stops_is_cut_off() {
    for (is_kept, fields) in [(true, ""), (false, ""), (true, BY_HYPER), (false, BY_HYPER)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let text = "limits: none\ngateway: { upstreams: { app: { addresses: http://UPSTREAM, idle_timeout: 50ms } }, routes: [{ upstream: app }] }";
        let gateway = start(text, listener.local_addr().unwrap()).await;
        let request = get("/", fields);
        let (response, _) = tokio::join!(exchange(gateway.address, &request), async {
            let (mut upstream, _) = listener.accept().await.unwrap();
            let mut head = [0; 1_024];
            let _request = upstream.read(&mut head).await.unwrap();
            upstream
                .write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
                .await
                .unwrap();
            if is_kept {
                let mut rest = Vec::new();
                let _closed = upstream.read_to_end(&mut rest).await;
            }
        });
        // If the upstream closes at once, nothing at all may have been sent to the client.
        assert!(!response.ends_with("0\r\n\r\n"), "{response}");
        assert!(!is_kept || response.contains("abc"), "{response}");
        gateway.running.stop().await;
    }
}

#[tokio::test]
async fn the_connections_of_an_address_are_bounded() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let text = "limits: none\ngateway: { upstreams: { app: { addresses: http://UPSTREAM, max_connections: 1, retries: 0 } }, routes: [{ upstream: app }] }";
    let gateway = start(text, listener.local_addr().unwrap()).await;
    let mut first = TcpStream::connect(gateway.address).await.unwrap();
    first.write_all(get("/", "").as_bytes()).await.unwrap();
    let (mut upstream, _) = listener.accept().await.unwrap();
    let response = exchange(gateway.address, &get("/", "")).await;
    assert!(response.starts_with("HTTP/1.1 503"), "{response}");
    upstream.write_all(OK.as_bytes()).await.unwrap();
    let mut response = String::new();
    first.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    gateway.running.stop().await;
}

/// The upstream need not work for a client that is gone. It may have sent the next request already.
#[tokio::test]
async fn a_client_that_disconnects_cancels_the_work_of_the_upstream() {
    let begun = "HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nabc";
    let next = "\r\nGET /next HTTP/1.1\r\nHost: a\r\n";
    for (answer, fields) in [
        ("", ""),
        (begun, ""),
        ("", BY_HYPER),
        (begun, BY_HYPER),
        ("", next),
        (begun, next),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gateway = start_plain(listener.local_addr().unwrap()).await;
        let mut client = TcpStream::connect(gateway.address).await.unwrap();
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        let (mut upstream, _) = listener.accept().await.unwrap();
        let mut head = [0; 1_024];
        let _request = upstream.read(&mut head).await.unwrap();
        upstream.write_all(answer.as_bytes()).await.unwrap();
        if !answer.is_empty() {
            let _begun = client.read(&mut head).await.unwrap();
        }
        drop(client);
        let closed = timeout(DEADLINE, upstream.read(&mut head))
            .await
            .expect("the end of the connection");
        assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
        gateway.running.stop().await;
    }
}

/// The upstream does not take the upload, so nobody reads from the client. It was noticed only when a timeout was over.
#[tokio::test]
async fn a_client_that_disconnects_while_its_upload_is_held_back_is_noticed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = start_plain(listener.local_addr().unwrap()).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n";
    client.write_all(head).await.unwrap();
    let (upstream, _) = listener.accept().await.unwrap();
    let piece = vec![b'x'; 1 << 16];
    // All buffers on the way fill up, and then nothing moves.
    while let Ok(sent) = timeout(Duration::from_millis(300), client.write(&piece)).await {
        assert_ne!(sent.unwrap(), 0);
    }
    // The connection is reset, because its end would wait behind the bytes that nobody reads.
    client.set_zero_linger().unwrap();
    drop(client);
    let counters = Arc::clone(gateway.gateway.counters());
    let gone = async {
        while counters.open() > 0 {
            tokio::task::yield_now().await;
        }
    };
    // Far below every timeout of a request.
    let noticed = timeout(Duration::from_secs(10), gone).await;
    noticed.expect("the end of the connection");
    drop(upstream);
    gateway.running.stop().await;
}

#[cfg(unix)]
#[tokio::test]
async fn an_upstream_may_listen_on_a_unix_socket() {
    let path = std::env::temp_dir().join(format!("tollgate-gateway-{}.sock", std::process::id()));
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let text = format!(
        "limits: none\ngateway: {{ upstreams: {{ app: 'unix:{}' }}, routes: [{{ upstream: app }}] }}",
        path.display()
    );
    let gateway = start(&text, closed_address().await).await;
    let request = get("/", "");
    let (response, ()) = tokio::join!(exchange(gateway.address, &request), async {
        let (mut upstream, _) = listener.accept().await.unwrap();
        let mut head = [0; 1_024];
        let _request = upstream.read(&mut head).await.unwrap();
        upstream.write_all(OK.as_bytes()).await.unwrap();
    });
    std::fs::remove_file(&path).unwrap();
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    gateway.running.stop().await;
}
