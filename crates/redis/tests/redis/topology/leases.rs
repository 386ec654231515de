//! Leased buckets in clusters and shards: each is on its key's server, and all nodes share it.

use std::time::Duration;

use tollgate_redis::RedisStore;
use tollgate_store::StoreKey;
use tollgate_store::quota_lease::{LeaseRequest, LeaseSpec, QuotaLeaseId};
use tollgate_testkit::redis::{RedisCluster, RedisNode, ServerProgram};

use super::load::keys;
use super::shards::url;
use super::{exclusive, name_of, store_at};
use crate::server_time::{LONG_TIMEOUT, numbered_limit, slow_bucket};

const BURST: u64 = 10;

/// Two nodes lease from every key until nothing is left. `tag` is the hash tag of all keys.
async fn borrow_all(stores: &[RedisStore; 2], tag: Option<StoreKey<'_>>) {
    let limit = numbered_limit(1, slow_bucket(BURST));
    for key in keys(12) {
        let key = StoreKey::new(key.as_bytes()).unwrap();
        let mut units = 0;
        for (store, id) in stores.iter().cycle().zip(1..=4) {
            let lease = LeaseSpec {
                id: QuotaLeaseId(id),
                min_units: 1,
                max_units: 4,
                duration: tollgate_core::Nanos::HOUR,
            };
            let request = LeaseRequest {
                lease: Some(lease),
                ..LeaseRequest::default()
            };
            units += store
                .grant_lease(tag, key, &limit, &request)
                .await
                .unwrap()
                .units;
        }
        assert_eq!(units, BURST);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_nodes_lease_their_own_keys_and_one_tag_is_on_one_node() {
    let _exclusive = exclusive().await;
    let cluster = RedisCluster::start_with(ServerProgram::Redis, 15_000, 0);
    let stores = [
        store_at(cluster.url(), LONG_TIMEOUT).await,
        store_at(cluster.url(), LONG_TIMEOUT).await,
    ];
    borrow_all(&stores, None).await;
    let sizes = || cluster.nodes.iter().map(|node| node.ask(&["DBSIZE"]));
    let sizes: Vec<u64> = sizes().map(|size| size.parse().unwrap()).collect();
    assert_eq!(
        sizes.iter().sum::<u64>(),
        12,
        "one leased bucket for each key"
    );
    assert!(
        sizes.iter().filter(|size| **size > 0).count() > 1,
        "{sizes:?}"
    );
    for node in &cluster.nodes {
        assert_eq!(node.ask(&["FLUSHALL"]), "OK");
    }
    borrow_all(&stores, Some(StoreKey::new(b"org").unwrap())).await;
    let homes = cluster
        .nodes
        .iter()
        .filter(|node| node.ask(&["DBSIZE"]) == "12");
    assert_eq!(homes.count(), 1, "all under one tag");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_lease_their_own_keys() {
    let options = ["--save", "", "--appendonly", "no"];
    let nodes: Vec<RedisNode> = (0..3)
        .map(|_| RedisNode::start(ServerProgram::Redis, &options))
        .collect();
    let stores = [
        store_at(url(&nodes), Duration::from_secs(5)).await,
        store_at(url(&nodes), Duration::from_secs(5)).await,
    ];
    borrow_all(&stores, None).await;
    for key in keys(12) {
        let name = name_of(&key);
        let (start, id) = name.rsplit_once(':').unwrap();
        let leased_bucket = format!("{start}~{id}");
        let homes = nodes
            .iter()
            .filter(|node| node.ask(&["EXISTS", &leased_bucket]) == "1");
        assert_eq!(homes.count(), 1, "{key}");
    }
}
