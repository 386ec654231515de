//! Warnings about servers that should not have been configured.

use tollgate_redis::ServerWarningKind;
use tollgate_testkit::redis::{RedisCluster, RedisNode, ServerProgram};

use super::{exclusive, store_at};
use crate::server_time::LONG_TIMEOUT;

async fn warning_kinds(url: String) -> Vec<ServerWarningKind> {
    let store = store_at(url, LONG_TIMEOUT).await;
    let warnings = store.inspect().await;
    warnings.iter().map(|finding| finding.kind).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn misconfigured_servers_give_warnings_at_the_start() {
    for kind in [
        ServerProgram::Redis,
        ServerProgram::OldRedis,
        ServerProgram::NewValkey,
    ] {
        let node = RedisNode::start(kind, &["--save", "", "--appendonly", "no"]);
        assert_eq!(warning_kinds(node.url()).await, [], "{kind:?}");
        node.tell(&["CONFIG", "SET", "maxmemory", "100mb"]);
        assert_eq!(
            warning_kinds(node.url()).await,
            [ServerWarningKind::Bounded],
            "{kind:?}"
        );
        node.tell(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
        assert_eq!(
            warning_kinds(node.url()).await,
            [ServerWarningKind::Evicting],
            "{kind:?}"
        );
        let primary = RedisNode::start(kind, &["--save", "", "--appendonly", "no"]);
        let port = primary.address().port().to_string();
        node.tell(&["REPLICAOF", "127.0.0.1", &port]);
        let warnings = warning_kinds(node.url()).await;
        assert_eq!(
            warnings,
            [ServerWarningKind::Replica, ServerWarningKind::Evicting],
            "{kind:?}"
        );
        let cluster = format!("redis+cluster://{}", primary.address());
        assert_eq!(
            warning_kinds(cluster).await,
            [ServerWarningKind::Unreachable],
            "{kind:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_undeclared_cluster_gives_a_warning() {
    let _exclusive = exclusive().await;
    let cluster = RedisCluster::start_with(ServerProgram::Redis, 15_000, 0);
    let node = cluster.nodes[0].url();
    assert_eq!(warning_kinds(node).await, [ServerWarningKind::Clustered]);
    assert_eq!(warning_kinds(cluster.url()).await, []);
}
