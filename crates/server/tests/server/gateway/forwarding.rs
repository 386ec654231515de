//! What an upstream gets and what a client gets back: targets, fields, bodies, trailers.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::recorder::Recorder;
use super::{DEADLINE, OK, exchange, field, get, start, start_plain, start_with};

#[tokio::test]
async fn a_request_and_its_response_pass_with_the_fields_of_a_proxy() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nX-App: yes\r\nratelimit: \"own\";r=1\r\nkeep-alive: timeout=9\r\nconnection: x-hop\r\nx-hop: 1\r\n\r\nok";
    let recorder = Recorder::start(answer).await;
    let gateway = start_plain(recorder.address).await;
    let response = exchange(
        gateway.address,
        &get("/a/../b?c=1", "X-Mine: 1\r\nConnection: x-secret\r\nX-Secret: 2\r\nX-Forwarded-For: 10.0.0.1\r\nX-Request-Id: id-7\r\n"),
    )
    .await;
    assert!(
        response.starts_with("HTTP/1.1 200 ") && response.ends_with("\r\n\r\nok"),
        "{response}"
    );
    for (name, value) in [
        ("x-app", Some("yes")),
        ("ratelimit", Some("\"own\";r=1")),
        ("via", Some("1.1 tollgate")),
        ("x-request-id", Some("id-7")),
        ("x-hop", None),
        ("keep-alive", None),
    ] {
        assert_eq!(field(&response, name), value, "{name}");
    }
    let seen = recorder.only_request();
    assert_eq!((&*seen.method, &*seen.target), ("GET", "/b?c=1"));
    for (name, value) in [
        ("host", Some("a.example")),
        ("x-mine", Some("1")),
        ("x-forwarded-for", Some("127.0.0.1")),
        ("x-forwarded-host", Some("a.example")),
        ("x-forwarded-proto", Some("http")),
        ("x-real-ip", Some("127.0.0.1")),
        ("via", Some("1.1 tollgate")),
        ("x-request-id", Some("id-7")),
        ("connection", None),
        ("x-secret", None),
        ("content-length", None),
        ("transfer-encoding", None),
    ] {
        assert_eq!(seen.field(name), value, "{name}");
    }
    gateway.running.stop().await;
}

