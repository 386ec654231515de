//! The store's errors when the server is down, slow or silent: in time, of the right kind, and without charging twice.

use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tollgate_core::Outcome;
use tollgate_redis::{RedisOptions, RedisStore};
use tollgate_store::{Op, StoreErrorKind};
use tollgate_testkit::redis::{RedisServer, ServerProgram};

use crate::SECRET;
use crate::fake_server::{FakeServer, LossyRelay};
use crate::server_time::{
    LONG_TIMEOUT, connection, decide_one, long_timeout_store, numbered_limit, slow_bucket,
};

/// Repeats a call until it succeeds, up to `LONG_TIMEOUT`.
async fn until_answered(store: &RedisStore) -> Outcome {
    let limit = numbered_limit(1, slow_bucket(10));
    let answered = async {
        loop {
            if let Ok(answer) = decide_one(store, "alice", &limit, Op::Spend(0)).await {
                return answer.outcome;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG_TIMEOUT, answered).await.unwrap()
}

#[tokio::test]
async fn s_08_a_lost_reply_may_have_charged_and_is_not_repeated() {
    for ends in [true, false] {
        let server = RedisServer::start(ServerProgram::Redis);
        let relay = LossyRelay::to(server.address(), ends).await;
        let mut options = RedisOptions::new(format!("redis://{}", relay.address), SECRET);
        options.deadline = if ends {
            LONG_TIMEOUT
        } else {
            Duration::from_millis(300)
        };
        options.connect_deadline = LONG_TIMEOUT;
        let store = RedisStore::connect(options).await.unwrap();
        let limit = numbered_limit(1, slow_bucket(10));
        decide_one(&store, "alice", &limit, Op::Spend(1))
            .await
            .unwrap();

        relay.is_losing.store(true, Ordering::SeqCst);
        let error = decide_one(&store, "alice", &limit, Op::Spend(1))
            .await
            .unwrap_err();
        let kind = if ends {
            StoreErrorKind::ConnectionLost
        } else {
            StoreErrorKind::TimedOut
        };
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.may_have_charged() && !error.is_safe_to_retry());

        relay.is_losing.store(false, Ordering::SeqCst);
        let direct = long_timeout_store(server.url()).await;
        let status = decide_one(&direct, "alice", &limit, Op::Spend(0))
            .await
            .unwrap()
            .status;
        assert_eq!(
            status.remaining, 8,
            "one spend was answered and one was lost"
        );
        assert_eq!(
            until_answered(&store).await,
            Outcome::Allow,
            "and the connection recovers"
        );
    }
}

#[tokio::test]
async fn s_03_a_server_that_starts_later_is_found() {
    let address = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let mut options = RedisOptions::new(format!("redis://{address}"), SECRET);
    options.deadline = LONG_TIMEOUT;
    let store = RedisStore::connect(options).await.unwrap();
    let limit = numbered_limit(1, slow_bucket(10));
    let error = decide_one(&store, "alice", &limit, Op::Spend(1))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unreachable);
    assert!(error.is_safe_to_retry() && !store.is_connected());
    let _server = RedisServer::start_at(ServerProgram::Redis, address);
    assert_eq!(until_answered(&store).await, Outcome::Allow);
    assert!(store.is_connected());
}

#[tokio::test]
async fn s_02_a_restarted_server_is_found_again() {
    let server = RedisServer::start(ServerProgram::Redis);
    let address = server.address();
    let store = long_timeout_store(server.url()).await;
    assert_eq!(until_answered(&store).await, Outcome::Allow);
    drop(server);
    let limit = numbered_limit(1, slow_bucket(10));
    // The call in flight is lost, and then no server can be reached.
    let gone = async {
        loop {
            let asked = decide_one(&store, "alice", &limit, Op::Spend(1)).await;
            match asked.unwrap_err().kind() {
                StoreErrorKind::Unreachable => return,
                kind => assert_eq!(kind, StoreErrorKind::ConnectionLost),
            }
        }
    };
    tokio::time::timeout(LONG_TIMEOUT, gone).await.unwrap();
    let server = RedisServer::start_at(ServerProgram::Redis, address);
    assert_eq!(until_answered(&store).await, Outcome::Allow);
    let mut connection = connection(&server);
    let keys: u64 = redis::cmd("DBSIZE").query(&mut connection).unwrap();
    assert_eq!(keys, 0, "no lost call was sent again");
}

#[tokio::test]
async fn calls_beyond_the_bound_fail_at_once_and_silence_ends_at_the_deadline() {
    let fake = FakeServer::replying(None).await;
    let mut options = RedisOptions::new(fake.url(), SECRET);
    options.connect_deadline = LONG_TIMEOUT;
    options.deadline = Duration::from_millis(200);
    options.max_in_flight = 8;
    let store = RedisStore::connect(options).await.unwrap();
    let limit = numbered_limit(1, slow_bucket(10));
    let calls =
        std::iter::repeat_with(|| decide_one(&store, "alice", &limit, Op::Spend(1))).take(20);
    let kinds: Vec<StoreErrorKind> = join_all(calls)
        .await
        .into_iter()
        .map(|result| result.unwrap_err().kind())
        .collect();
    let count = |kind| kinds.iter().filter(|other| **other == kind).count();
    assert_eq!(
        (count(StoreErrorKind::TimedOut), count(StoreErrorKind::Busy)),
        (8, 12)
    );
    assert_eq!(fake.calls.load(Ordering::SeqCst), 8, "none was sent twice");
    assert_eq!(
        fake.connections.load(Ordering::SeqCst),
        3,
        "a slow server is not stormed"
    );
}

/// Runs all futures concurrently in one task.
async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        let mut is_done = true;
        for (future, output) in &mut waiting {
            if output.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(ready) => *output = Some(ready),
                    std::task::Poll::Pending => is_done = false,
                }
            }
        }
        if is_done {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    waiting
        .into_iter()
        .map(|(_, output)| output.unwrap())
        .collect()
}
