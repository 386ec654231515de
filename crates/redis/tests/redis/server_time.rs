//! The store as it is used: on the server's clock, by several concurrent clients, with keys that expire.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use redis::Connection;
use tokio::task::JoinSet;
use tollgate_core::concurrency::LeaseId;
use tollgate_core::limit::Limit;
use tollgate_core::reservation::ReservationId;
use tollgate_core::{
    Calendar, Concurrency, FixedWindow, LeakyBucket, Nanos, Outcome, Rate, SlidingCounter,
    SlidingLog, TokenBucket, UtcOffset, Window,
};
use tollgate_redis::{RedisOptions, RedisStore};
use tollgate_store::{
    IdentifiedLimit, LimitId, Op, QuotaCheck, ReplyNote, StoreError, StoreErrorKind, StoreKey,
    StoreReply,
};
use tollgate_testkit::redis::{RedisServer, ServerProgram};

use crate::SECRET;
use crate::differential::BLANK;

/// Long enough for a machine that is busy with other tests.
pub(crate) const LONG_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) async fn long_timeout_store(url: String) -> RedisStore {
    let mut options = RedisOptions::new(url, SECRET);
    options.deadline = LONG_TIMEOUT;
    options.connect_deadline = LONG_TIMEOUT;
    RedisStore::connect(options).await.unwrap()
}

pub(crate) fn connection(server: &RedisServer) -> Connection {
    let client = redis::Client::open(server.url()).unwrap();
    client.get_connection().unwrap()
}

pub(crate) fn numbered_limit(id: u16, limit: impl Into<Limit>) -> IdentifiedLimit {
    IdentifiedLimit {
        id: LimitId(NonZeroU16::new(id).unwrap()),
        limit: limit.into(),
    }
}

pub(crate) fn slow_bucket(burst: u64) -> TokenBucket {
    TokenBucket::builder(Rate::per_day(1))
        .burst(burst)
        .build()
        .unwrap()
}

pub(crate) async fn decide_one(
    store: &RedisStore,
    key: &str,
    limit: &IdentifiedLimit,
    op: Op,
) -> Result<StoreReply, StoreError> {
    let check = QuotaCheck {
        key: StoreKey::new(key.as_bytes()).unwrap(),
        limit,
        op,
    };
    let mut answers = [BLANK];
    let verdict = store.decide(&[check], &mut answers).await?;
    assert_eq!(verdict.outcome(), answers[0].outcome);
    Ok(answers[0])
}

#[tokio::test]
async fn i15_every_key_has_a_time_to_live() {
    for kind in ServerProgram::under_test() {
        let server = RedisServer::start(kind);
        let store = long_timeout_store(server.url()).await;
        let rate = Rate::per_minute(10);
        let month = Window::Calendar(Calendar::Month, UtcOffset::UTC);
        let limits = [
            numbered_limit(1, TokenBucket::builder(rate).build().unwrap()),
            numbered_limit(2, LeakyBucket::queue(rate).burst(3).build().unwrap()),
            numbered_limit(
                3,
                FixedWindow::builder(5, Window::Epoch(Nanos::HOUR))
                    .build()
                    .unwrap(),
            ),
            numbered_limit(4, FixedWindow::builder(5, month).build().unwrap()),
            numbered_limit(5, SlidingLog::builder(5, Nanos::MINUTE).build().unwrap()),
            numbered_limit(
                600,
                SlidingCounter::builder(5, Nanos::MINUTE).build().unwrap(),
            ),
        ];
        for (number, limit) in limits.iter().enumerate() {
            let answer = decide_one(&store, "alice", limit, Op::Spend(2))
                .await
                .unwrap();
            assert_eq!(answer.outcome, Outcome::Allow);
            let reserve = Op::Reserve {
                id: ReservationId(number as u128),
                cost: 1,
                hold: Nanos::MINUTE,
            };
            decide_one(&store, "alice", limit, reserve).await.unwrap();
        }
        let at_once = numbered_limit(6_000, Concurrency::new(2, Nanos::from_secs(30)).unwrap());
        let id = LeaseId(1);
        let acquire = Op::Acquire { id, weight: 1 };
        decide_one(&store, "alice", &at_once, acquire)
            .await
            .unwrap();
        let mut connection = connection(&server);
        let names: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
        assert_eq!(names.len(), 13, "{names:?}");
        for name in names {
            let left: i64 = redis::cmd("PTTL")
                .arg(&name)
                .query(&mut connection)
                .unwrap();
            assert!(left > 0, "{name} lives for {left}");
            assert!(left < 32 * 86_400_000, "{name} lives for {left}");
        }
    }
}

