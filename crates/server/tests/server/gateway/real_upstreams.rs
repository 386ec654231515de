//! Upstreams of other people behind the gateway: axum with streams both ways, trailers and events, tonic with grpcio before it.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::http::HeaderMap;
use axum::response::Sse;
use axum::response::sse::Event;
use axum::routing::{get, post};
use bytes::{Buf as _, BufMut as _, Bytes};
use hyper::{Request, Response};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tollgate_testkit::redis::python_packages;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{Grpc, NamedService, ServerStreamingService, UnaryService};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Status, body as tonic_body};

use super::{DEADLINE, exchange, field, start, start_plain};

/// Sends back what it gets, piece by piece, and the trailers.
async fn echo(headers: HeaderMap, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    if let Some(names) = headers.get("trailer") {
        response.headers_mut().insert("trailer", names.clone());
    }
    response
}

async fn events() -> Sse<impl tokio_stream::Stream<Item = Result<Event, Infallible>>> {
    let numbers = (1..=3).map(|number| Ok(Event::default().event("tick").data(number.to_string())));
    Sse::new(tokio_stream::iter(numbers))
}

async fn start_axum(tasks: &mut JoinSet<()>) -> SocketAddr {
    let app = Router::new()
        .route("/echo", post(echo))
        .route("/events", get(events));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tasks.spawn(async move { axum::serve(listener, app).await.unwrap() });
    address
}

/// Reads until the text is there.
async fn read_until(client: &mut TcpStream, seen: &mut String, text: &str) {
    let reading = async {
        while !seen.contains(text) {
            let mut piece = [0; 4_096];
            let len = client.read(&mut piece).await.unwrap();
            assert_ne!(len, 0, "{seen}");
            seen.push_str(std::str::from_utf8(&piece[..len]).unwrap());
        }
    };
    timeout(DEADLINE, reading).await.expect("the text");
}

#[tokio::test]
async fn axum_streams_both_ways_and_gets_and_sends_trailers() {
    let mut tasks = JoinSet::new();
    let gateway = start_plain(start_axum(&mut tasks).await).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    let head = "POST /echo HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nTrailer: x-check\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    let mut seen = String::new();
    // Each piece is back before the next one is sent.
    for piece in ["one", "two", "six"] {
        let chunk = format!("3\r\n{piece}\r\n");
        client.write_all(chunk.as_bytes()).await.unwrap();
        read_until(&mut client, &mut seen, piece).await;
    }
    let end = b"0\r\nX-Check: 5\r\n\r\n";
    client.write_all(end).await.unwrap();
    read_until(&mut client, &mut seen, "0\r\nx-check: 5\r\n\r\n").await;
    assert!(seen.starts_with("HTTP/1.1 200"), "{seen}");
    gateway.running.stop().await;
}

#[tokio::test]
async fn events_of_axum_pass() {
    let mut tasks = JoinSet::new();
    let gateway = start_plain(start_axum(&mut tasks).await).await;
    let response = exchange(gateway.address, &super::get("/events", "")).await;
    assert_eq!(field(&response, "content-type"), Some("text/event-stream"));
    for number in 1..=3 {
        let event = format!("event: tick\ndata: {number}\n\n");
        assert!(response.contains(&event), "{response}");
    }
    gateway.running.stop().await;
}

/// Messages are bytes.
#[derive(Clone, Copy, Default)]
struct BytesCodec;

impl Codec for BytesCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(message);
        Ok(())
    }
}

impl Decoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }
}

/// Returns the message once, or once for each of its bytes. A message `fail` is an error.
#[derive(Clone, Copy)]
struct EchoMethod;

type Reply<T> = Ready<Result<tonic::Response<T>, Status>>;

impl UnaryService<Bytes> for EchoMethod {
    type Response = Bytes;
    type Future = Reply<Bytes>;

    fn call(&mut self, request: tonic::Request<Bytes>) -> Self::Future {
        let message = request.into_inner();
        ready(match &*message {
            b"fail" => Err(Status::failed_precondition("as asked")),
            _ => Ok(tonic::Response::new(message)),
        })
    }
}

impl ServerStreamingService<Bytes> for EchoMethod {
    type Response = Bytes;
    type ResponseStream = tokio_stream::Iter<std::vec::IntoIter<Result<Bytes, Status>>>;
    type Future = Reply<Self::ResponseStream>;

    fn call(&mut self, request: tonic::Request<Bytes>) -> Self::Future {
        let message = request.into_inner();
        let mut replies: Vec<_> = (0..message.len())
            .map(|at| Ok(message.slice(at..=at)))
            .collect();
        replies.push(Err(Status::out_of_range("no more bytes")));
        ready(Ok(tonic::Response::new(tokio_stream::iter(replies))))
    }
}

/// The service `test.Echo` with the methods `Unary` and `Stream`.
#[derive(Clone, Copy)]
struct Echo;

impl NamedService for Echo {
    const NAME: &'static str = "test.Echo";
}

impl tower::Service<Request<tonic_body::Body>> for Echo {
    type Response = Response<tonic_body::Body>;
    type Error = Infallible;
    type Future =
        std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<tonic_body::Body>) -> Self::Future {
        let mut grpc = Grpc::new(BytesCodec);
        Box::pin(async move {
            Ok(match request.uri().path() {
                "/test.Echo/Unary" => grpc.unary(EchoMethod, request).await,
                _ => grpc.server_streaming(EchoMethod, request).await,
            })
        })
    }
}

/// grpcio, the gateway and tonic: unary calls, a stream of the server, and statuses in trailers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpcio_calls_tonic_through_the_gateway() {
    const SCRIPT: &str = r#"
import sys, grpc
channel = grpc.insecure_channel(sys.argv[1])
unary = channel.unary_unary("/test.Echo/Unary")
assert unary(b"hello", timeout=30) == b"hello"
try:
    unary(b"fail", timeout=30)
    raise SystemExit("no error")
except grpc.RpcError as error:
    assert (error.code(), error.details()) == (grpc.StatusCode.FAILED_PRECONDITION, "as asked"), error
stream = channel.unary_stream("/test.Echo/Stream")(b"abc", timeout=30)
assert [next(stream) for _ in range(3)] == [b"a", b"b", b"c"]
try:
    next(stream)
    raise SystemExit("no status")
except grpc.RpcError as error:
    assert (error.code(), error.details()) == (grpc.StatusCode.OUT_OF_RANGE, "no more bytes"), error
print("fine")
"#;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    let server = Server::builder().add_service(Echo);
    tasks.spawn(async move {
        let serving = server.serve_with_incoming(TcpIncoming::from(listener));
        serving.await.unwrap();
    });
    let text = "limits: [{ name: all, rate: 100/h }]\ngateway: { upstreams: { app: 'h2c://UPSTREAM' }, routes: [{ upstream: app }] }";
    let gateway = start(text, address).await;
    let output = Command::new("python3")
        .args(["-c", SCRIPT, &gateway.address.to_string()])
        .env("PYTHONPATH", python_packages("grpc", "grpcio==1.85.1"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "fine\n");
    gateway.running.stop().await;
}
