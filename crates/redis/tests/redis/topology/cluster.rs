//! A cluster that loses nodes, fails over and migrates slots under load.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tollgate_redis::RedisStore;
use tollgate_store::{Op, StoreErrorKind};
use tollgate_testkit::redis::{RedisCluster, ServerProgram};

use super::history::{check, check_exact};
use super::load::{LoadGenerator, keys, spend};
use super::{exclusive, name_of, store_at, wait_until};
use crate::fake_server::FakeServer;
use crate::server_time::{LONG_TIMEOUT, decide_one, numbered_limit, slow_bucket};

const BURST: u64 = 40;

/// The slot of a key, as a server computes it.
fn slot_of(cluster: &RedisCluster, key: &str) -> u16 {
    let slot = cluster.nodes[0].ask(&["CLUSTER", "KEYSLOT", &name_of(key)]);
    slot.parse().unwrap()
}

/// The node that owns a key at first.
fn first_owner(cluster: &RedisCluster, key: &str) -> usize {
    usize::from(slot_of(cluster, key) / (16_384 / 3)).min(2)
}

fn has_crossslot_error(cluster: &RedisCluster) -> bool {
    let stats = cluster
        .nodes
        .iter()
        .filter_map(|node| node.try_ask(&["INFO", "errorstats"]).ok());
    stats.into_iter().any(|stats| stats.contains("CROSSSLOT"))
}

