//! Batches over several servers: a denied batch leaves no charge, and after a fault in between at most its own cost
//! stays charged, which is refunded once, however often the refund is repeated.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinSet;
use tollgate_core::concurrency::LeaseId;
use tollgate_core::limit::Limit;
use tollgate_core::reservation::ReservationId;
use tollgate_core::{
    Concurrency, FixedWindow, LeakyBucket, Nanos, Rate, SlidingCounter, SlidingLog, Window,
};
use tollgate_redis::RedisStore;
use tollgate_store::{
    IdentifiedLimit, Op, QuotaCheck, StoreError, StoreErrorKind, StoreKey, StoreReply,
};
use tollgate_testkit::redis::{Cluster, Kind, Node};

use super::shards::{shard_of, url};
use super::{exclusive, name_of, store_at, wait_until};
use crate::fake_server::LossyRelay;
use crate::server_time::{LONG_TIMEOUT, decide_one, numbered_limit, slow_bucket};

fn servers(count: usize) -> Vec<Node> {
    (0..count)
        .map(|_| Node::start(Kind::Redis, &["--save", "", "--appendonly", "no"]))
        .collect()
}

/// Decides several checks in one batch.
async fn decide_all(
    store: &RedisStore,
    asked: &[(&str, &IdentifiedLimit, Op)],
) -> Result<(bool, Vec<StoreReply>), StoreError> {
    let checks: Vec<QuotaCheck<'_>> = asked
        .iter()
        .map(|(key, limit, op)| QuotaCheck {
            key: StoreKey::new(key.as_bytes()).unwrap(),
            limit,
            op: *op,
        })
        .collect();
    let mut answers = vec![StoreReply::EMPTY; checks.len()];
    let verdict = store.decide(&checks, &mut answers).await?;
    assert_eq!(
        verdict.is_admitted(),
        answers
            .iter()
            .all(|answer| answer.outcome.is_admitted())
    );
    Ok((verdict.is_admitted(), answers))
}

/// A key on the first server and a key on the second.
async fn keys_on_both(store: &RedisStore, nodes: &[Node]) -> (String, String) {
    let limit = numbered_limit(1, slow_bucket(1_000));
    let mut found = [None, None];
    for number in 0.. {
        let key = format!("user {number}");
        decide_one(store, &key, &limit, Op::Spend(1)).await.unwrap();
        if let Some(place) = found.get_mut(shard_of(nodes, &key).unwrap()) {
            place.get_or_insert(key);
        }
        if let [Some(first), Some(second)] = &found {
            let apart = (first.clone(), second.clone());
            for node in nodes {
                node.tell(&["FLUSHALL"]);
            }
            return apart;
        }
    }
    unreachable!()
}

async fn remaining(store: &RedisStore, key: &str, limit: &IdentifiedLimit) -> u64 {
    let peek = match limit.limit.quota() {
        tollgate_core::limit::Quota::Concurrency(_) => Op::Acquire {
            id: LeaseId(0),
            weight: 0,
        },
        _ => Op::Spend(0),
    };
    let answer = decide_one(store, key, limit, peek).await.unwrap();
    answer.status.remaining
}

