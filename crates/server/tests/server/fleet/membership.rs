//! Several servers with one Redis: they see each other, and operator changes on one apply to all.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tollgate_core::Timestamp;
use tollgate_redis::{KeyHashSecret as RedisSecret, RedisOptions, RedisRegister, RedisStore};
use tollgate_server::admin::{AdminApi, AdminTokens};
use tollgate_server::fleet::{LocalNode as _, Membership, MembershipSettings};
use tollgate_server::grpc::GrpcServer;
use tollgate_server::listen::{ListenAddress, ShutdownTrigger};
use tollgate_server::{HttpApi, HttpLimits, Secret};
use tollgate_store::ManualClock;
use tollgate_store::register::{FleetName, NodeId, PutMode, Register, RegisterPut};
use tollgate_testkit::redis::{RedisNode, RedisServer, ServerProgram};

use crate::harness::{HttpClient, HttpReply, policy};
use crate::running_server::RunningServer;

const POLICY: &str = "limits: [{ name: api, key: header.x-api-key, rate: 2/h }]";
const SECRET: &str = "the secret of this fleet";
/// Far above any duration here; only a hang reaches it.
const PATIENT: Duration = Duration::from_secs(60);

/// A server whose task can be killed.
struct FleetMember {
    app: Arc<HttpApi<Arc<ManualClock>>>,
    membership: Arc<Membership>,
    address: std::net::SocketAddr,
    stop: ShutdownTrigger,
    task: JoinSet<()>,
    _running: RunningServer,
}

impl FleetMember {
    async fn start(url: &str) -> Self {
        Self::start_with(url, SECRET).await
    }

    async fn start_with(url: &str, secret: &str) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_700_000_000)));
        let secret = Secret::from_shared_text(secret.as_bytes()).unwrap();
        let app = HttpApi::new_with_secret(&policy(POLICY), 1_000, clock, secret).unwrap();
        Self::start_app(url, secret, app).await
    }

    async fn start_app(url: &str, secret: Secret, app: HttpApi<Arc<ManualClock>>) -> Self {
        let app = Arc::new(app);
        let mut options = RedisOptions::new(url, RedisSecret::new(*b"names of keys..."));
        options.connect_deadline = Duration::from_secs(5);
        let store = RedisStore::connect(options).await.unwrap();
        let register = RedisRegister::new(&store, &FleetName::default());
        let register: Arc<dyn Register> = Arc::new(register.with_deadline(Duration::from_secs(4)));
        let membership = Membership::new(secret, MembershipSettings::default());
        let (stop, stopping) = ShutdownTrigger::new();
        let mut task = JoinSet::new();
        let node = Arc::clone(app.envoy());
        task.spawn(Arc::clone(&membership).run(register, node, stopping.wait()));
        membership.wait_until_synced().await;
        let place = ListenAddress::Tcp(([127, 0, 0, 1], 0).into());
        let admin = AdminApi::new(Arc::clone(&app), &place, AdminTokens::default()).unwrap();
        let admin = Arc::new(admin.with_fleet(Arc::clone(&membership)));
        let running =
            RunningServer::start(|listener, end| admin.run(listener, HttpLimits::default(), end))
                .await;
        Self {
            app,
            membership,
            address: running.address,
            stop,
            task,
            _running: running,
        }
    }

    async fn ask(&self, method: &str, path: &str, body: &str) -> HttpReply {
        let mut connection = HttpClient::to(self.address).await;
        let length = body.len();
        connection
            .send(&format!(
                "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:8088\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
            ))
            .await;
        connection.read_response(false).await
    }

    async fn get(&self, path: &str) -> Value {
        self.ask("GET", path, "").await.json()
    }

    async fn change(&self, method: &str, path: &str, body: &str) {
        let body = format!(r#"{{{body}, "who": "ada", "why": "a test"}}"#);
        let answer = self.ask(method, path, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }

    async fn metric(&self, name: &str) -> String {
        let page = self.ask("GET", "/metrics", "").await.body;
        let line = page.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.rsplit(' ').next());
        value.unwrap_or("none").to_owned()
    }

    async fn count(&self) -> u64 {
        let fleet = self.get("/fleet").await;
        let list = fleet["nodes"]["list"].as_array().unwrap();
        u64::try_from(list.len()).unwrap()
    }

    async fn stop(mut self) {
        self.stop.trigger();
        self.task.join_next().await.unwrap().unwrap();
    }
}

