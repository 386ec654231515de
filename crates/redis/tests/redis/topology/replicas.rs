//! S-20: a replica never decides, however it comes to be asked.

use std::time::Duration;

use tollgate_store::{ErrorKind, Op};
use tollgate_testkit::redis::{Kind, Node};

use super::{store_at, until};
use crate::server_time::{PATIENT, one, ruled, slow_bucket};

const PLAIN: [&str; 6] = [
    "--save",
    "",
    "--appendonly",
    "no",
    "--repl-diskless-sync-delay",
    "0",
];

fn follow(replica: &Node, primary: &Node) {
    let port = primary.address().port().to_string();
    replica.tell(&["REPLICAOF", "127.0.0.1", &port]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_20_a_replica_is_not_asked_until_it_is_promoted() {
    for kind in [Kind::Redis, Kind::OldRedis, Kind::NewValkey] {
        let (primary, replica) = (Node::start(kind, &PLAIN), Node::start(kind, &PLAIN));
        follow(&replica, &primary);
        let store = store_at(replica.url(), PATIENT).await;
        let limit = ruled(1, slow_bucket(3));
        // Not even what changes nothing, for which a replica would have an answer.
        for op in [Op::Spend(1), Op::Spend(0), Op::Peek(1)] {
            let error = one(&store, "alice", &limit, op).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unreachable, "{kind:?}: {error}");
        }
        replica.tell(&["REPLICAOF", "NO", "ONE"]);
        until("it is asked once it is promoted", || async {
            one(&store, "alice", &limit, Op::Spend(0)).await.is_ok()
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_20_a_primary_that_is_demoted_admits_nothing_and_is_left() {
    for kind in [Kind::Redis, Kind::OldRedis, Kind::NewValkey] {
        let (one_node, other) = (Node::start(kind, &PLAIN), Node::start(kind, &PLAIN));
        let store = store_at(one_node.url(), Duration::from_secs(10)).await;
        let limit = ruled(1, slow_bucket(1_000));
        one(&store, "alice", &limit, Op::Spend(1)).await.unwrap();
        follow(&one_node, &other);
        // The connection stays open, so the first thing that is heard is a refusal to write, and then nothing more.
        let mut kinds = Vec::new();
        until("it is left", || async {
            one(&store, "alice", &limit, Op::Spend(1))
                .await
                .unwrap_err()
                .kind()
                == ErrorKind::Unreachable
        })
        .await;
        for _ in 0..20 {
            kinds.push(
                one(&store, "alice", &limit, Op::Spend(1))
                    .await
                    .unwrap_err()
                    .kind(),
            );
        }
        assert!(
            kinds.iter().all(|kind| *kind == ErrorKind::Unreachable),
            "{kind:?}: {kinds:?}"
        );
    }
}
