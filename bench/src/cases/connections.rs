//! Requests on a connection: from the bytes that were read to the bytes that are written, through everything between.
//!
//! The socket is in memory and the clock of decisions stands still. Must not know: how any of it is done.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use tollgate_server::grpc::{GrpcLimits, GrpcServer};
use tollgate_server::listen::{LocalEndpoint, Peer, ShutdownTrigger};
use tollgate_server::{HttpApi, HttpLimits};
use tollgate_store::ManualClock;

use super::CaseRun;
use super::sockets::InMemorySocket;
use super::transports::app;
use crate::measure::measured_section;

const QUESTION: &str = r#"{"attributes":{"header.x-api-key":"user000000000001"}}"#;
const RLS_PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

const HEALTH_PATH: &str = "/grpc.health.v1.Health/Check";

/// Frames of HTTP/2.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// `POST /v1/check` with these further header fields, under one bucket of so many units an hour.
pub(super) fn http_check(times: u64, units: u64, fields: &str) -> CaseRun {
    http(times, units, &post("/v1/check", fields, QUESTION))
}

/// Ten checks in one request.
pub(super) fn http_batch(times: u64) -> CaseRun {
    let body = format!(r#"{{"requests":[{}]}}"#, [QUESTION; 10].join(","));
    http(times, 1_000_000_000, &post("/v1/check/batch", "", &body))
}

/// Ten checks that arrive together.
pub(super) fn http_pipeline(times: u64) -> CaseRun {
    http(
        times,
        1_000_000_000,
        &post("/v1/check", "", QUESTION).repeat(10),
    )
}

/// A check in the query of a GET.
pub(super) fn http_check_get(times: u64) -> CaseRun {
    http(
        times,
        1_000_000_000,
        &get("/v1/check?header.x-api-key=user000000000001"),
    )
}

/// What is left of a key, without taking anything.
pub(super) fn http_status(times: u64) -> CaseRun {
    http(
        times,
        1_000_000_000,
        &get("/v1/status?header.x-api-key=user000000000001"),
    )
}

/// Envoy's question as JSON.
pub(super) fn http_rls_json(times: u64) -> CaseRun {
    let body = r#"{"domain":"bench","descriptors":[{"entries":[{"key":"user","value":"user000000000001"}]}]}"#;
    http(times, 1_000_000_000, &post("/json", "", body))
}

/// A probe of a load balancer.
pub(super) fn http_health(times: u64) -> CaseRun {
    http(times, 1_000_000_000, &get("/healthz"))
}

/// What a gateway sends about the request that it holds, in fields that begin with `x-original` or `x-forwarded`.
pub(super) fn forward_auth(times: u64, gateway: &str, fields: &str) -> CaseRun {
    let request = format!(
        "GET /auth/{gateway} HTTP/1.1\r\nhost: 127.0.0.1\r\nx-{fields}-method: GET\r\n\
         x-{fields}-uri: /items/7?page=2\r\nx-{fields}-host: api.example\r\nx-real-ip: 192.0.2.7\r\n\
         x-forwarded-for: 192.0.2.7\r\nx-api-key: user000000000001\r\nuser-agent: curl/8.0\r\naccept: */*\r\n\r\n"
    );
    http(times, 1_000_000_000, &request)
}

/// A probe over gRPC: the health of the server as a whole.
pub(super) fn grpc_health(times: u64) -> CaseRun {
    grpc(times, GrpcClient::new(HEALTH_PATH, &[]), 1)
}

/// Envoy's question about so many descriptors, in so many calls that arrive together.
pub(super) fn grpc_rls(times: u64, descriptors: u8, calls: usize) -> CaseRun {
    let mut message = b"\x0a\x05bench".to_vec();
    for descriptor in 0..descriptors {
        message.extend_from_slice(b"\x12\x1a\x0a\x18\x0a\x04user\x12\x10user00000000000");
        message.push(b'0' + descriptor);
    }
    grpc(times, GrpcClient::new(RLS_PATH, &message), calls)
}

fn grpc(times: u64, mut client: GrpcClient, calls: usize) -> CaseRun {
    let server = Arc::new(GrpcServer::new(Arc::clone(app(1_000_000_000)?.envoy())));
    let (socket, (_stop, stopping)) = (InMemorySocket::default(), ShutdownTrigger::new());
    let connection =
        server.serve_connection(socket.clone(), peer(), GrpcLimits::default(), stopping);
    let mut first = client.preface();
    client.call(&mut first);
    let mut input = Vec::new();
    let is_answer = |received: &[u8]| {
        // Field 1 is 1 in an admission, and in the answer of a server that is ready.
        received.windows(2).any(|bytes| bytes == [8, 1])
    };
    measure(times, &socket, connection, &first, is_answer, |socket| {
        input.clear();
        for _ in 0..calls {
            client.call(&mut input);
        }
        socket.send(&input);
    })
}

fn http(times: u64, units: u64, request: &str) -> CaseRun {
    let (socket, (_stop, stopping)) = (InMemorySocket::default(), ShutdownTrigger::new());
    let api: Arc<HttpApi<ManualClock>> = Arc::new(app(units)?);
    let connection = api.serve_connection(socket.clone(), peer(), HttpLimits::default(), stopping);
    let is_answer = |received: &[u8]| received.starts_with(b"HTTP/1.1 2");
    let send = InMemorySocket::send_again;
    measure(
        times,
        &socket,
        connection,
        request.as_bytes(),
        is_answer,
        send,
    )
}

/// Sends `first` and looks at the answer, then has the connection answer what `send` sends, again and again.
fn measure(
    times: u64,
    socket: &InMemorySocket,
    connection: impl Future<Output = ()>,
    first: &[u8],
    is_answer: impl Fn(&[u8]) -> bool,
    mut send: impl FnMut(&InMemorySocket),
) -> CaseRun {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let _entered = runtime.enter();
    let mut connection = pin!(connection);
    let mut context = Context::from_waker(Waker::noop());
    socket.send(first);
    let ended = connection.as_mut().poll(&mut context).is_ready();
    let received = socket.buffers().received.clone();
    if ended || !is_answer(&received) {
        return Err(format!("answered: {}", received.escape_ascii()).into());
    }
    measured_section(times, || {
        send(socket);
        connection.as_mut().poll(&mut context).is_ready()
    });
    match socket.buffers().received.is_empty() {
        true => Err("the last request was not answered".into()),
        false => Ok(()),
    }
}

fn post(path: &str, fields: &str, body: &str) -> String {
    let len = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n{fields}content-length: {len}\r\n\r\n{body}"
    )
}

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
}

