//! Concurrent decisions share round trips: checked by counts. `cargo xtask bench fleet` measures the time.

use std::sync::Arc;

use tokio::task::JoinSet;
use tollgate_store::Op;
use tollgate_testkit::redis::{RedisServer, ServerProgram, info};

use crate::server_time::{connection, decide_one, long_timeout_store, numbered_limit, slow_bucket};

/// The number of concurrent callers, and of calls by each.
const CALLERS: u32 = 64;
const EACH: u32 = 50;

/// Script calls so far, and how often the server read from a connection.
fn counted(connection: &mut redis::Connection) -> (f64, f64) {
    let text: String = redis::cmd("INFO").arg("all").query(connection).unwrap();
    let calls = info::command(&text, "evalsha").map_or(0, |command| command.calls);
    let reads = info::number(&text, "total_reads_processed").unwrap();
    (f64::from(u32::try_from(calls).unwrap()), reads)
}

/// All callers on one thread, like those of a server's worker. Each waits for its reply before the next call.
async fn calls_per_read(callers: u32) -> f64 {
    let server = RedisServer::start(ServerProgram::Redis);
    let mut watching = connection(&server);
    let store = Arc::new(long_timeout_store(server.url()).await);
    let before = counted(&mut watching);
    let mut tasks = JoinSet::new();
    for caller in 0..callers {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            let limit = numbered_limit(1, slow_bucket(10_000));
            for _ in 0..EACH {
                let key = format!("caller {caller}");
                let answer = decide_one(&store, &key, &limit, Op::Spend(1))
                    .await
                    .unwrap();
                assert!(answer.outcome.is_admitted());
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let after = counted(&mut watching);
    let (calls, reads) = (after.0 - before.0, after.1 - before.1);
    assert!(
        calls >= f64::from(callers * EACH),
        "a decision is one call: {calls}"
    );
    calls / reads
}

#[tokio::test]
async fn concurrent_decisions_share_round_trips() {
    let together = calls_per_read(CALLERS).await;
    assert!(together >= 4.0, "only {together} calls came with one read");
}

/// Control: a single caller does not share round trips.
#[tokio::test]
async fn control_a_single_decision_is_one_round_trip() {
    let alone = calls_per_read(1).await;
    assert!(alone <= 1.0, "{alone} calls came with one read");
}