async fn long_timeout_cluster_store(cluster: &RedisCluster) -> Arc<RedisStore> {
    Arc::new(store_at(cluster.url(), LONG_TIMEOUT).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_admits_exactly_the_limit_of_every_key_for_several_clients() {
    let _exclusive = exclusive().await;
    for kind in [ServerProgram::Redis, ServerProgram::NewValkey] {
        let cluster = RedisCluster::start_with(kind, 15_000, 0);
        let stores = [
            long_timeout_cluster_store(&cluster).await,
            long_timeout_cluster_store(&cluster).await,
        ];
        let keys = keys(12);
        let load = LoadGenerator::start(&stores[..1], &keys, 2, BURST);
        let other = LoadGenerator::start(&stores[1..], &keys, 2, BURST);
        load.go_on(12 * (BURST + 5)).await;
        let (mut history, other) = (load.end().await, other.end().await);
        for (key, tally) in other {
            let known = history.get_mut(&key).unwrap();
            known.admitted += tally.admitted;
            known.denied += tally.denied;
            assert_eq!(tally.failed(), 0, "{:?}", tally.errors);
        }
        for (key, tally) in &history {
            assert_eq!(tally.admitted, BURST, "{key} on {kind:?}: {tally:?}");
        }
        assert!(!has_crossslot_error(&cluster));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_18_slots_that_move_under_load_lose_and_mint_nothing() {
    let _exclusive = exclusive().await;
    for kind in [ServerProgram::Redis, ServerProgram::NewValkey] {
        let cluster = RedisCluster::start_with(kind, 15_000, 0);
        let store = long_timeout_cluster_store(&cluster).await;
        let keys = keys(9);
        // Single keys, and two limits together, which are two keys in one slot.
        let (singles, pairs) = keys.split_at(5);
        let single = LoadGenerator::start(&[Arc::clone(&store)], singles, 1, BURST);
        let pair = LoadGenerator::start(&[Arc::clone(&store)], pairs, 2, BURST);
        single.go_on(20).await;
        for key in &keys {
            let (slot, owner) = (slot_of(&cluster, key), first_owner(&cluster, key));
            let to = (owner + 1) % 3;
            cluster.begin_move(slot, owner, to);
            // During the migration existing keys are served by the source, missing keys by the target.
            single.go_on(10).await;
            cluster.move_keys(slot, owner, to);
            single.go_on(10).await;
            cluster.end_move(slot, owner, to);
        }
        single.go_on(5 * (BURST + 10)).await;
        pair.go_on(4 * (BURST + 10)).await;
        let (single, pair) = (single.end().await, pair.end().await);
        for history in [&single, &pair] {
            check_exact(history, BURST).unwrap();
            for (key, tally) in history {
                assert!(tally.denied > 0, "{key} was spent to its end: {tally:?}");
                assert_eq!(tally.admitted, BURST, "{key}: {tally:?}");
            }
        }
        // A single key is served throughout. Two keys of which one has not been migrated yet are refused meanwhile.
        assert!(
            single.values().all(|tally| tally.failed() == 0),
            "{single:?}"
        );
        for errors in pair.values().flat_map(|tally| tally.errors.keys()) {
            assert!(errors.contains("TRYAGAIN"), "{errors}");
        }
        assert!(!has_crossslot_error(&cluster));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_17_when_a_primary_dies_only_its_keys_degrade_and_its_replica_takes_over() {
    let _exclusive = exclusive().await;
    let mut cluster = RedisCluster::start(ServerProgram::Redis, 1_500);
    let store = Arc::new(store_at(cluster.url(), Duration::from_secs(3)).await);
    let keys = keys(12);
    let owners: Vec<usize> = keys.iter().map(|key| first_owner(&cluster, key)).collect();
    let owner = |key: &str| owners[keys.iter().position(|known| known == key).unwrap()];
    assert!(owners.contains(&0) && owners.contains(&1), "{owners:?}");
    let load = LoadGenerator::start(&[Arc::clone(&store)], &keys, 1, BURST);
    load.go_on(50).await;
    cluster.nodes[0].kill();
    let orphan = keys.iter().find(|key| owner(key) == 0).unwrap().clone();
    let limit = numbered_limit(1, slow_bucket(BURST));
    wait_until("the replica is used", || async {
        decide_one(&store, &orphan, &limit, Op::Spend(0))
            .await
            .is_ok()
    })
    .await;
    load.go_on(100).await;
    // The dead node comes back as a replica and is not used.
    cluster.nodes[0].restart();
    cluster.until_well();
    load.go_on(100).await;
    // A forced takeover without a failure and without a vote.
    let taken = cluster.owner(slot_of(&cluster, &orphan), 1).unwrap();
    assert_eq!(taken, 3);
    cluster.take_over(0);
    wait_until("the first is primary again", || async {
        cluster.owner(slot_of(&cluster, &orphan), 0) == Some(0)
            && decide_one(&store, &orphan, &limit, Op::Spend(0))
                .await
                .is_ok()
    })
    .await;
    load.go_on(100).await;
    let history = load.end().await;
    check(&history, BURST, |key| if owner(key) == 0 { 2 } else { 0 }).unwrap();
    for (key, tally) in &history {
        if owner(key) != 0 {
            assert_eq!(tally.failed(), 0, "{key} degraded with others: {tally:?}");
        }
    }
    assert!(!has_crossslot_error(&cluster));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_12_scripts_flushed_on_all_nodes_are_loaded_within_the_decision() {
    let _exclusive = exclusive().await;
    let cluster = RedisCluster::start_with(ServerProgram::Redis, 15_000, 0);
    let store = long_timeout_cluster_store(&cluster).await;
    let keys = keys(6);
    let limits = [
        numbered_limit(1, slow_bucket(BURST)),
        numbered_limit(2, slow_bucket(BURST)),
    ];
    for _ in 0..10 {
        for node in &cluster.nodes {
            node.tell(&["SCRIPT", "FLUSH"]);
        }
        for key in &keys {
            assert!(spend(&store, key, &limits).await.unwrap());
        }
    }
}

/// Whatever a node replies, even if two nodes redirect to each other forever, the call ends after a bounded number of
/// attempts.
#[tokio::test]
async fn s_11_the_number_of_redirections_is_bounded() {
    let table = [
        ("MOVED 1 SELF", 12),
        ("ASK 1 SELF", 5),
        ("MOVED 1 127.0.0.1:1", 1),
        ("ASK 1 127.0.0.1:1", 1),
        ("MOVED x", 1),
        ("MOVED 1 :99999", 1),
        (
            "TRYAGAIN Multiple keys request during rehashing of slot",
            11,
        ),
        ("CLUSTERDOWN Hash slot not served", 1),
        ("READONLY You can't write against a read only replica.", 1),
        ("LOADING Redis is loading the dataset in memory", 1),
        ("CROSSSLOT Keys in request don't hash to the same slot", 1),
    ];
    for (line, calls) in table {
        let fake = FakeServer::replying_with(|address| {
            Some(format!("-{}\r\n", line.replace("SELF", &address.to_string())).into_bytes())
        })
        .await;
        let store = store_at(format!("redis+cluster://{}", fake.address), LONG_TIMEOUT).await;
        let limit = numbered_limit(1, slow_bucket(BURST));
        let error = decide_one(&store, "alice", &limit, Op::Spend(1))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Refused, "{line}: {error}");
        assert!(!error.to_string().contains("127.0.0.1"), "{error}");
        assert_eq!(fake.calls.load(Ordering::SeqCst), calls, "{line}");
    }
}

/// At the end of a migration two nodes of Valkey 9 named each other as the slot's owner for some milliseconds. A call
/// followed five `MOVED` within one millisecond, and was refused although its deadline was far away.
#[tokio::test]
async fn s_18_nodes_that_name_each_other_for_a_moment_are_called_again_after_a_pause() {
    let agreeing = b"*6\r\n:1\r\n:0\r\n:1\r\n:0\r\n:0\r\n:0\r\n";
    let fake = FakeServer::replying_in_turn(|address| {
        let disagreeing = format!("-MOVED 1 {address}\r\n").into_bytes();
        move |calls| {
            Some(if calls < 6 {
                disagreeing.clone()
            } else {
                agreeing.to_vec()
            })
        }
    })
    .await;
    let url = format!("redis+cluster://{}", fake.address);
    let limit = numbered_limit(1, slow_bucket(1));
    let store = store_at(url, LONG_TIMEOUT).await;
    let decided = decide_one(&store, "alice", &limit, Op::Spend(1)).await;
    assert!(decided.is_ok(), "{decided:?}");
    assert_eq!(fake.calls.load(Ordering::SeqCst), 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_starts_later_is_found() {
    let _exclusive = exclusive().await;
    let mut cluster = RedisCluster::start_with(ServerProgram::Redis, 15_000, 0);
    let url = cluster.url();
    for node in &mut cluster.nodes {
        node.kill();
    }
    let store = store_at(url, LONG_TIMEOUT).await;
    let limit = numbered_limit(1, slow_bucket(BURST));
    let error = decide_one(&store, "alice", &limit, Op::Spend(1))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unreachable, "{error}");
    for node in &mut cluster.nodes {
        node.restart();
    }
    wait_until("it is found", || async {
        decide_one(&store, "alice", &limit, Op::Spend(0))
            .await
            .is_ok()
    })
    .await;
}