/// Polls until the condition holds, and fails after a long time.
async fn wait_until<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let mut looks = tokio::time::interval(Duration::from_millis(20));
    let waiting = async {
        while !condition().await {
            looks.tick().await;
        }
    };
    let waited = tokio::time::timeout(PATIENT, waiting).await;
    assert!(waited.is_ok(), "{what}: it did not come true");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_servers_see_each_other_and_operator_changes_apply_to_all() {
    let redis = RedisServer::start(ServerProgram::Redis);
    let url = redis.url();
    let one = FleetMember::start(&url).await;
    let (two, three) = (
        FleetMember::start(&url).await,
        FleetMember::start(&url).await,
    );
    for member in [&one, &two, &three] {
        wait_until("three are there", || async { member.count().await == 3 }).await;
    }
    assert_eq!(one.metric("tollgate_fleet_nodes").await, "3");
    let fleet = one.get("/fleet").await;
    assert_eq!(fleet["fleet"], "default");
    assert_eq!(fleet["node"], one.membership.id().to_string());
    assert_eq!(fleet["nodes"]["known"], "seen");
    assert_eq!(fleet["mismatches"], json!({"secret": 0, "policy": 0}));
    let list = fleet["nodes"]["list"].as_array().unwrap();
    assert_eq!(list.iter().filter(|node| node["this"] == true).count(), 1);

    let block = r#""limit": "api", "key": ["mallory"]"#;
    one.change("PUT", "/v1/blocks", block).await;
    two.change("PUT", "/v1/switches", r#""limit": "*", "to": "shadow""#)
        .await;
    for member in [&one, &two, &three] {
        wait_until("it holds everywhere", || async {
            let blocks = member.get("/v1/blocks").await;
            let switches = member.get("/v1/switches").await;
            blocks["blocks"].as_array().unwrap().len() == 1
                && switches["everything"]["to"] == "shadow"
        })
        .await;
    }
    let shown = three.get("/v1/blocks").await;
    let key = shown["blocks"][0]["key"].as_str().unwrap();
    assert!(key.starts_with('#') && key.len() == 33, "{key}");
    let audit = three.get("/v1/audit").await.to_string();
    assert!(
        audit.contains("ada") && !audit.contains("mallory"),
        "{audit}"
    );

    // Revoked on a node that does not know the limit by name.
    three.change("DELETE", "/v1/blocks", block).await;
    wait_until("it is gone where it was said", || async {
        one.get("/v1/blocks").await["blocks"] == json!([])
    })
    .await;
    wait_until("all have the same version", || async {
        let name = "tollgate_fleet_controls_version";
        let versions = (one.metric(name).await, two.metric(name).await);
        versions.0 == versions.1 && versions.0 != "0"
    })
    .await;

    two.stop().await;
    wait_until("one node has left", || async { one.count().await == 2 }).await;
    drop(three);
    wait_until("one has died", || async { one.count().await == 1 }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_changes_outlive_all_servers_and_apply_before_the_next_is_ready() {
    let redis = RedisServer::start(ServerProgram::Redis);
    let first = FleetMember::start(&redis.url()).await;
    let body = r#""limit": "api", "key": ["carol"], "quota": "100/h""#;
    first.change("PUT", "/v1/overrides", body).await;
    wait_until("the change is registered", || async {
        first.app.envoy().pending_counts().0 == 0
    })
    .await;
    first.stop().await;
    let next = FleetMember::start(&redis.url()).await;
    let overrides = next.get("/v1/overrides").await;
    assert_eq!(overrides["overrides"][0]["quota"], "100/h");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kill_switch_over_envoy_files_applies_to_all_servers() {
    let redis = RedisServer::start(ServerProgram::Redis);
    let file = "domain: edge\ndescriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 1 } }]";
    let mut members = Vec::new();
    for _ in 0..2 {
        let files = tollgate_envoy::config::load(&[("edge.yaml", file)]).unwrap();
        let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_700_000_000)));
        let app = HttpApi::from_envoy_policy(files, 1_000, clock).unwrap();
        let secret = Secret::from_shared_text(SECRET.as_bytes()).unwrap();
        members.push(FleetMember::start_app(&redis.url(), secret, app).await);
    }
    let (one, two) = (&members[0], &members[1]);
    let grpc = GrpcServer::new(Arc::clone(two.app.envoy()));
    // A RateLimitRequest: the domain and one descriptor with one entry. The first field of the response is the code.
    let message = b"\x0a\x04edge\x12\x0b\x0a\x09\x0a\x04user\x12\x01a";
    let is_admitted = async || {
        let mut out = Vec::new();
        grpc.answer_bytes(message, &mut out).await.unwrap();
        out[..2] == [0x08, 0x01]
    };
    assert!(is_admitted().await && !is_admitted().await);
    for (to, expected) in [("shadow", true), ("on", false)] {
        let body = format!(r#""limit": "*", "to": "{to}""#);
        one.change("PUT", "/v1/switches", &body).await;
        wait_until(to, async || is_admitted().await == expected).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_another_secret_is_seen_and_reported() {
    let redis = RedisServer::start(ServerProgram::Redis);
    let one = FleetMember::start(&redis.url()).await;
    let stray = FleetMember::start_with(&redis.url(), "not the secret at all").await;
    for member in [&one, &stray] {
        wait_until("it alarms", || async {
            member
                .metric("tollgate_fleet_mismatch{what=\"secret\"}")
                .await
                == "1"
        })
        .await;
    }
    let fleet = one.get("/fleet").await;
    assert_eq!(fleet["mismatches"]["secret"], 1);
    let list = fleet["nodes"]["list"].as_array().unwrap();
    let differs = |node: &&Value| node["differs"] == "secret";
    assert_eq!(list.iter().filter(differs).count(), 1);
    assert!(!fleet.to_string().contains(SECRET));
    stray.stop().await;
    wait_until("all is well again", || async {
        one.metric("tollgate_fleet_mismatch{what=\"secret\"}").await == "0"
    })
    .await;
}

/// A client of the same Redis switched off all limits of all nodes with one write, because entries were plain JSON.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_39_a_client_of_redis_cannot_throw_the_kill_switch_and_is_reported() {
    let redis = RedisServer::start(ServerProgram::Redis);
    let one = FleetMember::start(&redis.url()).await;
    let options = RedisOptions::new(redis.url(), RedisSecret::new(*b"of the attacker."));
    let store = RedisStore::connect(options).await.unwrap();
    let register = RedisRegister::new(&store, &FleetName::default());
    let put = RegisterPut {
        name: "switch".into(),
        body: br#"{"v":1,"who":"mallory","why":"x","switch":{"halt":"off"}}"#[..].into(),
        mode: PutMode::Set,
        expires_in: None,
    };
    let register = register.with_deadline(PATIENT);
    register.put(NodeId(666), 1, &[put]).await.unwrap();
    let metric = r#"tollgate_fleet_messages_rejected_total{why="unsigned"}"#;
    wait_until("it is counted", || async {
        one.metric(metric).await == "1"
    })
    .await;
    let fleet = one.get("/fleet").await;
    let expected = json!({
        "alarm": true, "forged": 0, "replayed": 0, "unsigned": 1, "accepts_unsigned": false
    });
    assert_eq!(fleet["register"]["not_authentic"], expected);
    assert_eq!(fleet["nodes"]["list"][0]["verified"], true);
    let metric = r#"tollgate_switches{halt="off"}"#;
    assert_eq!(one.metric(metric).await, "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_02_operator_changes_without_redis_apply_locally_and_everywhere_after_an_empty_restart() {
    let mut redis = RedisNode::start(ServerProgram::Redis, &["--save", "", "--appendonly", "no"]);
    let (one, two) = (
        FleetMember::start(&redis.url()).await,
        FleetMember::start(&redis.url()).await,
    );
    let block = |address: &str| format!(r#""address": "{address}""#);
    one.change("PUT", "/v1/blocks", &block("192.0.2.1")).await;
    let blocks = async |member: &FleetMember| {
        let blocks = member.get("/v1/blocks").await;
        blocks["blocks"].as_array().unwrap().len()
    };
    wait_until("it gets round", || async { blocks(&two).await == 1 }).await;
    redis.kill();
    one.change("PUT", "/v1/blocks", &block("192.0.2.2")).await;
    two.change("PUT", "/v1/blocks", &block("192.0.2.3")).await;
    assert_eq!((blocks(&one).await, blocks(&two).await), (2, 2));
    wait_until("it is known to be gone", || async {
        let fleet = one.get("/fleet").await;
        fleet["register"]["trouble"].is_string() && fleet["controls"]["waiting"] == 1
    })
    .await;
    assert_eq!(one.metric("tollgate_fleet_controls_waiting").await, "1");
    redis.restart();
    for member in [&one, &two] {
        wait_until("all of it holds on both", || async {
            blocks(member).await == 3 && member.get("/fleet").await["register"]["trouble"].is_null()
        })
        .await;
    }
    let late = FleetMember::start(&redis.url()).await;
    assert_eq!(blocks(&late).await, 3, "lost changes were registered again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_03_a_server_that_starts_without_redis_is_ready_and_joins_when_it_can() {
    let mut redis = RedisNode::start(ServerProgram::Redis, &["--save", "", "--appendonly", "no"]);
    redis.kill();
    let one = FleetMember::start(&redis.url()).await;
    let fleet = one.get("/fleet").await;
    assert_eq!(fleet["nodes"]["known"], "unknown");
    assert_eq!(fleet["nodes"]["count"], 1);
    redis.restart();
    wait_until("it has joined", || async {
        one.get("/fleet").await["nodes"]["known"] == "seen"
    })
    .await;
}
