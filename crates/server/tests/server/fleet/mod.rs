//! Several servers on one Redis: whoever asks which of them, and by which protocol, there is one quota.
//!
//! Real servers are given seconds to answer, so that a busy machine changes nothing that is decided here.

mod away;
mod sharing;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tollgate_redis::Options;
use tollgate_server::fleet::{Shared, Tending};
use tollgate_server::grpc::{Grpc, GrpcLimits};
use tollgate_server::resp::{Checker, Resp, RespLimits};
use tollgate_server::{App, Limits, Secret};
use tollgate_store::{Clock as _, Memory, SystemClock};

use crate::grpc::client::{Client, Descriptor, Response, request};
use crate::harness::{Answer, Connection, policy};
use crate::running::Running;

/// Far above what anything here takes; only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(30);

/// One server of a fleet, with all it speaks.
struct Instance {
    app: Arc<App<SystemClock>>,
    http: Running,
    grpc: Running,
    resp: Running,
    /// Looks after the store until the instance is dropped.
    _tending: JoinSet<()>,
}

/// A server that shares the Redis at this address.
async fn instance(url: &str, text: &str) -> Instance {
    let secret = Secret::shared(b"the fleet's own secret").unwrap();
    let mut options = Options::new(url, secret.for_names());
    options.deadline = Duration::from_secs(5);
    let shared = Shared::connect(options, SystemClock::new().now())
        .await
        .unwrap();
    let app = App::keyed(&policy(text), 1_000, SystemClock::new(), secret).unwrap();
    let app = Arc::new(app);
    assert!(app.join(shared.fleet()));
    let resp = Resp::new(Memory::for_keys(1_000).unwrap())
        .unwrap()
        .with_checker(Arc::<App<SystemClock>>::clone(&app) as Arc<dyn Checker>)
        .with_fleet(Arc::clone(shared.fleet()));
    let (resp, grpc) = (Arc::new(resp), Arc::new(Grpc::new(Arc::clone(&app))));
    let serving = Arc::clone(&app);
    let mut tending = JoinSet::new();
    tending.spawn(Arc::new(Tending::of(&shared)).run(|| SystemClock::new().now()));
    Instance {
        http: Running::start(|listener, end| serving.run(listener, Limits::default(), end)).await,
        grpc: Running::start(|listener, end| grpc.run(listener, GrpcLimits::default(), end)).await,
        resp: Running::start(|listener, end| resp.run(listener, RespLimits::default(), end)).await,
        app,
        _tending: tending,
    }
}

impl Instance {
    /// Asks about a key over HTTP.
    async fn check(&self, key: &str) -> Answer {
        let body = format!(r#"{{"key": "{key}"}}"#);
        self.post("/v1/check", &body).await
    }

    async fn post(&self, target: &str, body: &str) -> Answer {
        let mut connection = Connection::to(self.http.address).await;
        connection.post(target, body).await
    }

    /// Asks about a key as Envoy does.
    async fn should_rate_limit(&self, key: &str) -> Result<Response, i32> {
        let descriptors = [Descriptor::of(&[("header.x-api-key", key)])];
        let request = request("edge", &descriptors, 0);
        let mut client = Client::to(self.grpc.address).await;
        let ending = client
            .call(crate::grpc::client::SHOULD_RATE_LIMIT, &request)
            .await;
        match ending.status {
            Some(0) => Ok(Response::read(&ending.answers[0])),
            other => Err(other.unwrap()),
        }
    }

    /// Sends commands in one write, and answers all that is said until `QUIT`.
    async fn say(&self, commands: &[&str]) -> String {
        say(self.resp.address, &commands.join("\r\n")).await
    }
}

async fn say(address: SocketAddr, commands: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let bytes = format!("{commands}\r\nQUIT\r\n");
    stream.write_all(bytes.as_bytes()).await.unwrap();
    let mut said = String::new();
    let read = stream.read_to_string(&mut said);
    timeout(DEADLINE, read)
        .await
        .expect("the end before the deadline")
        .unwrap();
    said.strip_suffix("+OK\r\n").unwrap().to_owned()
}

/// Waits for something that will happen. Asking is not free, so there is a pause between two times.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = timeout(DEADLINE, waiting).await;
    assert!(waited.is_ok(), "it never came to pass that {what}");
}

/// What an answer over HTTP says that it was decided without.
fn degraded(answer: &Answer) -> Vec<String> {
    let said = answer.json()["degraded"].as_array().cloned();
    let words = said.unwrap_or_default().into_iter();
    words
        .map(|word| word.as_str().unwrap().to_owned())
        .collect()
}