#[tokio::test]
async fn i15_a_full_bucket_is_an_absent_key() {
    let server = RedisServer::start(ServerProgram::Redis);
    let store = long_timeout_store(server.url()).await;
    let limit = numbered_limit(
        1,
        TokenBucket::builder(Rate::per_second(50))
            .burst(2)
            .build()
            .unwrap(),
    );
    let answer = decide_one(&store, "alice", &limit, Op::Spend(2))
        .await
        .unwrap();
    assert_eq!(answer.status.remaining, 0);
    let mut connection = connection(&server);
    // At most the refill time of 40 ms, rounded up.
    let (name,): (String,) = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    let left: i64 = redis::cmd("PTTL")
        .arg(&name)
        .query(&mut connection)
        .unwrap();
    assert!(left <= 41, "{left}");
    let mut exists = true;
    while exists {
        exists = redis::cmd("EXISTS")
            .arg(&name)
            .query(&mut connection)
            .unwrap();
    }
    let answer = decide_one(&store, "alice", &limit, Op::Spend(2))
        .await
        .unwrap();
    assert_eq!(answer.outcome, Outcome::Allow);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i01_sixty_four_tasks_on_two_clients_admit_exactly_the_limit() {
    for kind in [ServerProgram::Redis, ServerProgram::NewValkey] {
        let server = RedisServer::start(kind);
        let stores = [
            Arc::new(long_timeout_store(server.url()).await),
            Arc::new(long_timeout_store(server.url()).await),
        ];
        let limit = numbered_limit(1, slow_bucket(500));
        let mut tasks = JoinSet::new();
        for number in 0..64 {
            let store = Arc::clone(&stores[number % 2]);
            tasks.spawn(async move {
                let mut admitted = 0;
                for _ in 0..20 {
                    let answer = decide_one(&store, "everyone", &limit, Op::Spend(1))
                        .await
                        .unwrap();
                    admitted += u64::from(answer.outcome.is_admitted());
                }
                admitted
            });
        }
        let admitted: u64 = tasks.join_all().await.into_iter().sum();
        assert_eq!(admitted, 500, "of 1,280 requests, on {kind:?}");
    }
}

#[tokio::test]
async fn s_12_a_flushed_script_is_loaded_within_the_decision() {
    for kind in ServerProgram::under_test() {
        let server = RedisServer::start(kind);
        let store = long_timeout_store(server.url()).await;
        let limits = [
            numbered_limit(1, slow_bucket(100)),
            numbered_limit(2, SlidingCounter::builder(100, Nanos::DAY).build().unwrap()),
        ];
        let mut connection = connection(&server);
        for round in 1..=10 {
            let flush = redis::cmd("SCRIPT")
                .arg("FLUSH")
                .query::<()>(&mut connection);
            flush.unwrap();
            for limit in &limits {
                let answer = decide_one(&store, "alice", limit, Op::Spend(1))
                    .await
                    .unwrap();
                assert_eq!(answer.status.remaining, 100 - round, "charged exactly once");
            }
        }
    }
}

#[tokio::test]
async fn s_31_a_state_that_cannot_be_read_counts_as_absent_and_is_rewritten() {
    let server = RedisServer::start(ServerProgram::Redis);
    let store = long_timeout_store(server.url()).await;
    let mut connection = connection(&server);
    let limits = [
        numbered_limit(1, slow_bucket(2)),
        numbered_limit(
            1,
            FixedWindow::builder(2, Window::Epoch(Nanos::DAY))
                .build()
                .unwrap(),
        ),
        numbered_limit(1, SlidingCounter::builder(2, Nanos::DAY).build().unwrap()),
        numbered_limit(1, SlidingLog::builder(2, Nanos::DAY).build().unwrap()),
    ];
    for limit in &limits {
        // An overflowing number, one that Lua would round, other algorithms' states, and noise.
        let states: [&[u8]; 11] = [
            b"99999999999999999999",
            b"1e17",
            b"-5",
            b"",
            b"f\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            b"l\0\0\0\0\0\x01x",
            b"c\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            // Counters with an empty window, a window shorter than its tick, and a tick beyond any time.
            b"c\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0\0\0\0\0\0\0\0",
            b"c\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0\0\x01\0\0\0\0\x0a",
            b"c\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\0\0\xff",
            b"hello",
        ];
        for state in states {
            decide_one(&store, "alice", limit, Op::Spend(1))
                .await
                .unwrap();
            let (name,): (String,) = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
            let set = redis::cmd("SET")
                .arg(&name)
                .arg(state)
                .query::<()>(&mut connection);
            set.unwrap();
            let before = store.corrupt_states();
            let answer = decide_one(&store, "alice", limit, Op::Spend(1))
                .await
                .unwrap();
            assert_eq!(
                (answer.outcome, answer.status.remaining),
                (Outcome::Allow, 1),
                "{state:?} under {limit:?}"
            );
            assert_eq!(store.corrupt_states(), before + 1);
            let left: i64 = redis::cmd("PTTL")
                .arg(&name)
                .query(&mut connection)
                .unwrap();
            assert!(left > 0);
            let deleted = redis::cmd("DEL").arg(&name).query::<()>(&mut connection);
            deleted.unwrap();
        }
    }
}

#[tokio::test]
async fn s_31_a_key_of_another_type_is_overwritten_and_a_state_far_ahead_is_corrected() {
    let server = RedisServer::start(ServerProgram::Redis);
    let store = long_timeout_store(server.url()).await;
    let mut connection = connection(&server);
    let limit = numbered_limit(1, slow_bucket(2));
    decide_one(&store, "alice", &limit, Op::Spend(1))
        .await
        .unwrap();
    let (name,): (String,) = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    let mut replace = redis::pipe();
    replace
        .cmd("DEL")
        .arg(&name)
        .cmd("RPUSH")
        .arg(&name)
        .arg("x");
    replace.query::<()>(&mut connection).unwrap();
    let answer = decide_one(&store, "alice", &limit, Op::Spend(1))
        .await
        .unwrap();
    assert_eq!(answer.status.remaining, 1);
    let ahead = redis::cmd("SET")
        .arg(&name)
        .arg("9223372036854775807")
        .query::<()>(&mut connection);
    ahead.unwrap();
    let denied = decide_one(&store, "alice", &limit, Op::Spend(1))
        .await
        .unwrap();
    let two_days = Nanos::from_secs(2 * 86_400);
    assert_eq!(denied.status.reset_after, two_days);
    let stored: String = redis::cmd("GET").arg(&name).query(&mut connection).unwrap();
    assert!(
        stored.len() == 19 && *stored < *"9",
        "{stored} was written back"
    );
}

#[tokio::test]
async fn reservations_are_settled_once_on_the_servers_clock() {
    let server = RedisServer::start(ServerProgram::Redis);
    let store = long_timeout_store(server.url()).await;
    let limit = numbered_limit(1, slow_bucket(1_000));
    let id = ReservationId(7);
    let reserve = Op::Reserve {
        id,
        cost: 800,
        hold: Nanos::HOUR,
    };
    let first = decide_one(&store, "alice", &limit, reserve).await.unwrap();
    assert_eq!((first.status.remaining, first.receipt.cost), (200, 800));
    let again = decide_one(&store, "alice", &limit, reserve).await.unwrap();
    assert_eq!(again.note, ReplyNote::AlreadyReserved);
    assert_eq!(
        (again.status.remaining, again.receipt),
        (200, first.receipt)
    );
    let settle = Op::SettleReserved { id, actual: 300 };
    let settled = decide_one(&store, "alice", &limit, settle).await.unwrap();
    assert_eq!(
        (settled.note, settled.status.remaining),
        (ReplyNote::Plain, 700),
        "the refill was not refunded again"
    );
    let again = decide_one(&store, "alice", &limit, Op::CancelReserved(id))
        .await
        .unwrap();
    assert_eq!(
        (again.note, again.status.remaining),
        (ReplyNote::AlreadyClosed, 700)
    );
}

#[tokio::test]
async fn an_invalid_batch_is_the_callers_fault() {
    let server = RedisServer::start(ServerProgram::Redis);
    let store = long_timeout_store(server.url()).await;
    let limit = numbered_limit(1, slow_bucket(10));
    let check = QuotaCheck {
        key: StoreKey::new(b"alice").unwrap(),
        limit: &limit,
        op: Op::Spend(1),
    };
    let twice = store.decide(&[check, check], &mut [BLANK; 2]).await;
    assert_eq!(twice.unwrap_err().kind(), StoreErrorKind::BadRequest);
    let missing = store.decide(&[check], &mut []).await;
    assert_eq!(missing.unwrap_err().kind(), StoreErrorKind::BadRequest);
    let lease = decide_one(&store, "alice", &limit, Op::Release(LeaseId(1))).await;
    assert_eq!(lease.unwrap_err().kind(), StoreErrorKind::BadRequest);
    let status = decide_one(&store, "alice", &limit, Op::Spend(0))
        .await
        .unwrap()
        .status;
    assert_eq!(status.remaining, 10, "nothing was charged");
}
