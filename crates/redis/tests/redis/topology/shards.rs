//! Independent servers that share the keys: each key is on exactly one server.

use std::sync::Arc;
use std::time::Duration;

use tollgate_store::Op;
use tollgate_testkit::redis::{RedisNode, ServerProgram};

use super::history::check;
use super::load::{LoadGenerator, keys};
use super::{name_of, store_at, wait_until};
use crate::server_time::{decide_one, numbered_limit, slow_bucket};

const BURST: u64 = 30;

pub(crate) fn url(nodes: &[RedisNode]) -> String {
    let named: Vec<String> = nodes
        .iter()
        .enumerate()
        .map(|(index, node)| format!("shard{index}={}", node.address()))
        .collect();
    format!("redis+shards://{}", named.join(","))
}

pub(super) fn shard_of(nodes: &[RedisNode], key: &str) -> Option<usize> {
    nodes
        .iter()
        .position(|node| node.ask(&["EXISTS", &name_of(key)]) == "1")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_key_lives_on_one_server_and_a_dead_one_degrades_only_its_own() {
    let mut nodes: Vec<RedisNode> = (0..3)
        .map(|_| RedisNode::start(ServerProgram::Redis, &["--save", "", "--appendonly", "no"]))
        .collect();
    let store = Arc::new(store_at(url(&nodes), Duration::from_secs(5)).await);
    let keys = keys(15);
    let load = LoadGenerator::start(&[Arc::clone(&store)], &keys, 2, BURST);
    load.go_on(15 * 3).await;
    let shards: Vec<usize> = keys
        .iter()
        .map(|key| shard_of(&nodes, key).unwrap())
        .collect();
    for (key, shard) in keys.iter().zip(&shards) {
        let elsewhere = nodes
            .iter()
            .enumerate()
            .filter(|(index, _)| index != shard)
            .any(|(_, node)| node.ask(&["EXISTS", &name_of(key)]) == "1");
        assert!(!elsewhere, "{key}");
    }
    let shard = |key: &str| shards[keys.iter().position(|known| known == key).unwrap()];
    nodes[1].kill();
    load.go_on(50).await;
    nodes[1].restart();
    let limit = numbered_limit(1, slow_bucket(BURST));
    let orphan = keys.iter().find(|key| shard(key) == 1).unwrap();
    wait_until("the server is used again", || async {
        decide_one(&store, orphan, &limit, Op::Spend(0))
            .await
            .is_ok()
    })
    .await;
    load.go_on(15 * BURST).await;
    let history = load.end().await;
    check(&history, BURST, |key| u64::from(shard(key) == 1)).unwrap();
    for (key, tally) in &history {
        if shard(key) == 1 {
            assert!(tally.failed() > 0, "{key}: {tally:?}");
        } else {
            assert_eq!(tally.failed(), 0, "{key} degraded with others: {tally:?}");
        }
    }
}
