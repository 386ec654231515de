//! Twice as many requests as a node gets decided by its Redis, in an open model: callers do not wait for each other.
//!
//! The way to Redis carries few calls a second, so that it is saturated and this process is not, on any machine.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tollgate_engine::{CheckOptions, Engine};
use tollgate_fleet::{Fleet, FleetEngine};
use tollgate_policy::attributes::{Attribute, Attributes};
use tollgate_policy::rules::Rules;
use tollgate_redis::{KeyHashSecret, RedisOptions, RedisStore};
use tollgate_store::{MemoryStore, SystemClock};
use tollgate_testkit::faults::Proxy;
use tollgate_testkit::redis::{RedisServer, ServerProgram};

use crate::harness::policy;

const SECRET: [u8; 16] = *b"at twice as much";
const REQUESTS: u32 = 2_000;
/// So many calls may wait or be sent at a time, by default: none is decided without Redis.
const MAX_IN_FLIGHT: usize = 4_096;
/// Many keys, because a key that is used up is denied without a call.
const KEYS: u32 = 20;
/// Some hundred calls a second on each connection.
const BYTES_PER_SECOND: NonZeroU64 = NonZeroU64::new(200_000).unwrap();
/// Nine tenths of the requests of each key.
const BURST: u32 = REQUESTS / KEYS * 9 / 10;

struct KeyedRequest(String);

impl Attributes for KeyedRequest {
    fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
        match attribute {
            Attribute::Header(name) if &**name == "x-api-key" => Some(self.0.as_bytes()),
            _ => None,
        }
    }
}

struct Node {
    engine: Engine<MemoryStore<SystemClock>>,
    fleet: Fleet,
    store: Arc<RedisStore>,
    link: Proxy,
}

impl Node {
    async fn start(server: &RedisServer, max_in_flight: usize) -> Arc<Self> {
        let link = Proxy::to(server.address());
        let text = format!(
            "limits:\n  - {{ name: per-key, key: header.x-api-key, rate: 1/d, burst: {BURST} }}"
        );
        let rules = Rules::compile(&policy(&text), SECRET).unwrap();
        let engine = Engine::new(rules, MemoryStore::for_keys(1_000).unwrap()).unwrap();
        let mut options = RedisOptions::new(link.url(), KeyHashSecret::new(SECRET));
        // A call waits for ten of these: longer than the requests take on a busy machine.
        options.deadline = Duration::from_secs(1);
        options.max_in_flight = max_in_flight;
        let store = Arc::new(RedisStore::connect(options).await.unwrap());
        let fleet = Fleet::new(Arc::clone(&store) as _, engine.store().now());
        let node = Arc::new(Self {
            engine,
            fleet,
            store,
            link,
        });
        // Connecting and loading scripts takes more bytes than a decision.
        assert!(node.is_admitted("first".to_owned()).await);
        node.link
            .change(|toxics| toxics.there.bandwidth = Some(BYTES_PER_SECOND));
        node
    }

    async fn is_admitted(&self, key: String) -> bool {
        let node = FleetEngine::new(&self.engine, &self.fleet);
        let verdict = node
            .check(&KeyedRequest(key), CheckOptions::default())
            .await;
        verdict.is_admitted()
    }
}

/// How many requests a second are decided for 64 callers who wait for their answers.
async fn saturation(node: &Arc<Node>) -> f64 {
    const CALLERS: u32 = 64;
    const CALLS: u32 = 10;
    let began = Instant::now();
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let node = Arc::clone(node);
        callers.spawn(async move {
            for _ in 0..CALLS {
                assert!(node.is_admitted(format!("caller {caller}")).await);
            }
        });
    }
    let _all = callers.join_all().await;
    f64::from(CALLERS * CALLS) / began.elapsed().as_secs_f64()
}

/// Sends so many requests a second. Returns how many were admitted, and how many calls waited at a time.
async fn offer(node: &Arc<Node>, per_second: f64) -> (u32, usize) {
    let mut ticks = tokio::time::interval(Duration::from_millis(1));
    let began = Instant::now();
    let (mut callers, mut sent, mut most_waiting) = (JoinSet::new(), 0, 0);
    while sent < REQUESTS {
        let due = began.elapsed().as_secs_f64() * per_second;
        while sent < REQUESTS && f64::from(sent) < due {
            let (node, key) = (Arc::clone(node), format!("key {}", sent % KEYS));
            callers.spawn(async move { node.is_admitted(key).await });
            sent += 1;
        }
        most_waiting = most_waiting.max(node.store.waiting_calls());
        ticks.tick().await;
    }
    let verdicts = callers.join_all().await;
    let admitted = verdicts.into_iter().map(u32::from).sum();
    (admitted, most_waiting)
}

/// With many calls under way a healthy Redis was declared away and made 0 to 33 % of the decisions, and nodes admitted more than the
/// limit by their fallback quotas.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i01_at_twice_its_saturation_a_node_admits_exactly_the_limit() {
    let server = RedisServer::start(ServerProgram::under_test()[0]);
    let node = Node::start(&server, MAX_IN_FLIGHT).await;
    let rate = saturation(&node).await;
    let (admitted, most_waiting) = offer(&node, 2.0 * rate).await;
    assert_eq!(admitted, BURST * KEYS);
    assert!(
        most_waiting > 100,
        "it was not saturated: {most_waiting} at {rate}/s"
    );
    let totals = node.fleet.totals();
    let without_redis = [totals.openings, totals.fallback, totals.ambiguous];
    assert_eq!(without_redis, [0; 3], "{totals:?}");
}

/// The load finds out whether a node decides without its Redis.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_a_node_that_may_have_few_calls_under_way_decides_some_requests_alone() {
    let server = RedisServer::start(ServerProgram::under_test()[0]);
    let node = Node::start(&server, 100).await;
    let rate = saturation(&node).await;
    let _some_are_decided_here = offer(&node, 2.0 * rate).await;
    let totals = node.fleet.totals();
    assert!(totals.busy > 0 && totals.fallback > 0, "{totals:?}");
    assert_eq!(totals.openings, 0, "{totals:?}");
}
