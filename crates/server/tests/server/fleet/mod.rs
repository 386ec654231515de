//! Several servers on one Redis: one quota for all servers and protocols.
//!
//! Timeouts are seconds long, so that a busy machine changes no decision.

mod abandoned_waits;
mod membership;
mod quota_kinds;
mod saturation;
mod shared_quota;
mod store_outage;
mod tower_layer;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tollgate_redis::RedisOptions;
use tollgate_server::admin::{AdminApi, AdminTokens};
use tollgate_server::fleet::{FleetConnection, StoreMonitor};
use tollgate_server::grpc::{GrpcLimits, GrpcServer};
use tollgate_server::listen::ListenAddress;
use tollgate_server::resp::{Checker, RespLimits, RespServer};
use tollgate_server::{HttpApi, HttpLimits, Secret};
use tollgate_service::RateLimitService;
use tollgate_store::{Clock as _, MemoryStore, SystemClock};

use crate::grpc::client::{Client, Descriptor, RlsResponse, request};
use crate::harness::{HttpClient, HttpReply, policy};
use crate::running_server::RunningServer;

/// Far above any duration here; only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(30);

/// One server of a fleet with all its listeners.
struct FleetServer {
    app: Arc<HttpApi<SystemClock>>,
    http: RunningServer,
    grpc: RunningServer,
    resp: RunningServer,
    /// Monitors the store until the server is dropped.
    _tending: JoinSet<()>,
}

/// Starts a server that shares the Redis at this address.
async fn start_server(url: &str, text: &str) -> FleetServer {
    let policy = policy(text);
    let app =
        |secret| HttpApi::new_with_secret(&policy, 1_000, SystemClock::new(), secret).unwrap();
    start_server_of(url, app).await
}

/// The same for any API.
async fn start_server_of(
    url: &str,
    app: impl FnOnce(Secret) -> HttpApi<SystemClock>,
) -> FleetServer {
    let secret = Secret::from_shared_text(b"the fleet's own secret").unwrap();
    let mut options = RedisOptions::new(
        url,
        tollgate_redis::KeyHashSecret::new(secret.derive_key_name_secret()),
    );
    options.deadline = Duration::from_secs(5);
    let shared = FleetConnection::connect(options, SystemClock::new().now())
        .await
        .unwrap();
    let app = Arc::new(app(secret));
    assert!(app.join(shared.fleet()));
    let resp =
        RespServer::new(MemoryStore::for_keys(1_000).unwrap())
            .unwrap()
            .with_checker(
                Arc::<RateLimitService<SystemClock>>::clone(app.service()) as Arc<dyn Checker>
            )
            .with_fleet(Arc::clone(shared.fleet()));
    let (resp, grpc) = (
        Arc::new(resp),
        Arc::new(GrpcServer::new(Arc::clone(app.envoy()))),
    );
    let serving = Arc::clone(&app);
    let mut tending = JoinSet::new();
    tending.spawn(Arc::new(StoreMonitor::new(&shared)).run(|| SystemClock::new().now()));
    FleetServer {
        http: RunningServer::start(|listener, end| {
            serving.run(listener, HttpLimits::default(), end)
        })
        .await,
        grpc: RunningServer::start(|listener, end| grpc.run(listener, GrpcLimits::default(), end))
            .await,
        resp: RunningServer::start(|listener, end| resp.run(listener, RespLimits::default(), end))
            .await,
        app,
        _tending: tending,
    }
}

impl FleetServer {
    /// Checks a key over HTTP.
    async fn check(&self, key: &str) -> HttpReply {
        let body = format!(r#"{{"key": "{key}"}}"#);
        self.post("/v1/check", &body).await
    }

    async fn post(&self, target: &str, body: &str) -> HttpReply {
        let mut connection = HttpClient::to(self.http.address).await;
        connection.post(target, body).await
    }

    /// Checks a key over gRPC.
    async fn should_rate_limit(&self, key: &str) -> Result<RlsResponse, i32> {
        let descriptors = [Descriptor::new(&[("header.x-api-key", key)])];
        let request = request("edge", &descriptors, 0);
        let mut client = Client::connect(self.grpc.address).await;
        let ending = client
            .call(crate::grpc::client::SHOULD_RATE_LIMIT, &request)
            .await;
        match ending.status {
            Some(0) => Ok(RlsResponse::read(&ending.answers[0])),
            other => Err(other.unwrap()),
        }
    }

    /// Sends a request to the admin listener.
    async fn operate(&self, method: &str, target: &str, body: &str) -> HttpReply {
        let place = ListenAddress::Tcp(([127, 0, 0, 1], 0).into());
        let admin = AdminApi::new(Arc::clone(&self.app), &place, AdminTokens::default()).unwrap();
        let admin = Arc::new(admin);
        let running =
            RunningServer::start(|listener, end| admin.run(listener, HttpLimits::default(), end))
                .await;
        let mut connection = HttpClient::to(running.address).await;
        let (host, length) = ("host: 127.0.0.1:8088", body.len());
        let json = "content-type: application/json";
        let head = format!("{method} {target} HTTP/1.1\r\n{host}\r\n{json}");
        let request = format!("{head}\r\ncontent-length: {length}\r\n\r\n{body}");
        connection.send(&request).await;
        connection.read_response(false).await
    }

    /// Sends commands in one write and returns all replies before `QUIT`.
    async fn send_commands(&self, commands: &[&str]) -> String {
        send_to(self.resp.address, &commands.join("\r\n")).await
    }
}

async fn send_to(address: SocketAddr, commands: &str) -> String {
    let replies = send_until_closed(address, commands).await;
    replies.strip_suffix("+OK\r\n").unwrap().to_owned()
}

/// The same, including the reply to `QUIT` or the error before the close.
async fn send_until_closed(address: SocketAddr, commands: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let bytes = format!("{commands}\r\nQUIT\r\n");
    stream.write_all(bytes.as_bytes()).await.unwrap();
    let mut replies = String::new();
    let read = stream.read_to_string(&mut replies);
    timeout(DEADLINE, read)
        .await
        .expect("the end before the deadline")
        .unwrap();
    replies
}

/// Polls until the condition holds.
async fn wait_until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    };
    let waited = timeout(DEADLINE, waiting).await;
    assert!(waited.is_ok(), "it never came to pass that {what}");
}

/// The `degraded` list of a response.
fn degraded(answer: &HttpReply) -> Vec<String> {
    let replies = answer.json()["degraded"].as_array().cloned();
    let names = replies.unwrap_or_default().into_iter();
    names
        .map(|word| word.as_str().unwrap().to_owned())
        .collect()
}
