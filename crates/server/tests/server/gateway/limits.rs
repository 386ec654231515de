//! Limits around forwarded requests: denials, fields, permits that travel with bodies and tunnels.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::recorder::Recorder;
use super::{DEADLINE, OK, exchange, field, get, start};

const GATEWAY: &str =
    "gateway: { upstreams: { app: http://UPSTREAM }, routes: [{ upstream: app }] }";

/// A denial needs no body of the request, and the upstream sees nothing.
#[tokio::test]
async fn a_denied_request_is_answered_before_its_body_and_not_forwarded() {
    let recorder = Recorder::start(OK).await;
    let text = format!("limits: [{{ name: all, rate: 1/h }}]\n{GATEWAY}");
    let gateway = start(&text, recorder.address).await;
    let admitted = exchange(gateway.address, &get("/", "")).await;
    assert!(admitted.starts_with("HTTP/1.1 200"), "{admitted}");
    assert_eq!(
        field(&admitted, "ratelimit-policy"),
        Some("\"all\";q=1;w=3600")
    );
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    let head =
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    let mut denied = vec![0; 8_192];
    let len = timeout(DEADLINE, client.read(&mut denied))
        .await
        .unwrap()
        .unwrap();
    let denied = String::from_utf8_lossy(&denied[..len]);
    assert!(denied.starts_with("HTTP/1.1 429"), "{denied}");
    assert!(
        field(&denied, "retry-after").is_some() && field(&denied, "x-request-id").is_some(),
        "{denied}"
    );
    assert_eq!(recorder.requests().len(), 1);
    gateway.running.stop().await;
}

/// Limits and the upstream see the same path, so no spelling evades a limit.
#[tokio::test]
async fn no_spelling_of_a_path_evades_a_limit() {
    let recorder = Recorder::start(OK).await;
    let text =
        format!("limits: [{{ name: login, match: {{ path: /login }}, rate: 1/h }}]\n{GATEWAY}");
    let gateway = start(&text, recorder.address).await;
    let mut statuses = Vec::new();
    for path in [
        "/login",
        "//login",
        "/./login",
        "/x/../login",
        "/%6cogin",
        "/login/",
        "http://a.example/login",
    ] {
        let response = exchange(gateway.address, &get(path, "")).await;
        statuses.push(response[9..12].to_owned());
    }
    assert_eq!(statuses, ["200", "429", "429", "429", "429", "429", "429"]);
    gateway.running.stop().await;
}

/// A WebSocket holds its place until it ends, not only until it begins.
#[tokio::test]
async fn a_websocket_holds_its_permit_until_it_ends() {
    let text = format!("limits: [{{ name: in-flight, concurrency: 1 }}]\n{GATEWAY}");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = start(&text, listener.local_addr().unwrap()).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    let request =
        "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    client.write_all(request.as_bytes()).await.unwrap();
    let (mut upstream, _) = listener.accept().await.unwrap();
    let accepted =
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nhi";
    upstream.write_all(accepted).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\nhi") {
        head.push(timeout(DEADLINE, client.read_u8()).await.unwrap().unwrap());
    }
    let second = exchange(gateway.address, &get("/", "")).await;
    assert!(second.starts_with("HTTP/1.1 429"), "{second}");
    drop(client);
    let mut rest = Vec::new();
    let _closed = timeout(DEADLINE, upstream.read_to_end(&mut rest))
        .await
        .unwrap();
    drop(upstream);
    // The place is free again soon after both ends are closed.
    let request = get("/", "");
    let admitted = async {
        loop {
            tokio::select! {
                third = exchange(gateway.address, &request) => assert!(third.starts_with("HTTP/1.1 429"), "{third}"),
                Ok(_) = listener.accept() => return,
            }
        }
    };
    timeout(DEADLINE, admitted).await.expect("a free place");
    gateway.running.stop().await;
}

/// The place of a request is free again when its response has ended, and not before.
#[tokio::test]
async fn a_permit_is_held_until_the_body_ends_or_the_client_is_gone() {
    let text = format!("limits: [{{ name: in-flight, concurrency: 1 }}]\n{GATEWAY}");
    for is_aborted in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gateway = start(&text, listener.local_addr().unwrap()).await;
        let mut first = TcpStream::connect(gateway.address).await.unwrap();
        first.write_all(get("/", "").as_bytes()).await.unwrap();
        let (mut upstream, _) = listener.accept().await.unwrap();
        upstream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nab")
            .await
            .unwrap();
        let mut begun = [0; 1_024];
        let _begun = timeout(DEADLINE, first.read(&mut begun))
            .await
            .unwrap()
            .unwrap();
        let second = exchange(gateway.address, &get("/", "")).await;
        assert!(second.starts_with("HTTP/1.1 429"), "{second}");
        if is_aborted {
            drop(first);
            // The gateway closes its connection when it has noticed.
            let mut rest = Vec::new();
            let _closed = timeout(DEADLINE, upstream.read_to_end(&mut rest))
                .await
                .unwrap();
        } else {
            upstream.write_all(b"cd").await.unwrap();
            let mut rest = Vec::new();
            timeout(DEADLINE, first.read_to_end(&mut rest))
                .await
                .unwrap()
                .unwrap();
        }
        let request = get("/", "");
        let (third, _upstream) = tokio::join!(exchange(gateway.address, &request), async {
            if is_aborted {
                (upstream, _) = listener.accept().await.unwrap();
            }
            upstream.write_all(OK.as_bytes()).await.unwrap();
            upstream
        });
        assert!(third.starts_with("HTTP/1.1 200"), "{third}");
        gateway.running.stop().await;
    }
}
