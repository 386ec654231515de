//! The admin listener over real sockets: pages, operator actions and access control.

mod adjustments;
mod cross_site;
mod exposition_format;
mod liveness;
mod lockout;
mod metrics;
mod operator_actions;
mod tokens;

use std::sync::Arc;

use serde_json::Value;
use tollgate_core::Timestamp;
use tollgate_server::admin::{AdminApi, AdminTokens};
use tollgate_server::listen::{ListenAddress, ShutdownTrigger};
use tollgate_server::resp::{Pipeline, RespServer};
use tollgate_server::{HttpApi, HttpLimits};
use tollgate_service::RateLimitService;
use tollgate_store::{ManualClock, MemoryStore};

use crate::harness::{HttpClient, HttpReply, policy};
use crate::running_server::RunningServer;

const READ: &str = "read-token-0123456789abcdef";
const OPERATE: &str = "operate-token-0123456789";
const SIGNED: &str = r#""who": "ada", "why": "incident 7""#;

type SharedClock = Arc<ManualClock>;

/// An API with its admin listener. Requests are decided without sockets.
struct TestAdmin {
    app: Arc<HttpApi<SharedClock>>,
    resp: Arc<RespServer<SharedClock>>,
    clock: SharedClock,
    stop: Option<ShutdownTrigger>,
    address: std::net::SocketAddr,
    /// The server stops when the test ends.
    _running: RunningServer,
}

/// An admin listener without tokens, as on a developer's machine.
async fn serve_admin(text: &str) -> TestAdmin {
    serve_admin_with_tokens(text, AdminTokens::default()).await
}

async fn serve_admin_with_tokens(text: &str, tokens: AdminTokens) -> TestAdmin {
    let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_700_000_000)));
    let app = HttpApi::new(&policy(text), 1_000, Arc::clone(&clock)).unwrap();
    serve_admin_of(app, clock, tokens).await
}

async fn serve_admin_of(
    app: HttpApi<SharedClock>,
    clock: SharedClock,
    tokens: AdminTokens,
) -> TestAdmin {
    let app = Arc::new(app);
    let resp =
        RespServer::new(MemoryStore::with_clock(1_000, Arc::clone(&clock)).unwrap()).unwrap();
    let checker = Arc::<RateLimitService<SharedClock>>::clone(app.service());
    let resp = resp.with_checker(checker);
    let resp = Arc::new(resp.with_metrics(Arc::clone(app.metrics())));
    let (stop, stopping) = ShutdownTrigger::new();
    let place = ListenAddress::Tcp(([127, 0, 0, 1], 0).into());
    let admin = AdminApi::new(Arc::clone(&app), &place, tokens).unwrap();
    let admin = Arc::new(
        admin
            .with_resp(Arc::clone(&resp))
            .with_drain_signal(stopping),
    );
    let limits = HttpLimits::for_admin();
    let running =
        RunningServer::start(|listener, shutdown| admin.run(listener, limits, shutdown)).await;
    TestAdmin {
        app,
        resp,
        clock,
        stop: Some(stop),
        address: running.address,
        _running: running,
    }
}

impl TestAdmin {
    async fn operator(&self) -> OperatorClient {
        OperatorClient {
            connection: HttpClient::to(self.address).await,
            token: None,
        }
    }

    async fn get(&self, path: &str) -> HttpReply {
        self.operator().await.get(path).await
    }

    /// Checks a request of this API key through the RESP server. Returns whether it is admitted.
    fn check(&self, key: &str) -> bool {
        let mut input = format!("TG.CHECK header.x-api-key {key} ip 192.0.2.7\r\n").into_bytes();
        let mut out = Vec::new();
        let mut session = self.resp.session(None);
        let fed = self
            .resp
            .feed(&mut session, &mut input, &mut Pipeline::new(), &mut out);
        assert_eq!(fed.consumed, input.len());
        let reply = String::from_utf8(out).unwrap();
        let (_, allowed) = reply
            .split_once("allowed\r\n:")
            .unwrap_or_else(|| panic!("{reply}"));
        allowed.starts_with('1')
    }
}

/// A client of the admin listener.
struct OperatorClient {
    connection: HttpClient,
    token: Option<&'static str>,
}

impl OperatorClient {
    fn with_token(mut self, token: &'static str) -> Self {
        self.token = Some(token);
        self
    }

    async fn get(&mut self, path: &str) -> HttpReply {
        self.request("GET", path, &[], "").await
    }

    /// Puts JSON and adds the signature.
    async fn put(&mut self, path: &str, body: &str) -> HttpReply {
        self.change("PUT", path, body).await
    }

    async fn change(&mut self, method: &str, path: &str, body: &str) -> HttpReply {
        let comma = if body.is_empty() { "" } else { ", " };
        let body = format!("{{{body}{comma}{SIGNED}}}");
        self.request(method, path, &[("content-type", "application/json")], &body)
            .await
    }

    async fn request(
        &mut self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        body: &str,
    ) -> HttpReply {
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        if !fields.iter().any(|(name, _)| *name == "host") {
            head += "host: 127.0.0.1:8088\r\n";
        }
        if let Some(token) = self.token {
            head += &format!("authorization: Bearer {token}\r\n");
        }
        for (name, value) in fields {
            head += &format!("{name}: {value}\r\n");
        }
        let length = body.len();
        self.connection
            .send(&format!("{head}content-length: {length}\r\n\r\n{body}"))
            .await;
        self.connection.read_response(method == "HEAD").await
    }
}

/// The value at a path of member names.
fn value_at<'a>(value: &'a Value, way: &str) -> &'a Value {
    way.split('.')
        .fold(value, |value, name| match name.parse::<usize>() {
            Ok(index) => &value[index],
            Err(_) => &value[name],
        })
}
