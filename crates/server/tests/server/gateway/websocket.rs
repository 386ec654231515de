//! WebSockets over HTTP/1.1 and HTTP/2. Frames are opaque: an echo of bytes is enough.

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{DEADLINE, exchange, get, start_plain};

const ACCEPTED: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: x\r\n\r\nhello";

/// Accepts one WebSocket, says hello, and echoes. Returns the head of the request.
async fn echo(listener: TcpListener, answer: &[u8]) -> String {
    let (mut upstream, _) = listener.accept().await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(upstream.read_u8().await.unwrap());
    }
    upstream.write_all(answer).await.unwrap();
    let (mut read, mut write) = upstream.split();
    tokio::io::copy(&mut read, &mut write).await.unwrap();
    String::from_utf8(head).unwrap().to_ascii_lowercase()
}

const ASK: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

#[tokio::test]
async fn a_websocket_becomes_a_tunnel() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = start_plain(listener.local_addr().unwrap()).await;
    let mut tasks = JoinSet::new();
    tasks.spawn(echo(listener, ACCEPTED));
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    let request = format!("GET /chat HTTP/1.1\r\nHost: a\r\n{ASK}\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    while !response.ends_with(b"\r\n\r\nhello") {
        response.push(timeout(DEADLINE, client.read_u8()).await.unwrap().unwrap());
    }
    let response = String::from_utf8(response).unwrap();
    assert!(
        response.starts_with("HTTP/1.1 101 ") && response.contains("upgrade: websocket"),
        "{response}"
    );
    for number in 0..100_u32 {
        client.write_u32(number).await.unwrap();
        assert_eq!(
            timeout(DEADLINE, client.read_u32()).await.unwrap().unwrap(),
            number
        );
    }
    drop(client);
    let head = timeout(DEADLINE, tasks.join_next())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    for line in [
        "get /chat http/1.1",
        "connection: upgrade",
        "upgrade: websocket",
        "sec-websocket-key: dghlihnhbxbszsbub25jzq==",
    ] {
        assert!(head.contains(line), "{head}");
    }
    gateway.running.stop().await;
}

#[tokio::test]
async fn an_upstream_that_refuses_a_websocket_answers_as_ever() {
    let recorder =
        super::recorder::Recorder::start("HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno")
            .await;
    let gateway = start_plain(recorder.address).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    let request = format!(
        "GET /chat HTTP/1.1\r\nHost: a\r\n{ASK}\r\n{}",
        get("/next", "")
    );
    client.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    timeout(DEADLINE, client.read_to_string(&mut response))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(response.matches("HTTP/1.1 403").count(), 2, "{response}");
    gateway.running.stop().await;
}

/// An upstream must not turn a connection into something that nobody asked for.
#[tokio::test]
async fn a_switch_that_nobody_asked_for_is_502() {
    let asked = format!("GET / HTTP/1.1\r\nHost: a\r\n{ASK}\r\n");
    let other: &[u8] =
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n";
    for (request, answer) in [
        (get("/", ""), ACCEPTED),
        (
            asked.replace("Connection: Upgrade", "Connection: Upgrade, close"),
            other,
        ),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gateway = start_plain(listener.local_addr().unwrap()).await;
        let mut tasks = JoinSet::new();
        tasks.spawn(echo(listener, answer));
        let response = exchange(gateway.address, &request).await;
        assert!(response.starts_with("HTTP/1.1 502"), "{response}");
        gateway.running.stop().await;
    }
}

/// RFC 8441: `:protocol` in an extended CONNECT. The upstream gets the request of HTTP/1.1.
#[tokio::test]
async fn a_websocket_over_http2_becomes_a_tunnel_too() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = start_plain(listener.local_addr().unwrap()).await;
    let mut tasks = JoinSet::new();
    tasks.spawn(echo(listener, ACCEPTED));
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    let mut client = client.ready().await.unwrap();
    let mut request = hyper::Request::builder()
        .method("CONNECT")
        .uri("http://a.example/chat")
        .body(())
        .unwrap();
    request
        .extensions_mut()
        .insert(h2::ext::Protocol::from_static("websocket"));
    // The server's settings, which allow the protocol, have to arrive first.
    super::wait_until(|| client.is_extended_connect_protocol_enabled()).await;
    let (response, mut send) = client.send_request(request, false).unwrap();
    let response = timeout(DEADLINE, response).await.unwrap().unwrap();
    assert_eq!(response.status(), 200);
    assert!(!response.headers().contains_key("sec-websocket-accept"));
    let mut body = response.into_body();
    let mut seen = Vec::new();
    send.send_data(Bytes::from_static(b"over http/2"), false)
        .unwrap();
    while seen != b"helloover http/2" {
        let data = timeout(DEADLINE, body.data())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
        seen.extend(data);
    }
    send.send_data(Bytes::new(), true).unwrap();
    let head = timeout(DEADLINE, tasks.join_next())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert!(
        head.starts_with("get /chat http/1.1") && head.contains("sec-websocket-key: "),
        "{head}"
    );
    gateway.running.stop().await;
}