#[tokio::test]
async fn routes_choose_upstreams_and_change_paths_and_fields() {
    let recorder = Recorder::start(OK).await;
    let text = "
limits: none
gateway:
  upstreams: { app: http://UPSTREAM }
  routes:
    - path: /api
      upstream: app
      strip_prefix: true
      request_headers: { remove: [cookie, x-request-id], add: { x-from: gateway } }
      response_headers: { remove: [content-type], add: { x-by: tollgate } }
    - { host: '*.b.example', path: /x, upstream: app }";
    let gateway = start(text, recorder.address).await;
    let response = exchange(gateway.address, &get("/api/v1?q", "Cookie: a=1\r\n")).await;
    assert_eq!(field(&response, "x-by"), Some("tollgate"));
    let seen = recorder.only_request();
    assert_eq!(seen.target, "/v1?q");
    assert_eq!(
        (seen.field("x-from"), seen.field("cookie")),
        (Some("gateway"), None)
    );
    assert_eq!(seen.field("x-forwarded-prefix"), Some("/api"));
    for (path, host, status) in [
        ("/apis", "a.example", "404"),
        ("/x", "a.example", "404"),
        ("/x", "c.b.example", "200"),
        ("/x", "C.B.Example.:80", "200"),
        // Servers that decode `%2F` or strip parameters would read a path of another route.
        ("/other/..%2fapi", "a.example", "404"),
        ("/api/..%2fx", "c.b.example", "400"),
        ("/api/..;/x", "c.b.example", "400"),
        ("/api/%2e%2e/x", "c.b.example", "200"),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let response = exchange(gateway.address, &request).await;
        assert_eq!(&response[9..12], status, "{host}{path}");
    }
    gateway.running.stop().await;
}

#[tokio::test]
async fn a_trusted_proxy_names_the_client() {
    let recorder = Recorder::start(OK).await;
    let text = "limits: none\ngateway: { upstreams: { app: http://UPSTREAM }, routes: [{ upstream: app }] }";
    let gateway = start_with(text, recorder.address, Default::default(), "127.0.0.0/8").await;
    let request = get(
        "/",
        "X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\nX-Request-Id: a b\r\n",
    );
    let response = exchange(gateway.address, &request).await;
    let seen = recorder.only_request();
    assert_eq!(seen.field("x-forwarded-for"), Some("192.0.2.7, 127.0.0.1"));
    assert_eq!(seen.field("x-real-ip"), Some("192.0.2.7"));
    assert_eq!(seen.field("x-forwarded-proto"), Some("https"));
    let id = field(&response, "x-request-id");
    assert_eq!(
        (id.map(str::len), id),
        (Some(32), seen.field("x-request-id")),
        "a new one"
    );
    gateway.running.stop().await;
}

#[tokio::test]
async fn many_requests_use_one_connection_to_the_upstream() {
    let recorder = Recorder::start(OK).await;
    let gateway = start_plain(recorder.address).await;
    for number in 0..10 {
        let body = "x".repeat(number * 100);
        let request = format!(
            "POST /{number} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let response = exchange(gateway.address, &request).await;
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        assert_eq!(recorder.requests()[number].body, body.as_bytes());
    }
    assert_eq!(recorder.seen.lock().unwrap().connections, 1);
    gateway.running.stop().await;
}

#[tokio::test]
async fn chunked_bodies_and_trailers_pass_both_ways() {
    let answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n3\r\nabc\r\n0\r\nx-sum: 7\r\n\r\n";
    let recorder = Recorder::start(answer).await;
    let gateway = start_plain(recorder.address).await;
    let request = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTE: trailers\r\nTrailer: x-check\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nde\r\n0\r\nx-check: 5\r\n\r\n";
    let response = exchange(gateway.address, request).await;
    assert!(
        response.contains("abc") && response.ends_with("0\r\nx-sum: 7\r\n\r\n"),
        "{response}"
    );
    let seen = recorder.only_request();
    assert_eq!(seen.body, b"de");
    assert_eq!(seen.trailers, [("x-check".to_owned(), "5".to_owned())]);
    gateway.running.stop().await;
}

#[tokio::test]
async fn responses_without_bodies_keep_their_lengths() {
    for (method, answer, length) in [
        (
            "HEAD",
            "HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n",
            Some("1234"),
        ),
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n", None),
        (
            "GET",
            "HTTP/1.1 304 Not Modified\r\netag: \"a\"\r\n\r\n",
            None,
        ),
    ] {
        let recorder = Recorder::start(answer).await;
        let gateway = start_plain(recorder.address).await;
        let request = format!("{method} / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let response = exchange(gateway.address, &request).await;
        assert_eq!(&response[9..12], &answer[9..12], "{response}");
        assert_eq!(field(&response, "content-length"), length, "{response}");
        assert!(response.ends_with("\r\n\r\n"));
        gateway.running.stop().await;
    }
}

/// Server-sent events and long polls: each piece reaches the client before the next is sent.
#[tokio::test]
async fn a_response_streams_without_buffering() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = start_plain(listener.local_addr().unwrap()).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    client
        .write_all(get("/events", "").as_bytes())
        .await
        .unwrap();
    let (mut upstream, _) = listener.accept().await.unwrap();
    let mut head = [0; 4_096];
    let _request = upstream.read(&mut head).await.unwrap();
    upstream
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        .await
        .unwrap();
    let mut seen = String::new();
    for number in 0..3 {
        let event = format!("data: {number}\n\n");
        upstream.write_all(event.as_bytes()).await.unwrap();
        while !seen.contains(&event) {
            let mut buffer = [0; 1_024];
            let len = timeout(DEADLINE, client.read(&mut buffer))
                .await
                .unwrap()
                .unwrap();
            assert_ne!(len, 0, "{seen}");
            seen.push_str(std::str::from_utf8(&buffer[..len]).unwrap());
        }
    }
    drop(upstream);
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    gateway.running.stop().await;
}

/// The client sends its body only when the upstream wants it.
#[tokio::test]
async fn a_client_that_expects_100_is_told_to_continue() {
    let recorder = Recorder::start(OK).await;
    let gateway = start_plain(recorder.address).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    let head = "PUT / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    let mut interim = [0; 25];
    timeout(DEADLINE, client.read_exact(&mut interim))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    client.write_all(b"abc").await.unwrap();
    let mut response = String::new();
    client.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    let seen = recorder.only_request();
    assert_eq!((&seen.body[..], seen.field("expect")), (&b"abc"[..], None));
    gateway.running.stop().await;
}

/// A large body passes while neither side holds it whole, and the client's speed is the upstream's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_pass_in_both_directions() {
    const LEN: usize = 8 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = start_plain(listener.local_addr().unwrap()).await;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        // Echoes all that follows the head.
        let (mut upstream, _) = listener.accept().await.unwrap();
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            bytes.push(upstream.read_u8().await.unwrap());
        }
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {LEN}\r\n\r\n");
        upstream.write_all(head.as_bytes()).await.unwrap();
        let (mut read, mut write) = upstream.split();
        tokio::io::copy(&mut (&mut read).take(LEN as u64), &mut write)
            .await
            .unwrap();
    });
    let client = TcpStream::connect(gateway.address).await.unwrap();
    let (mut read, mut write) = client.into_split();
    tasks.spawn(async move {
        let head = format!(
            "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {LEN}\r\n\r\n"
        );
        write.write_all(head.as_bytes()).await.unwrap();
        let piece: Vec<u8> = (0..=255).collect();
        for _ in 0..LEN / piece.len() {
            write.write_all(&piece).await.unwrap();
        }
        // Open until the response is read.
        std::future::pending::<()>().await;
    });
    let mut response = Vec::new();
    timeout(DEADLINE, read.read_to_end(&mut response))
        .await
        .unwrap()
        .unwrap();
    let body = &response[response.len() - LEN..];
    assert!(body.chunks(256).all(|chunk| {
        chunk
            .iter()
            .enumerate()
            .all(|(at, byte)| at == usize::from(*byte))
    }));
    gateway.running.stop().await;
}
