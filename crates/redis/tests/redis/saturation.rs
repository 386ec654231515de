//! More calls than a server can answer within the deadline, if all were sent at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tollgate_core::Outcome;
use tollgate_redis::{RedisOptions, RedisStore};
use tollgate_store::{Op, StoreErrorKind};
use tollgate_testkit::redis::{RedisServer, ServerProgram};

use crate::SECRET;
use crate::server_time::{decide_one, numbered_limit, slow_bucket};

/// With 500 calls under way and a deadline of 15 ms, a healthy server was declared dead and made 0 to 33 % of the decisions: each
/// call was sent at once, and waiting for the calls before it counted against its deadline. Now a call that the server has no time
/// for is not sent, and says that it has not charged. The unit tests of the window count the missed deadlines, in simulated time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i01_a_server_with_too_much_to_do_decides_every_call_exactly() {
    let server = RedisServer::start(ServerProgram::under_test()[0]);
    let mut options = RedisOptions::new(server.url(), SECRET);
    // Sent all at once, 2,000 calls take longer than this on two busy cores.
    options.deadline = Duration::from_millis(250);
    let store = Arc::new(RedisStore::connect(options).await.unwrap());
    let limit = Arc::new(numbered_limit(1, slow_bucket(3_000)));
    let mut callers = JoinSet::new();
    for _ in 0..2_000 {
        let (store, limit) = (Arc::clone(&store), Arc::clone(&limit));
        callers.spawn(async move {
            let (mut admitted, mut asked) = (0, 0);
            while asked < 2 {
                match decide_one(&store, "one", &limit, Op::Spend(1)).await {
                    Ok(reply) => {
                        asked += 1;
                        admitted += u32::from(reply.outcome == Outcome::Allow);
                    }
                    Err(error) if error.kind() == StoreErrorKind::Busy => {}
                    Err(error) => panic!("a call that was sent got no reply: {error}"),
                }
            }
            admitted
        });
    }
    let admitted = callers.join_all().await;
    assert_eq!(admitted.into_iter().sum::<u32>(), 3_000);
    assert_eq!(store.waiting_calls(), 0);
}
