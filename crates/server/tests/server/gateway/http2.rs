//! HTTP/2 on both sides: prior knowledge, downgrades, trailers of gRPC, and floods.

use bytes::Bytes;
use hyper::{Request, Response};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::recorder::Recorder;
use super::{DEADLINE, OK, exchange, get, start, start_plain};

type Client = h2::client::SendRequest<Bytes>;

async fn connect(address: std::net::SocketAddr, tasks: &mut JoinSet<()>) -> Client {
    let stream = TcpStream::connect(address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tasks.spawn(async move { drop(connection.await) });
    client
}

/// The status and the body of a response.
async fn call(client: &mut Client, request: Request<()>) -> Result<(u16, Vec<u8>), h2::Error> {
    let (response, _) = client.send_request(request, true)?;
    let response = timeout(DEADLINE, response).await.unwrap()?;
    let status = response.status().as_u16();
    let (mut body, mut bytes) = (response.into_body(), Vec::new());
    while let Some(data) = body.data().await {
        bytes.extend(data?);
    }
    Ok((status, bytes))
}

#[tokio::test]
async fn many_requests_of_one_http2_connection_reach_an_http1_upstream() {
    let recorder = Recorder::start(OK).await;
    let gateway = start_plain(recorder.address).await;
    let mut tasks = JoinSet::new();
    let client = connect(gateway.address, &mut tasks).await;
    let mut calls = JoinSet::new();
    for number in 0..50 {
        let mut client = client.clone();
        calls.spawn(async move {
            let request = Request::get(format!("http://a.example/{number}?q"))
                .header("cookie", "a=1")
                .header("cookie", "b=2");
            call(&mut client, request.body(()).unwrap()).await.unwrap()
        });
    }
    while let Some(called) = calls.join_next().await {
        assert_eq!(called.unwrap(), (200, b"ok".to_vec()));
    }
    let seen = recorder.requests();
    assert_eq!(seen.len(), 50);
    for request in seen {
        assert_eq!(request.field("host"), Some("a.example"));
        assert_eq!(request.field("cookie"), Some("a=1; b=2"));
        assert_eq!(request.field("via"), Some("2 tollgate"));
    }
    gateway.running.stop().await;
}

/// Pseudo-header tricks and downgrades: the upstream sees one well-formed request or none.
#[tokio::test]
async fn tricks_of_http2_do_not_reach_an_http1_upstream() {
    let recorder = Recorder::start(OK).await;
    let gateway = start_plain(recorder.address).await;
    let mut tasks = JoinSet::new();
    let header = |name: &'static str, value: &[u8]| {
        let mut request = Request::get("http://a.example/").body(()).unwrap();
        let value = hyper::header::HeaderValue::from_bytes(value).unwrap();
        request.headers_mut().append(name, value);
        request
    };
    let uri =
        |method: &str, uri: &str| Request::builder().method(method).uri(uri).body(()).unwrap();
    for (request, status) in [
        (header("host", b"b.example"), Some(400)),
        (header("host", b"a.example"), Some(200)),
        (header("content-length", b"5"), None),
        (header("x-a", b"b\x09c"), Some(200)),
        (uri("CONNECT", "a.example:443"), Some(405)),
        (uri("TRACE", "http://a.example/"), Some(405)),
        (uri("GET", "http://a.example/%00"), Some(400)),
        (uri("GET", "http://a.example//x/../y"), Some(200)),
        (uri("GET", "ftp://a.example/"), Some(400)),
        (uri("OPTIONS", "http://a.example/x"), Some(200)),
    ] {
        let mut client = connect(gateway.address, &mut tasks).await;
        let shown = format!("{request:?}");
        let called = call(&mut client, request).await;
        match status {
            Some(status) => assert_eq!(called.unwrap().0, status, "{shown}"),
            None => assert!(
                called.is_err() || called.is_ok_and(|(status, _)| status >= 400),
                "{shown}"
            ),
        }
    }
    for seen in recorder.requests() {
        assert_eq!(seen.field("transfer-encoding"), None);
        assert_eq!(seen.field("connection"), None);
    }
    gateway.running.stop().await;
}