fn peer() -> Peer {
    let address = SocketAddr::from(([127, 0, 0, 1], 8080));
    Peer::new(Some(address), LocalEndpoint::Tcp(address))
}

/// A client that names header fields by their number after the first call, as real ones do.
struct GrpcClient {
    path: &'static str,
    message: Vec<u8>,
    stream: u32,
}

impl GrpcClient {
    fn new(path: &'static str, message: &[u8]) -> Self {
        let len = u32::try_from(message.len()).unwrap_or(0).to_be_bytes();
        let prefix = [0, len[0], len[1], len[2], len[3]];
        Self {
            path,
            message: [&prefix[..], message].concat(),
            stream: 1,
        }
    }

    fn preface(&self) -> Vec<u8> {
        let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        frame((SETTINGS, 0), 0, &[], &mut out);
        // Room for all answers, so that it need not be renewed.
        let window = (1_u32 << 31) - 1 - 65_535;
        frame((WINDOW_UPDATE, 0), 0, &window.to_be_bytes(), &mut out);
        out
    }

    fn call(&mut self, out: &mut Vec<u8>) {
        // POST and http of the static table, then four fields of the dynamic one, which the first call adds to it.
        let known = [0x83, 0x86, 0x80 | 65, 0x80 | 64, 0x80 | 63, 0x80 | 62];
        let mut first = vec![0x83, 0x86];
        if self.stream == 1 {
            for (name, value) in [
                (&[0x44][..], self.path),
                (&[0x41], "127.0.0.1"),
                (&[0x5f], "application/grpc"),
                (&[0x40, 2, b't', b'e'], "trailers"),
            ] {
                first.extend_from_slice(name);
                first.push(u8::try_from(value.len()).unwrap_or(0));
                first.extend_from_slice(value.as_bytes());
            }
        }
        let fields = if self.stream == 1 { &first[..] } else { &known };
        frame((HEADERS, END_HEADERS), self.stream, fields, out);
        frame((DATA, END_STREAM), self.stream, &self.message, out);
        self.stream += 2;
    }
}

fn frame((kind, flags): (u8, u8), stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    let [_, len @ ..] = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
    out.extend_from_slice(&len);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}
