//! Batches that fail on one server: what the others were charged is refunded, exactly once.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tollgate_redis::RedisStore;
use tollgate_store::{IdentifiedLimit, Op, StoreError, StoreErrorKind, StoreReply};
use tollgate_testkit::faults::{AfterRewrite, CloseMode, Proxy};
use tollgate_testkit::redis::RedisNode;

use super::super::shards::url;
use super::super::{name_of, store_at, wait_until};
use super::{decide_all, keys_on_both, remaining, servers};
use crate::server_time::{LONG_TIMEOUT, decide_one, numbered_limit, slow_bucket};

/// Two servers, the first behind a proxy. Five of ten units on the first server are spent.
struct TwoServers {
    nodes: Vec<RedisNode>,
    proxy: Proxy,
    /// Connects to the first server through the proxy.
    store: Arc<RedisStore>,
    /// Connects to both servers directly.
    direct: RedisStore,
    first: String,
    second: String,
    limit: IdentifiedLimit,
}

impl TwoServers {
    async fn start(deadline: Duration) -> Self {
        let nodes = servers(2);
        let proxy = Proxy::to(nodes[0].address());
        let proxied = proxy.url().replace("redis://", "shard0=");
        let proxied = format!("redis+shards://{proxied},shard1={}", nodes[1].address());
        let direct = store_at(url(&nodes), LONG_TIMEOUT).await;
        let (first, second) = keys_on_both(&direct, &nodes).await;
        let store = Arc::new(store_at(proxied, deadline).await);
        let limit = numbered_limit(1, slow_bucket(10));
        let spent = decide_one(&direct, &first, &limit, Op::Spend(5)).await;
        spent.unwrap();
        Self {
            nodes,
            proxy,
            store,
            direct,
            first,
            second,
            limit,
        }
    }

    /// The remaining units on the first server.
    async fn remaining(&self) -> u64 {
        remaining(&self.direct, &self.first, &self.limit).await
    }

    /// Starts a batch that hangs on the second server after the first is charged, and waits until the store has got
    /// the reply to that charge.
    async fn hang(&self) -> JoinSet<Result<(bool, Vec<StoreReply>), StoreError>> {
        self.nodes[1].pause();
        let mut batch = JoinSet::new();
        let store = Arc::clone(&self.store);
        let (first, second, limit) = (self.first.clone(), self.second.clone(), self.limit);
        batch.spawn(async move {
            let checks = [
                (first.as_str(), &limit, Op::Spend(1)),
                (second.as_str(), &limit, Op::Spend(1)),
            ];
            decide_all(&store, &checks).await
        });
        wait_until("the first server is charged", || async {
            self.remaining().await == 4
        })
        .await;
        // The server has charged, but its reply may still be on the way. Replies of one connection arrive in order, so
        // this reply follows the one to the batch.
        let peeked = decide_one(&self.store, &self.first, &self.limit, Op::Spend(0)).await;
        assert_eq!(peeked.unwrap().status.remaining, 4);
        batch
    }

    fn script_calls(&self) -> u64 {
        self.proxy.counters().commands("EVALSHA")
    }
}

/// This test used to lose all replies of the first server from here on. If its setup took half a second or more, a probe
/// was among them before the refund was sent. AfterRewrite the store discarded its connections and could not send the refund.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i11_after_a_fault_in_the_middle_the_charge_is_refunded_exactly_once() {
    let servers = TwoServers::start(Duration::from_secs(3)).await;
    let mut batch = servers.hang().await;
    let calls = servers.script_calls();
    // The first server executes the refund, and its reply is lost.
    servers
        .proxy
        .lose_replies("EVALSHA", 1, AfterRewrite::End(CloseMode::Reset));
    let error = batch.join_next().await.unwrap().unwrap().unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::TimedOut, "{error}");
    wait_until("the charge is refunded", || async {
        servers.remaining().await == 5
    })
    .await;
    servers.nodes[1].resume();
    wait_until(
        "the refund is repeated, because its reply was lost",
        || async { servers.script_calls() >= calls + 2 },
    )
    .await;
    wait_until("the store is connected again", || async {
        decide_one(&servers.store, &servers.first, &servers.limit, Op::Spend(0))
            .await
            .is_ok()
    })
    .await;
    for _ in 0..20 {
        assert_eq!(servers.remaining().await, 5, "refunded once and not again");
    }
    assert_eq!(servers.store.uncompensated_charges(), 0);
    let marker = servers.nodes[0].ask(&["KEYS", &format!("{}!*", name_of(&servers.first))]);
    assert_eq!(marker.lines().count(), 1, "{marker}");
    let lifetime: i64 = servers.nodes[0].ask(&["PTTL", &marker]).parse().unwrap();
    assert!(lifetime > 0, "the marker expires");
}

/// On one thread, so that the batch has processed the reply to its charge before it is dropped.
#[tokio::test]
async fn i11_a_batch_whose_future_is_dropped_is_refunded_too() {
    let servers = TwoServers::start(LONG_TIMEOUT).await;
    let mut batch = servers.hang().await;
    batch.abort_all();
    assert!(batch.join_next().await.unwrap().is_err());
    wait_until("the charge is refunded", || async {
        servers.remaining().await == 5
    })
    .await;
    servers.nodes[1].resume();
    // The bound: on the second server, whose reply was lost, at most the batch's own cost may stay charged.
    let second = remaining(&servers.direct, &servers.second, &servers.limit).await;
    assert!((9..=10).contains(&second), "{second}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i11_an_unreachable_server_costs_nothing_on_the_others() {
    let mut nodes = servers(2);
    let store = store_at(url(&nodes), LONG_TIMEOUT).await;
    let (first, second) = keys_on_both(&store, &nodes).await;
    let limit = numbered_limit(1, slow_bucket(10));
    nodes[1].kill();
    let asked = [
        (first.as_str(), &limit, Op::Spend(1)),
        (second.as_str(), &limit, Op::Spend(1)),
    ];
    wait_until("the server is known to be unreachable", || async {
        let error = decide_all(&store, &asked).await.unwrap_err();
        error.kind() == StoreErrorKind::Unreachable
    })
    .await;
    for _ in 0..10 {
        let error = decide_all(&store, &asked).await.unwrap_err();
        assert!(error.is_safe_to_retry(), "{error}");
        assert_eq!(remaining(&store, &first, &limit).await, 10);
    }
}
