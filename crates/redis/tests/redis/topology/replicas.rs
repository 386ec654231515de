//! S-20: a replica never decides. S-19: what two primaries of the same keys admit.

use std::sync::Arc;
use std::time::Duration;

use tollgate_store::{Op, StoreErrorKind};
use tollgate_testkit::redis::{RedisNode, ServerProgram};

use super::history::check;
use super::load::{LoadGenerator, keys};
use super::{store_at, wait_until};
use crate::server_time::{LONG_TIMEOUT, decide_one, numbered_limit, slow_bucket};

const PLAIN: [&str; 6] = [
    "--save",
    "",
    "--appendonly",
    "no",
    "--repl-diskless-sync-delay",
    "0",
];

fn follow(replica: &RedisNode, primary: &RedisNode) {
    let port = primary.address().port().to_string();
    replica.tell(&["REPLICAOF", "127.0.0.1", &port]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_20_a_replica_is_not_used_until_it_is_promoted() {
    for kind in [
        ServerProgram::Redis,
        ServerProgram::OldRedis,
        ServerProgram::NewValkey,
    ] {
        let (primary, replica) = (
            RedisNode::start(kind, &PLAIN),
            RedisNode::start(kind, &PLAIN),
        );
        follow(&replica, &primary);
        let store = store_at(replica.url(), LONG_TIMEOUT).await;
        let limit = numbered_limit(1, slow_bucket(3));
        // Not even operations that change nothing, which a replica could answer.
        for op in [Op::Spend(1), Op::Spend(0), Op::Peek(1)] {
            let error = decide_one(&store, "alice", &limit, op).await.unwrap_err();
            assert_eq!(
                error.kind(),
                StoreErrorKind::Unreachable,
                "{kind:?}: {error}"
            );
        }
        replica.tell(&["REPLICAOF", "NO", "ONE"]);
        wait_until("the replica is used once it is promoted", || async {
            decide_one(&store, "alice", &limit, Op::Spend(0))
                .await
                .is_ok()
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_20_a_demoted_primary_admits_nothing_and_is_disconnected() {
    for kind in [
        ServerProgram::Redis,
        ServerProgram::OldRedis,
        ServerProgram::NewValkey,
    ] {
        let (one_node, other) = (
            RedisNode::start(kind, &PLAIN),
            RedisNode::start(kind, &PLAIN),
        );
        let store = store_at(one_node.url(), Duration::from_secs(10)).await;
        let limit = numbered_limit(1, slow_bucket(1_000));
        decide_one(&store, "alice", &limit, Op::Spend(1))
            .await
            .unwrap();
        follow(&one_node, &other);
        // The connection stays open, so the first error is a refusal to write; then the connection is discarded.
        let mut kinds = Vec::new();
        wait_until("the demoted primary is disconnected", || async {
            decide_one(&store, "alice", &limit, Op::Spend(1))
                .await
                .unwrap_err()
                .kind()
                == StoreErrorKind::Unreachable
        })
        .await;
        for _ in 0..20 {
            kinds.push(
                decide_one(&store, "alice", &limit, Op::Spend(1))
                    .await
                    .unwrap_err()
                    .kind(),
            );
        }
        assert!(
            kinds
                .iter()
                .all(|kind| *kind == StoreErrorKind::Unreachable),
            "{kind:?}: {kinds:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_19_a_split_admits_at_most_twice_the_burst_and_ends_when_it_is_healed() {
    const BURST: u64 = 20;
    let (one_side, other_side) = (
        RedisNode::start(ServerProgram::Redis, &PLAIN),
        RedisNode::start(ServerProgram::Redis, &PLAIN),
    );
    follow(&other_side, &one_side);
    let patience = Duration::from_secs(10);
    let (here, there) = (
        Arc::new(store_at(one_side.url(), patience).await),
        Arc::new(store_at(other_side.url(), patience).await),
    );
    let keys = keys(4);
    let (near, far) = (
        LoadGenerator::start(&[Arc::clone(&here)], &keys, 1, BURST),
        LoadGenerator::start(&[Arc::clone(&there)], &keys, 1, BURST),
    );
    near.go_on(4 * 5).await;
    // Both are primaries now, and each has clients.
    other_side.tell(&["REPLICAOF", "NO", "ONE"]);
    let limit = numbered_limit(1, slow_bucket(BURST));
    wait_until("the other side is used", || async {
        decide_one(&there, "alice", &limit, Op::Spend(0))
            .await
            .is_ok()
    })
    .await;
    far.go_on(4 * (BURST + 5)).await;
    // Healed: the old primary becomes a replica and drops what it admitted alone.
    follow(&one_side, &other_side);
    wait_until("the old primary is disconnected", || async {
        let asked = decide_one(&here, "alice", &limit, Op::Spend(1)).await;
        asked.is_err_and(|error| error.kind() == StoreErrorKind::Unreachable)
    })
    .await;
    far.go_on(4 * 5).await;
    let (near, mut history) = (near.end().await, far.end().await);
    for (key, tally) in near {
        history.get_mut(&key).unwrap().admitted += tally.admitted;
    }
    check(&history, BURST, |_| 1).unwrap();
    for key in &keys {
        let left = decide_one(&there, key, &limit, Op::Spend(0)).await.unwrap();
        assert_eq!(left.status.remaining, 0, "healing refunded nothing");
    }
}
