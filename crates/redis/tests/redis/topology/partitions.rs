//! Partitions of a store that fail independently: each has a probe key, and a failed one does not affect others.

use std::collections::HashSet;

use tollgate_store::{Op, RemoteStore as _, StoreKey};
use tollgate_testkit::redis::{RedisCluster, RedisServer, ServerProgram};

use super::{exclusive, store_at};
use crate::server_time::{LONG_TIMEOUT, decide_one, numbered_limit, slow_bucket};

#[tokio::test]
async fn every_partition_of_a_cluster_has_a_probe_key() {
    let _exclusive = exclusive().await;
    let mut cluster = RedisCluster::start_with(ServerProgram::Redis, 15_000, 0);
    let store = store_at(cluster.url(), LONG_TIMEOUT).await;
    assert_eq!(store.partition_count(), 64);
    for partition in 0..store.partition_count() {
        assert_eq!(store.probe(partition).await, Ok(()), "{partition}");
    }
    assert!(store.probe(64).await.is_err());
    let keys = (0..1_000_u32).map(u32::to_be_bytes);
    let partitions: HashSet<usize> = keys
        .map(|key| store.partition_of(&StoreKey::new(&key).unwrap(), None))
        .collect();
    assert_eq!(partitions.len(), 64, "keys are in every partition");
    let tag = StoreKey::new(b"tag").unwrap();
    let own = store.partition_of(&tag, None);
    for name in [b"a", b"b", b"c"] {
        let key = StoreKey::new(name).unwrap();
        assert_eq!(
            store.partition_of(&key, Some(&tag)),
            own,
            "the tag selects the partition"
        );
    }
    // The first node owns a third of the slots: those of partitions 0 to 21.
    drop(cluster.nodes.remove(0));
    let mut unavailable = Vec::new();
    for partition in 0..store.partition_count() {
        if store.probe(partition).await.is_err() {
            unavailable.push(partition);
        }
    }
    let last = unavailable.last().copied();
    assert!(matches!(last, Some(20 | 21)), "{unavailable:?}");
    assert_eq!(unavailable, (0..=last.unwrap_or(0)).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_probe_of_a_stopped_shard_fails() {
    let (north, south) = (
        RedisServer::start(ServerProgram::Redis),
        RedisServer::start(ServerProgram::Redis),
    );
    let url = format!(
        "redis+shards://north={},south={}",
        north.address(),
        south.address()
    );
    let store = store_at(url, LONG_TIMEOUT).await;
    assert_eq!(store.partition_count(), 2);
    assert_eq!(
        (store.probe(0).await, store.probe(1).await),
        (Ok(()), Ok(()))
    );
    drop(south);
    assert_eq!(store.probe(0).await, Ok(()));
    assert!(store.probe(1).await.is_err());
}

/// A read-only probe would succeed on a server that cannot write.
#[tokio::test]
async fn s_14_the_probe_of_a_server_that_cannot_write_fails() {
    let server = RedisServer::start_with(ServerProgram::Redis, &["--maxmemory", "1"]);
    let store = store_at(server.url(), LONG_TIMEOUT).await;
    assert!(store.probe(0).await.is_err());
}

#[tokio::test]
async fn a_key_is_erased_with_its_reservations() {
    let server = RedisServer::start(ServerProgram::Redis);
    let store = store_at(server.url(), LONG_TIMEOUT).await;
    let limit = numbered_limit(1, slow_bucket(2));
    let spend = || async {
        let answer = decide_one(&store, "alice", &limit, Op::Spend(1)).await;
        answer.unwrap().outcome.is_admitted()
    };
    assert!(spend().await && spend().await && !spend().await);
    let alice = StoreKey::new(b"alice").unwrap();
    assert_eq!(store.erase(None, alice, &limit).await, Ok(true));
    assert_eq!(store.erase(None, alice, &limit).await, Ok(false));
    assert!(spend().await);
}