/// A limit of ten of every algorithm, and an operation that charges it.
fn charges() -> [(Limit, Op); 8] {
    let hour = Nanos::HOUR;
    [
        (slow_bucket(10).into(), Op::Spend(3)),
        (slow_bucket(10).into(), Op::SpendUpTo(4)),
        (slow_bucket(10).into(), Op::ChargeAlways(4)),
        (
            LeakyBucket::queue(Rate::per_day(1))
                .burst(10)
                .build()
                .unwrap()
                .into(),
            Op::Spend(1),
        ),
        (
            FixedWindow::builder(10, Window::FirstHit(hour))
                .build()
                .unwrap()
                .into(),
            Op::Spend(3),
        ),
        (
            SlidingCounter::builder(10, hour).build().unwrap().into(),
            Op::Spend(3),
        ),
        (
            SlidingLog::builder(10, hour).build().unwrap().into(),
            Op::Spend(3),
        ),
        (
            Concurrency::new(10, hour).unwrap().into(),
            Op::Acquire {
                id: LeaseId(7),
                weight: 3,
            },
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i11_nothing_stays_charged_of_a_batch_that_another_server_refuses() {
    let nodes = servers(2);
    let store = store_at(url(&nodes), LONG_TIMEOUT).await;
    let (first, second) = keys_on_both(&store, &nodes).await;
    let hour = Nanos::HOUR;
    let used_up = numbered_limit(99, slow_bucket(1));
    decide_one(&store, &second, &used_up, Op::Spend(1))
        .await
        .unwrap();
    for (id, (limit, op)) in (1..).zip(charges()) {
        let limit = numbered_limit(id, limit);
        let reserve = numbered_limit(id + 20, slow_bucket(10));
        let before = remaining(&store, &first, &limit).await;
        let reserving = Op::Reserve {
            id: ReservationId(id.into()),
            cost: 2,
            hold: hour,
        };
        for _ in 0..5 {
            let asked = [
                (first.as_str(), &limit, op),
                (second.as_str(), &used_up, Op::Spend(1)),
                (first.as_str(), &reserve, reserving),
            ];
            let (is_admitted, answers) = decide_all(&store, &asked).await.unwrap();
            assert!(!is_admitted && !answers[1].outcome.is_admitted());
            assert!(answers[0].outcome.is_admitted(), "{op:?}: by itself");
            assert!(answers.iter().all(|answer| answer.receipt.cost == 0));
            assert_eq!(answers[0].status.remaining, before, "{op:?}");
            assert_eq!(remaining(&store, &first, &limit).await, before, "{op:?}");
            assert_eq!(remaining(&store, &first, &reserve).await, 10);
        }
        // An admitted batch is charged everywhere.
        let free = numbered_limit(id + 40, slow_bucket(1));
        let asked = [
            (first.as_str(), &limit, op),
            (second.as_str(), &free, Op::Spend(1)),
        ];
        let (is_admitted, answers) = decide_all(&store, &asked).await.unwrap();
        assert!(is_admitted && answers.iter().all(|answer| answer.receipt.cost > 0));
        assert!(remaining(&store, &first, &limit).await < before, "{op:?}");
        assert_eq!(remaining(&store, &second, &free).await, 0);
    }
    assert_eq!(store.uncompensated_charges(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i11_concurrent_batches_over_a_cluster_leave_only_what_was_admitted() {
    let _exclusive = exclusive().await;
    let cluster = Cluster::start_with(Kind::Redis, 15_000, 0);
    let store = Arc::new(store_at(cluster.url(), LONG_TIMEOUT).await);
    // More room than there are concurrent clients, so that charges of batches in progress deny no other.
    let (wide, narrow) = (
        numbered_limit(1, slow_bucket(200)),
        numbered_limit(2, slow_bucket(60)),
    );
    let mut clients = JoinSet::new();
    for _ in 0..32 {
        let store = Arc::clone(&store);
        clients.spawn(async move {
            let mut admitted = 0;
            for _ in 0..6 {
                let asked = [
                    ("org", &wide, Op::Spend(1)),
                    ("alice", &narrow, Op::Spend(1)),
                    ("route", &wide, Op::Spend(2)),
                ];
                admitted += u64::from(decide_all(&store, &asked).await.unwrap().0);
            }
            admitted
        });
    }
    let admitted: u64 = clients.join_all().await.into_iter().sum();
    assert_eq!(admitted, 60, "of 192");
    // Refill during a denied batch is not refunded, not even a fraction of a unit.
    let org = remaining(&store, "org", &wide).await;
    assert!((139..=140).contains(&org), "{org}");
    assert_eq!(remaining(&store, "alice", &narrow).await, 0);
    assert_eq!(remaining(&store, "route", &wide).await, 200 - 120);
    assert_eq!(store.uncompensated_charges(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i11_keys_under_one_tag_are_decided_together() {
    let _exclusive = exclusive().await;
    let cluster = Cluster::start_with(Kind::Redis, 15_000, 0);
    let store = store_at(cluster.url(), LONG_TIMEOUT).await;
    let limits: Vec<IdentifiedLimit> = (1..=6)
        .map(|id| numbered_limit(id, slow_bucket(5)))
        .collect();
    let keys = ["org", "team", "alice", "route", "device", "token"];
    let tag = StoreKey::new(b"org").unwrap();
    for round in 1..=6 {
        let checks: Vec<QuotaCheck<'_>> = keys
            .iter()
            .zip(&limits)
            .map(|(key, limit)| QuotaCheck {
                key: StoreKey::new(key.as_bytes()).unwrap(),
                limit,
                op: Op::Spend(1),
            })
            .collect();
        let mut answers = vec![StoreReply::EMPTY; checks.len()];
        let tags = vec![Some(tag); checks.len()];
        let verdict = store
            .decide_tagged(&tags, &checks, &mut answers)
            .await
            .unwrap();
        assert_eq!(verdict.is_admitted(), round <= 5);
    }
    let calls: u64 = cluster
        .nodes
        .iter()
        .filter_map(|node| {
            let stats = node.ask(&["INFO", "commandstats"]);
            tollgate_testkit::redis::info::command(&stats, "evalsha").map(|stat| stat.calls)
        })
        .sum();
    assert_eq!(calls, 6, "one call a batch");
    let wrong = store.decide_tagged(&[None], &[], &mut []).await;
    assert_eq!(wrong.unwrap_err().kind(), StoreErrorKind::BadRequest);
}

/// The first server behind a relay, the second directly connected. Five of ten units on the first server are spent.
struct TwoServers {
    nodes: Vec<Node>,
    relay: LossyRelay,
    store: Arc<RedisStore>,
    direct: RedisStore,
    first: String,
    second: String,
    limit: IdentifiedLimit,
}

impl TwoServers {
    async fn start(deadline: Duration) -> Self {
        let nodes = servers(2);
        let relay = LossyRelay::to(nodes[0].address(), false).await;
        let relayed = format!(
            "redis+shards://shard0={},shard1={}",
            relay.address,
            nodes[1].address()
        );
        let direct = store_at(url(&nodes), LONG_TIMEOUT).await;
        let (first, second) = keys_on_both(&direct, &nodes).await;
        let store = Arc::new(store_at(relayed, deadline).await);
        let limit = numbered_limit(1, slow_bucket(10));
        decide_one(&direct, &first, &limit, Op::Spend(5))
            .await
            .unwrap();
        Self {
            nodes,
            relay,
            store,
            direct,
            first,
            second,
            limit,
        }
    }

    async fn left(&self) -> u64 {
        remaining(&self.direct, &self.first, &self.limit).await
    }

    /// Starts a batch that hangs on the second server after the first is charged.
    async fn hang(&self) -> JoinSet<Result<(bool, Vec<StoreReply>), StoreError>> {
        self.nodes[1].pause();
        let mut batch = JoinSet::new();
        let store = Arc::clone(&self.store);
        let (first, second, limit) = (self.first.clone(), self.second.clone(), self.limit);
        batch.spawn(async move {
            let asked = [
                (first.as_str(), &limit, Op::Spend(1)),
                (second.as_str(), &limit, Op::Spend(1)),
            ];
            decide_all(&store, &asked).await
        });
        wait_until("the first server is charged", || async {
            self.left().await == 4
        })
        .await;
        batch
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i11_after_a_fault_in_the_middle_the_charge_is_given_back_exactly_once() {
    let apart = TwoServers::start(Duration::from_millis(1_500)).await;
    apart.nodes[0].tell(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    let mut batch = apart.hang().await;
    // From now on the first server executes what it is sent, and its replies are lost.
    apart.relay.is_losing.store(true, Ordering::SeqCst);
    let error = batch.join_next().await.unwrap().unwrap().unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::TimedOut, "{error}");
    wait_until("the charge is given back", || async {
        apart.left().await == 5
    })
    .await;
    apart.relay.is_losing.store(false, Ordering::SeqCst);
    apart.nodes[1].resume();
    wait_until("the store is well again", || async {
        decide_one(&apart.store, &apart.first, &apart.limit, Op::Spend(0))
            .await
            .is_ok()
    })
    .await;
    wait_until(
        "it is asked for again, because it was not heard",
        || async {
            let asked = apart.nodes[0].ask(&["SLOWLOG", "GET", "128"]);
            asked
                .matches(&format!("{}!", name_of(&apart.first)))
                .count()
                >= 2
        },
    )
    .await;
    for _ in 0..20 {
        assert_eq!(apart.left().await, 5, "given back once and not again");
    }
    assert_eq!(apart.store.uncompensated_charges(), 0);
    let marker = apart.nodes[0].ask(&["KEYS", &format!("{}!*", name_of(&apart.first))]);
    assert_eq!(marker.lines().count(), 1, "{marker}");
    let lifetime: i64 = apart.nodes[0].ask(&["PTTL", &marker]).parse().unwrap();
    assert!(lifetime > 0, "and that is not remembered for ever");
}

/// On one thread: replies of one connection arrive in order, so this reply follows the one to the batch.
#[tokio::test]
async fn i11_a_batch_that_nobody_waits_for_any_more_is_given_back_too() {
    let apart = TwoServers::start(LONG_TIMEOUT).await;
    let mut batch = apart.hang().await;
    let heard = decide_one(&apart.store, &apart.first, &apart.limit, Op::Spend(0)).await;
    assert_eq!(heard.unwrap().status.remaining, 4);
    batch.abort_all();
    assert!(batch.join_next().await.unwrap().is_err());
    wait_until("the charge is given back", || async {
        apart.left().await == 5
    })
    .await;
    apart.nodes[1].resume();
    // The bound: on the second server, whose reply was lost, at most the batch's own cost may stay charged.
    let second = remaining(&apart.direct, &apart.second, &apart.limit).await;
    assert!((9..=10).contains(&second), "{second}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i11_a_server_that_is_not_there_costs_nothing_elsewhere() {
    let mut nodes = servers(2);
    let store = store_at(url(&nodes), LONG_TIMEOUT).await;
    let (first, second) = keys_on_both(&store, &nodes).await;
    let limit = numbered_limit(1, slow_bucket(10));
    nodes[1].kill();
    let asked = [
        (first.as_str(), &limit, Op::Spend(1)),
        (second.as_str(), &limit, Op::Spend(1)),
    ];
    wait_until("it is known to be gone", || async {
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i11_a_flood_that_one_server_refuses_is_hardly_charged_to_the_other() {
    let nodes = servers(2);
    let store = store_at(url(&nodes), LONG_TIMEOUT).await;
    let (first, second) = keys_on_both(&store, &nodes).await;
    let (free, used_up) = (
        numbered_limit(1, slow_bucket(1_000)),
        numbered_limit(2, slow_bucket(1)),
    );
    decide_one(&store, &second, &used_up, Op::Spend(1))
        .await
        .unwrap();
    nodes[0].tell(&["CONFIG", "RESETSTAT"]);
    let asked = [
        (first.as_str(), &free, Op::Spend(1)),
        (second.as_str(), &used_up, Op::Spend(1)),
    ];
    for _ in 0..100 {
        assert!(!decide_all(&store, &asked).await.unwrap().0);
    }
    let stats = nodes[0].ask(&["INFO", "commandstats"]);
    let writes = tollgate_testkit::redis::info::command(&stats, "set").map_or(0, |stat| stat.calls);
    // The first batch is charged and refunded; later ones check the other server first.
    assert!(
        writes < 50,
        "{writes} writes for 100 requests that were refused"
    );
    assert_eq!(remaining(&store, &first, &free).await, 1_000);
}
