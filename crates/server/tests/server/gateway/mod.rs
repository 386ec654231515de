//! The gateway between raw clients and recording upstreams.

mod abuse;
mod access_log;
mod ambiguous_responses;
mod bounds;
mod forwarding;
mod hostile_requests;
mod http2;
mod limits;
mod overload;
mod parked_connections;
mod permits;
mod real_clients;
mod real_upstreams;
mod recorder;
mod reload;
mod slow_peers;
mod tls;
mod upstreams;
mod websocket;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tollgate_server::TrustedProxies;
use tollgate_server::gateway::{AccessLog, Gateway, GatewayLimits};
use tollgate_server::listen::BufferBudget;
use tollgate_service::{RateLimitService, Secret};
use tollgate_store::SystemClock;

use crate::harness::policy;
use crate::running_server::RunningServer;

/// Far above any duration here; only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(30);

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// A field with which hyper reads a request, and not the fast path.
const BY_HYPER: &str = "Content-Length: 0\r\n";

/// Sends bytes and reads the response until the gateway closes the connection. The request has to ask for that.
async fn exchange(address: SocketAddr, request: &str) -> String {
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(request.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    let read = timeout(DEADLINE, client.read_to_end(&mut response)).await;
    read.expect("the end of the response").unwrap();
    String::from_utf8(response).unwrap()
}

/// A GET request for `a.example` with more fields, each with its CRLF.
fn get(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n{fields}\r\n")
}

/// The value of a field of a response.
fn field<'a>(response: &'a str, name: &str) -> Option<&'a str> {
    let head = response.split("\r\n\r\n").next().unwrap();
    let fields = head.lines().filter_map(|line| line.split_once(": "));
    let mut found = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
    found.next().map(|(_, value)| value)
}

/// Waits until a condition holds.
async fn wait_until(is_reached: impl Fn() -> bool) {
    let waiting = async {
        while !is_reached() {
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, waiting).await.expect("the condition");
}

/// A running gateway.
struct TestGateway {
    address: SocketAddr,
    gateway: Arc<Gateway<SystemClock>>,
    buffers: Arc<BufferBudget>,
    running: RunningServer,
}

/// A gateway with this policy, in which `UPSTREAM` is the upstream's address. Nobody is trusted.
async fn start(text: &str, upstream: SocketAddr) -> TestGateway {
    start_with(text, upstream, GatewayLimits::default(), "").await
}

/// A gateway without limits that sends everything to this upstream.
async fn start_plain(upstream: SocketAddr) -> TestGateway {
    let text = "limits: none\ngateway: { upstreams: { app: http://UPSTREAM }, routes: [{ upstream: app }] }";
    start(text, upstream).await
}

async fn start_with(
    text: &str,
    upstream: SocketAddr,
    limits: GatewayLimits,
    trusted: &str,
) -> TestGateway {
    start_logged(text, upstream, limits, trusted, None).await
}

/// The same with an access log.
async fn start_logged(
    text: &str,
    upstream: SocketAddr,
    limits: GatewayLimits,
    trusted: &str,
    log: Option<AccessLog>,
) -> TestGateway {
    let policy = policy(&text.replace("UPSTREAM", &upstream.to_string()));
    let spec = policy.gateway.clone().unwrap();
    let service = RateLimitService::new(&policy, 1_000, SystemClock::new(), Secret::random());
    let trusted: TrustedProxies = trusted.parse().unwrap();
    let buffers = Arc::<BufferBudget>::default();
    let service = Arc::new(service.unwrap());
    let shared = Arc::clone(&buffers);
    let gateway = match log {
        Some(log) => Gateway::with_access_log(service, &spec, trusted, shared, log),
        None => Gateway::new(service, &spec, trusted, shared),
    };
    let gateway = Arc::new(gateway.unwrap());
    let serving = Arc::clone(&gateway);
    let running = RunningServer::start(|listener, stop| serving.run(listener, limits, stop)).await;
    TestGateway {
        address: running.address,
        gateway,
        buffers,
        running,
    }
}
