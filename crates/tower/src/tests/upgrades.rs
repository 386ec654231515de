//! Upgraded streams own the permits of their requests (I-14), although the handlers know nothing of permits.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::response::Response;
use axum::routing::{MethodRouter, any};
use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt as _, Empty};
use hyper::ext::Protocol;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::TollgateLayer;

const DEADLINE: Duration = Duration::from_secs(30);

/// Echoes what an upgraded stream gets, until it ends. Reports whether the upgrade succeeded.
#[expect(
    clippy::disallowed_methods,
    reason = "an upgraded stream outlives its handler"
)]
async fn echo(mut request: Request, status: StatusCode, results: mpsc::Sender<bool>) -> Response {
    let upgrade = hyper::upgrade::on(&mut request);
    let stream = tokio::task::spawn(async move {
        let upgraded = upgrade.await;
        results.send(upgraded.is_ok()).await.unwrap();
        if let Ok(upgraded) = upgraded {
            let (mut read, mut write) = tokio::io::split(TokioIo::new(upgraded));
            let _copied = tokio::io::copy(&mut read, &mut write).await;
        }
    });
    drop(stream);
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    if status == StatusCode::SWITCHING_PROTOCOLS {
        let headers = response.headers_mut();
        headers.insert("connection", "upgrade".parse().unwrap());
        headers.insert("upgrade", "echo".parse().unwrap());
    }
    response
}

/// A server on loopback with one permit. Its results say which upgrades succeeded.
async fn serve(
    status: StatusCode,
) -> (TollgateLayer, SocketAddr, mpsc::Receiver<bool>, JoinSet<()>) {
    let (results, upgrades) = mpsc::channel(8);
    let handler = any(move |request| echo(request, status, results.clone()));
    let (layer, address, server) = serve_handler(handler).await;
    (layer, address, upgrades, server)
}

/// The same with another handler.
async fn serve_handler(handler: MethodRouter) -> (TollgateLayer, SocketAddr, JoinSet<()>) {
    let layer = TollgateLayer::from_policy("limits: [{ name: one, concurrency: 1 }]").unwrap();
    let app = Router::new().route("/", handler).layer(layer.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut server = JoinSet::new();
    server.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = TowerToHyperService::new(app.clone());
            connections.spawn(async move {
                let mut server = auto::Builder::new(TokioExecutor::new());
                server.http2().enable_connect_protocol();
                let io = TokioIo::new(stream);
                // A client that closes its connection is not an error here.
                let _closed = server.serve_connection_with_upgrades(io, service).await;
            });
        }
    });
    (layer, address, server)
}

fn held(layer: &TollgateLayer) -> usize {
    layer.rate_limit_service().held_permits().0
}

async fn all_released(layer: &TollgateLayer) {
    let released = async {
        while held(layer) > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, released).await.expect("it is released");
}

/// Asks for an upgrade and sends the first bytes of the stream with it. Returns the head of the response.
async fn ask_for_upgrade(address: SocketAddr) -> (TcpStream, String) {
    send_upgrade(address, "upgrade: echo\r\n\r\nearly").await
}

/// The same with these fields and first bytes.
async fn send_upgrade(address: SocketAddr, more: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\n{more}");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(DEADLINE, stream.read_u8()).await.unwrap().unwrap());
    }
    (stream, String::from_utf8(head).unwrap())
}

#[tokio::test]
async fn i14_an_upgraded_stream_owns_its_permit_without_the_handlers_help() {
    let (layer, address, mut upgrades, _server) = serve(StatusCode::SWITCHING_PROTOCOLS).await;
    let (mut stream, head) = ask_for_upgrade(address).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    assert!(head.contains("ratelimit: \"one\";r=0"), "{head}");
    assert!(head.contains("upgrade: echo"), "the handler's own: {head}");
    assert_eq!(upgrades.recv().await, Some(true));
    stream.write_all(b" and late").await.unwrap();
    let mut echoed = [0; 14];
    let read = timeout(DEADLINE, stream.read_exact(&mut echoed)).await;
    read.unwrap().unwrap();
    assert_eq!(&echoed, b"early and late", "nothing is lost or added");
    assert_eq!(held(&layer), 1);
    let (_, second) = ask_for_upgrade(address).await;
    assert!(second.starts_with("HTTP/1.1 429"), "{second}");
    drop(stream);
    all_released(&layer).await;
    let (_, third) = ask_for_upgrade(address).await;
    assert!(third.starts_with("HTTP/1.1 101"), "{third}");
}

