//! Batches that one server denies: what the others were charged is refunded.

use std::sync::Arc;

use tokio::task::JoinSet;
use tollgate_core::concurrency::LeaseId;
use tollgate_core::limit::Limit;
use tollgate_core::reservation::ReservationId;
use tollgate_core::{
    Concurrency, FixedWindow, LeakyBucket, Nanos, Rate, SlidingCounter, SlidingLog, Window,
};
use tollgate_store::{IdentifiedLimit, Op, QuotaCheck, StoreErrorKind, StoreKey, StoreReply};
use tollgate_testkit::redis::{RedisCluster, ServerProgram};

use super::super::shards::url;
use super::super::{exclusive, store_at};
use super::{decide_all, keys_on_both, remaining, servers};
use crate::server_time::{LONG_TIMEOUT, decide_one, numbered_limit, slow_bucket};

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
async fn i11_a_batch_that_another_server_denies_leaves_no_charge() {
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
async fn i11_concurrent_batches_over_a_cluster_leave_only_admitted_charges() {
    let _exclusive = exclusive().await;
    let cluster = RedisCluster::start_with(ServerProgram::Redis, 15_000, 0);
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
    let cluster = RedisCluster::start_with(ServerProgram::Redis, 15_000, 0);
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
        let outcome = store
            .decide_tagged(&tags, &checks, &mut answers)
            .await
            .unwrap();
        assert_eq!(outcome.is_admitted(), round <= 5);
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i11_a_flood_that_one_server_denies_is_hardly_charged_to_the_other() {
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
