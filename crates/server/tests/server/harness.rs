//! A server on a free port, and a minimal HTTP client that sends exact bytes.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tollgate_core::Timestamp;
use tollgate_policy::model::Policy;
use tollgate_policy::source::SourceFormat;
use tollgate_server::listen::DrainOutcome;
use tollgate_server::{HttpApi, HttpLimits, TrustedProxies};
use tollgate_store::{Clock, ManualClock};

use crate::running_server::RunningServer;

/// Far above any duration here; only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(30);

/// The value of a future that is ready at the first poll, as every response is without a fleet.
pub(crate) fn ready_now<T>(answer: impl Future<Output = T>) -> T {
    match pin!(answer).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("it had to be waited for"),
    }
}

pub(crate) struct TestServer<C> {
    pub(crate) address: SocketAddr,
    pub(crate) app: Arc<HttpApi<Arc<C>>>,
    pub(crate) clock: Arc<C>,
    running: RunningServer,
}

/// One limit on every API key, 10/s with a burst of 20.
const ONE_LIMIT: &str = "limits: [{ name: demo, key: header.x-api-key, rate: 10/s, burst: 20 }]";

/// Parses a policy.
pub(crate) fn policy(text: &str) -> Policy {
    let loaded = tollgate_policy::load(text, "policy.yaml", SourceFormat::Yaml);
    loaded.unwrap_or_else(|problems| panic!("{problems}"))
}

/// One limit, with a manual clock.
pub(crate) async fn serve_demo() -> TestServer<ManualClock> {
    serve_policy(ONE_LIMIT).await
}

/// The given policy, with a manual clock.
pub(crate) async fn serve_policy(text: &str) -> TestServer<ManualClock> {
    let clock = ManualClock::at(Timestamp::from_secs(1_700_000_000));
    start_app(
        text,
        clock,
        HttpLimits::default(),
        TrustedProxies::default(),
    )
    .await
}

pub(crate) async fn start<C: Clock + 'static>(clock: C, limits: HttpLimits) -> TestServer<C> {
    start_app(ONE_LIMIT, clock, limits, TrustedProxies::default()).await
}

pub(crate) async fn start_app<C: Clock + 'static>(
    text: &str,
    clock: C,
    limits: HttpLimits,
    trusted: TrustedProxies,
) -> TestServer<C> {
    let clock = Arc::new(clock);
    let app = HttpApi::new(&policy(text), 1_000, Arc::clone(&clock)).unwrap();
    serve_app(app.with_trusted_proxies(trusted), clock, limits).await
}

/// Any API on a free port.
pub(crate) async fn serve_app<C: Clock + 'static>(
    app: HttpApi<Arc<C>>,
    clock: Arc<C>,
    limits: HttpLimits,
) -> TestServer<C> {
    let app = Arc::new(app);
    let serving = Arc::clone(&app);
    let running =
        RunningServer::start(|listener, shutdown| serving.run(listener, limits, shutdown)).await;
    TestServer {
        address: running.address,
        app,
        clock,
        running,
    }
}

impl<C> TestServer<C> {
    pub(crate) async fn connect(&self) -> HttpClient {
        HttpClient::to(self.address).await
    }

    /// A GET on its own connection.
    pub(crate) async fn get(&self, target: &str) -> HttpReply {
        self.connect().await.get(target).await
    }

    /// Stops the server and waits until it has stopped.
    pub(crate) async fn stop(self) -> DrainOutcome {
        self.running.stop().await
    }
}

pub(crate) struct HttpClient(BufReader<TcpStream>);

impl HttpClient {
    pub(crate) async fn to(address: SocketAddr) -> Self {
        let stream = timeout(DEADLINE, TcpStream::connect(address)).await;
        Self(BufReader::new(stream.unwrap().unwrap()))
    }

    pub(crate) async fn get(&mut self, target: &str) -> HttpReply {
        self.request("GET", target, "").await
    }

    pub(crate) async fn post(&mut self, target: &str, body: &str) -> HttpReply {
        self.request("POST", target, body).await
    }

    pub(crate) async fn request(&mut self, method: &str, target: &str, body: &str) -> HttpReply {
        self.request_with(method, target, &[], body).await
    }

    pub(crate) async fn request_with(
        &mut self,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
        body: &str,
    ) -> HttpReply {
        let fields: String = fields
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let length = body.len();
        self.send(&format!(
            "{method} {target} HTTP/1.1\r\nhost: test\r\n{fields}content-length: {length}\r\n\r\n{body}"
        ))
        .await;
        self.read_response(method == "HEAD").await
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    pub(crate) async fn read_response(&mut self, bodyless: bool) -> HttpReply {
        let answer = timeout(DEADLINE, self.read(bodyless)).await;
        answer.expect("an answer before the deadline")
    }

    async fn read(&mut self, bodyless: bool) -> HttpReply {
        let status = self.line().await;
        let status = status.strip_prefix("HTTP/1.1 ").unwrap();
        let status = status[..3].parse().unwrap();
        let mut fields = HashMap::new();
        loop {
            let line = self.line().await;
            let Some((name, value)) = line.split_once(": ") else {
                assert_eq!(line, "");
                break;
            };
            let name = name.to_ascii_lowercase();
            assert_eq!(fields.insert(name, value.to_owned()), None);
        }
        let length = fields.get("content-length").map_or("0", String::as_str);
        let length = if bodyless { 0 } else { length.parse().unwrap() };
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await.unwrap();
        HttpReply {
            status,
            fields,
            body: String::from_utf8(body).unwrap(),
        }
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).await.unwrap();
        line.strip_suffix("\r\n").unwrap().to_owned()
    }

    /// Waits until the server has closed the connection, by FIN or RST.
    pub(crate) async fn read_until_closed(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match timeout(DEADLINE, self.0.read_to_end(&mut rest)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
            Err(_) => panic!("the connection is still open"),
        }
        rest
    }
}

#[derive(Debug)]
pub(crate) struct HttpReply {
    pub(crate) status: u16,
    fields: HashMap<String, String>,
    pub(crate) body: String,
}

impl HttpReply {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .get(&name.to_ascii_lowercase())
            .map(String::as_str)
    }

    /// All fields, with lower-case names.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// A field without its partition keys, which depend on a secret of the process.
    pub(crate) fn field_without_keys(&self, name: &str) -> Option<String> {
        let mut rest = self.field(name)?;
        let mut without = String::new();
        while let Some((before, after)) = rest.split_once(";pk=:") {
            let (key, after) = after.split_once(':').unwrap();
            assert_eq!(key.len(), 16, "{key}");
            without.push_str(before);
            rest = after;
        }
        assert_ne!(without, "", "nobody is named in {rest}");
        Some(without + rest)
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// The `detail` of a problem, after checking that the response is one and matches the status.
    pub(crate) fn problem(&self) -> String {
        assert_eq!(self.field("content-type"), Some("application/problem+json"));
        let body = self.json();
        assert_eq!(body["status"], self.status);
        assert!(body["title"].is_string() && body["type"].is_string());
        body["detail"].as_str().unwrap().to_owned()
    }
}
