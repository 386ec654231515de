//! Live nodes: heartbeats, leases and leaving.

use std::time::Duration;

use tollgate_core::Nanos;
use tollgate_redis::{RedisOptions, RedisRegister, RedisStore};
use tollgate_store::register::{NodeId, NodeLoad, Register, RegisterCursor};
use tollgate_testkit::redis::{RedisCluster, RedisNode, RedisServer, ServerProgram};

use super::{LIFE, heartbeat, nodes, register, register_with, set, summary, time_to_live};
use crate::server_time::LONG_TIMEOUT;
use crate::topology::wait_until;

#[tokio::test]
async fn nodes_with_different_secrets_see_each_other_and_their_loads_are_added_up() {
    for kind in ServerProgram::under_test() {
        let server = RedisServer::start(kind);
        let registers = [
            register(server.url()).await,
            register(server.url()).await,
            register_with(server.url(), *b"another secret..").await,
        ];
        for (register, node) in registers.iter().zip(1..) {
            register.heartbeat(&heartbeat(node), LIFE).await.unwrap();
        }
        for (register, node) in registers.iter().zip(1..) {
            let members = register.heartbeat(&heartbeat(node), LIFE).await.unwrap();
            assert_eq!(nodes(&members), [1, 2, 3], "{kind:?}");
            assert_eq!(members.load, NodeLoad::from_numbers([6, 30]));
            assert_eq!(
                members.cursor,
                RegisterCursor::default(),
                "there is no entry yet"
            );
            assert_eq!(members.nodes[0].heartbeat, heartbeat(1));
            assert!(
                members.nodes.iter().all(|node| node.age < LIFE),
                "{members:?}"
            );
        }
        registers[0].leave(NodeId(2)).await.unwrap();
        let members = registers[0].heartbeat(&heartbeat(1), LIFE).await.unwrap();
        assert_eq!(
            nodes(&members),
            [1, 3],
            "a node that leaves is removed at once"
        );
        for (name, ttl) in time_to_live(&server) {
            assert!(name.starts_with("tg1:{fleet:default}:"), "{name}");
            assert!((1..=30_000).contains(&ttl), "{name} lives for {ttl}");
        }
    }
}

#[tokio::test]
async fn fleets_of_different_names_do_not_see_each_other() {
    let server = RedisServer::start(ServerProgram::Redis);
    let store = RedisStore::connect(RedisOptions::new(server.url(), crate::SECRET))
        .await
        .unwrap();
    let named =
        |name: &str| RedisRegister::new(&store, &name.parse().unwrap()).with_deadline(LONG_TIMEOUT);
    let (one, two) = (named("one"), named("two"));
    one.heartbeat(&heartbeat(1), LIFE).await.unwrap();
    one.put(NodeId(1), 1, &[set("a", "1")]).await.unwrap();
    let members = two.heartbeat(&heartbeat(2), LIFE).await.unwrap();
    assert_eq!(
        (nodes(&members), members.cursor),
        (vec![2], RegisterCursor::default())
    );
}

#[tokio::test]
async fn s_26_a_node_without_heartbeats_is_removed_after_its_lease_by_the_servers_clock() {
    let (server, mut clock) =
        RedisServer::start_with_clock(ServerProgram::Redis, Duration::from_secs(1_800_000_000));
    let register = register(server.url()).await;
    let life = Nanos::from_secs(3);
    register.heartbeat(&heartbeat(1), life).await.unwrap();
    register.heartbeat(&heartbeat(2), life).await.unwrap();
    clock.advance(Duration::from_secs(2));
    let members = register.heartbeat(&heartbeat(1), life).await.unwrap();
    assert_eq!(nodes(&members), [1, 2]);
    assert_eq!(members.nodes[1].age, Nanos::from_secs(2));
    clock.advance(Duration::from_secs(1));
    let members = register.heartbeat(&heartbeat(1), life).await.unwrap();
    assert_eq!(nodes(&members), [1], "its life is over");
    // A clock that goes back by a day must not extend the lease of a dead node.
    register.heartbeat(&heartbeat(2), life).await.unwrap();
    clock.set_back(Duration::from_secs(86_400));
    let members = register.heartbeat(&heartbeat(1), life).await.unwrap();
    assert_eq!(nodes(&members), [1]);
}

#[tokio::test]
async fn calls_without_a_server_fail_and_succeed_once_it_is_back() {
    let mut node = RedisNode::start(ServerProgram::Redis, &["--save", "", "--appendonly", "no"]);
    let register = register(node.url())
        .await
        .with_deadline(Duration::from_millis(500));
    register.heartbeat(&heartbeat(1), LIFE).await.unwrap();
    node.kill();
    let failed = register.heartbeat(&heartbeat(1), LIFE).await.unwrap_err();
    assert!(!failed.is_callers_fault(), "{failed}");
    register.entries(None).await.unwrap_err();
    node.restart();
    wait_until("the register answers again", || async {
        register.heartbeat(&heartbeat(1), LIFE).await.is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_and_on_shards_every_node_finds_the_same_register() {
    let _exclusive = crate::topology::exclusive().await;
    let cluster = RedisCluster::start_with(ServerProgram::Redis, 15_000, 0);
    let shards: Vec<RedisNode> = (0..3)
        .map(|_| RedisNode::start(ServerProgram::Redis, &["--save", "", "--appendonly", "no"]))
        .collect();
    for url in [cluster.url(), crate::topology::shards_url(&shards)] {
        let one = register(url.clone()).await;
        let two = register_with(url.clone(), *b"another secret..").await;
        one.heartbeat(&heartbeat(1), LIFE).await.unwrap();
        one.put(NodeId(1), 1, &[set("a", "1")]).await.unwrap();
        let members = two.heartbeat(&heartbeat(2), LIFE).await.unwrap();
        assert_eq!(nodes(&members), [1, 2], "{url}");
        assert_eq!(summary(&two.entries(None).await.unwrap()), ["a=1"], "{url}");
    }
    let holders = shards.iter().filter(|node| node.ask(&["DBSIZE"]) != "0");
    assert_eq!(holders.count(), 1, "one server has the whole register");
}