/// An h2c upstream: one connection for all requests, and trailers as gRPC needs them.
#[tokio::test]
async fn grpc_passes_to_an_http2_upstream_with_its_trailers() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            assert_eq!(request.headers()["te"], "trailers");
            assert_eq!(request.uri().authority().unwrap(), "a.example");
            let head = Response::builder()
                .header("content-type", "application/grpc")
                .body(())
                .unwrap();
            let mut body = respond.send_response(head, false).unwrap();
            body.send_data(Bytes::from_static(b"message"), false)
                .unwrap();
            let mut trailers = hyper::HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().unwrap());
            body.send_trailers(trailers).unwrap();
        }
    });
    let text = "limits: none\ngateway: { upstreams: { app: 'h2c://UPSTREAM' }, routes: [{ upstream: app }] }";
    let gateway = start(text, address).await;
    let mut client = connect(gateway.address, &mut tasks).await;
    for _ in 0..3 {
        let request = Request::post("http://a.example/pkg.Service/Method")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .unwrap();
        let (response, mut send) = client.send_request(request, false).unwrap();
        send.send_data(Bytes::from_static(b"ask"), true).unwrap();
        let response = timeout(DEADLINE, response).await.unwrap().unwrap();
        let mut body = response.into_body();
        assert_eq!(body.data().await.unwrap().unwrap(), "message");
        let trailers = timeout(DEADLINE, body.trailers())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(trailers["grpc-status"], "0");
    }
    // A client with HTTP/1.1 gets the same response.
    let response = exchange(gateway.address, &get("/", "TE: trailers\r\n")).await;
    assert!(
        response.starts_with("HTTP/1.1 200") && response.contains("message"),
        "{response}"
    );
    gateway.running.stop().await;
}

/// Rapid reset, and frames that ask for nothing: such a connection ends, and others are served.
#[tokio::test]
async fn s_37_floods_end_their_connection() {
    let recorder = Recorder::start(OK).await;
    let gateway = start_plain(recorder.address).await;
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(payload);
        bytes
    };
    // `:method GET`, `:scheme http`, `:path /`, `:authority a`.
    let head = [0x82, 0x86, 0x84, 0x41, 0x01, b'a'];
    let mut resets = Vec::new();
    for number in 0..5_000_u32 {
        resets.extend(frame(1, 5, 2 * number + 1, &head));
        resets.extend(frame(3, 0, 2 * number + 1, &8_u32.to_be_bytes()));
    }
    let mut continuations = frame(1, 1, 1, &head);
    continuations.extend((0..5_000).flat_map(|_| frame(9, 0, 1, b"")));
    let pings: Vec<u8> = (0..5_000).flat_map(|_| frame(6, 0, 0, &[0; 8])).collect();
    let settings: Vec<u8> = (0..5_000).flat_map(|_| frame(4, 0, 0, &[])).collect();
    let empty: Vec<u8> = {
        let mut bytes = frame(1, 4, 1, &head);
        bytes.extend((0..5_000).flat_map(|_| frame(0, 0, 1, b"")));
        bytes
    };
    for (name, flood) in [
        ("resets", resets),
        ("continuations", continuations),
        ("pings", pings),
        ("settings", settings),
        ("empty data", empty),
    ] {
        let mut client = TcpStream::connect(gateway.address).await.unwrap();
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend(frame(4, 0, 0, &[]));
        bytes.extend(flood);
        let _cut = client.write_all(&bytes).await;
        let mut answer = vec![0; 1 << 16];
        let ended = async { while !matches!(client.read(&mut answer).await, Ok(0) | Err(_)) {} };
        timeout(DEADLINE, ended)
            .await
            .unwrap_or_else(|_| panic!("{name}: the connection is open"));
    }
    let response = exchange(gateway.address, &get("/after", "")).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    gateway.running.stop().await;
}