/// A handler that asks for the upgrade and then answers otherwise learns that there is none. Its permit is not kept.
#[tokio::test]
async fn i14_a_request_that_is_not_upgraded_releases_its_permit_with_the_response() {
    let (layer, address, mut upgrades, _server) = serve(StatusCode::FORBIDDEN).await;
    let (stream, head) = ask_for_upgrade(address).await;
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");
    assert_eq!(held(&layer), 0);
    drop(stream);
    let result = timeout(DEADLINE, upgrades.recv()).await.unwrap();
    assert_eq!(result, Some(false));
}

/// WebSocket over HTTP/2 (RFC 8441): a stream of the connection is upgraded.
#[tokio::test]
async fn i14_a_stream_of_extended_connect_owns_its_permit() {
    let (layer, address, mut upgrades, _server) = serve(StatusCode::OK).await;
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    let connect = || {
        let mut request = http::Request::connect("http://a/")
            .body(Empty::<Bytes>::new())
            .unwrap();
        let protocol = Protocol::from_static("websocket");
        request.extensions_mut().insert(protocol);
        request
    };
    let response = timeout(DEADLINE, client.send_request(connect())).await;
    let response = response.unwrap().unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(upgrades.recv().await, Some(true));
    let upgraded = hyper::upgrade::on(response).await.unwrap();
    let mut upgraded = TokioIo::new(upgraded);
    upgraded.write_all(b"hello").await.unwrap();
    let mut echoed = [0; 5];
    let read = timeout(DEADLINE, upgraded.read_exact(&mut echoed)).await;
    read.unwrap().unwrap();
    assert_eq!(&echoed, b"hello");
    assert_eq!(held(&layer), 1);
    let refused = client.send_request(connect()).await.unwrap();
    assert_eq!(refused.status(), 429);
    refused.collect().await.unwrap();
    drop(upgraded);
    all_released(&layer).await;
}

/// Sends every message back, until the client closes the socket or is gone.
async fn echo_messages(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        // A closing message is answered by axum itself, with the next `recv`, and cannot be sent back.
        let _sent = socket.send(message).await;
    }
}

/// Asks axum's `WebSocketUpgrade`. The key is that of RFC 6455.
async fn open_websocket(address: SocketAddr) -> (TcpStream, String) {
    let fields = "upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    send_upgrade(address, fields).await
}

/// Sends a frame with a mask of zeros. Returns the whole frame that comes back.
async fn exchange(stream: &mut TcpStream, opcode: u8, payload: &[u8]) -> Vec<u8> {
    let len = u8::try_from(payload.len()).unwrap();
    let frame = [&[opcode, 0x80 | len, 0, 0, 0, 0], payload].concat();
    stream.write_all(&frame).await.unwrap();
    let mut answer = vec![0; 2 + payload.len()];
    let read = timeout(DEADLINE, stream.read_exact(&mut answer)).await;
    read.unwrap().unwrap();
    answer
}

/// The handler of axum's WebSocket knows nothing of permits. A socket may be closed by its protocol or with its connection.
#[tokio::test]
async fn i14_an_axum_websocket_owns_its_permit_until_it_is_closed() {
    const TEXT: u8 = 0x81;
    const CLOSE: u8 = 0x88;
    let handler = any(|upgrade: WebSocketUpgrade| async { upgrade.on_upgrade(echo_messages) });
    let (layer, address, _server) = serve_handler(handler).await;
    for closes_by_protocol in [true, false] {
        let (mut socket, head) = open_websocket(address).await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        assert_eq!(
            exchange(&mut socket, TEXT, b"hello").await,
            b"\x81\x05hello"
        );
        assert_eq!(held(&layer), 1);
        let (_, second) = open_websocket(address).await;
        assert!(second.starts_with("HTTP/1.1 429"), "{second}");
        if closes_by_protocol {
            assert_eq!(exchange(&mut socket, CLOSE, b"").await, [CLOSE, 0]);
        } else {
            drop(socket);
        }
        all_released(&layer).await;
    }
}
