//! Quota leases as they are used: on the server's clock, by several nodes, with corrupt states.

use std::sync::Arc;

use tokio::task::JoinSet;
use tollgate_core::{FixedWindow, LeakyBucket, Nanos, Outcome, Rate, TokenBucket, Window};
use tollgate_redis::RedisStore;
use tollgate_store::quota_lease::{LeaseGrant, LeaseReport, LeaseRequest, LeaseSpec, QuotaLeaseId};
use tollgate_store::{IdentifiedLimit, StoreError, StoreErrorKind, StoreKey};
use tollgate_testkit::redis::{RedisServer, ServerProgram};

use crate::server_time::{connection, long_timeout_store, numbered_limit, slow_bucket};

pub(crate) fn want(id: u128, most: u64) -> LeaseRequest<'static> {
    LeaseRequest {
        lease: Some(LeaseSpec {
            id: QuotaLeaseId(id),
            min_units: 1,
            max_units: most,
            duration: Nanos::from_secs(60),
        }),
        ..LeaseRequest::default()
    }
}

async fn lend(
    store: &RedisStore,
    key: &str,
    limit: &IdentifiedLimit,
    request: &LeaseRequest<'_>,
) -> Result<LeaseGrant, StoreError> {
    let key = StoreKey::new(key.as_bytes()).unwrap();
    store.grant_lease(None, key, limit, request).await
}

#[tokio::test]
async fn i15_a_leased_bucket_lives_until_every_lease_has_expired_and_refilled() {
    for kind in ServerProgram::under_test() {
        let server = RedisServer::start(kind);
        let store = long_timeout_store(server.url()).await;
        let bucket = TokenBucket::builder(Rate::per_second(1)).burst(10).build();
        let limits = [
            numbered_limit(1, bucket.unwrap()),
            numbered_limit(
                2,
                LeakyBucket::meter(Rate::per_second(1))
                    .burst(9)
                    .build()
                    .unwrap(),
            ),
        ];
        let mut connection = connection(&server);
        for limit in &limits {
            let grant = lend(&store, "alice", limit, &want(1, 4)).await.unwrap();
            assert_eq!((grant.units, grant.status.remaining), (4, 6));
            assert_eq!(grant.duration, Nanos::from_secs(60));
            let names: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
            let (name,) = (names.first().unwrap(),);
            assert!(name.contains('~'), "{names:?}");
            let mut ttl = redis::cmd("PTTL");
            let left: i64 = ttl.arg(name).query(&mut connection).unwrap();
            assert!((60_000..=64_000).contains(&left), "{left}");
            let report = LeaseReport {
                id: QuotaLeaseId(1),
                spent: 1,
                last_spend_age: Nanos::ZERO,
                is_last: true,
            };
            let request = LeaseRequest {
                reports: &[report],
                ..LeaseRequest::default()
            };
            let grant = lend(&store, "alice", limit, &request).await.unwrap();
            assert_eq!((grant.units, grant.status.remaining), (0, 9));
            let left: i64 = ttl.query(&mut connection).unwrap();
            assert!(left <= 1_000, "{left}");
            redis::cmd("FLUSHALL").query::<()>(&mut connection).unwrap();
        }
    }
}

#[tokio::test]
async fn an_empty_request_to_a_full_bucket_leaves_no_key() {
    let server = RedisServer::start(ServerProgram::Redis);
    let store = long_timeout_store(server.url()).await;
    let limit = numbered_limit(1, slow_bucket(5));
    let grant = lend(&store, "alice", &limit, &LeaseRequest::default()).await;
    assert_eq!(grant.unwrap().status.remaining, 5);
    let mut connection = connection(&server);
    let keys: u64 = redis::cmd("DBSIZE").query(&mut connection).unwrap();
    assert_eq!(keys, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_and_direct_spends_together_are_the_limit() {
    let server = RedisServer::start(ServerProgram::Redis);
    let stores = [
        Arc::new(long_timeout_store(server.url()).await),
        Arc::new(long_timeout_store(server.url()).await),
    ];
    let limit = numbered_limit(1, slow_bucket(500));
    let mut tasks = JoinSet::new();
    for number in 0_u128..16 {
        let store = Arc::clone(&stores[usize::try_from(number % 2).unwrap()]);
        tasks.spawn(async move {
            let mut units = 0;
            for round in 0_u128..10 {
                let request = match round % 2 {
                    0 => want(number * 100 + round, 7),
                    _ => LeaseRequest {
                        direct_cost: 3,
                        ..LeaseRequest::default()
                    },
                };
                let grant = lend(&store, "everyone", &limit, &request).await.unwrap();
                units += grant.units;
                if request.direct_cost > 0 && grant.direct_outcome == Outcome::Allow {
                    units += request.direct_cost;
                }
            }
            units
        });
    }
    let units: u64 = tasks.join_all().await.into_iter().sum();
    assert!((498..=500).contains(&units), "{units}");
}

#[tokio::test]
async fn s_31_a_leased_bucket_that_cannot_be_read_counts_as_absent_and_is_rewritten() {
    let server = RedisServer::start(ServerProgram::Redis);
    let store = long_timeout_store(server.url()).await;
    let mut connection = connection(&server);
    let limit = numbered_limit(1, slow_bucket(5));
    let record = [&b"b"[..], &[0; 9], &[0xff; 52]].concat();
    let states: [&[u8]; 6] = [b"", b"b", b"17", b"hello", &[0xff; 10], &record];
    for state in states {
        lend(&store, "alice", &limit, &want(1, 2)).await.unwrap();
        let (name,): (String,) = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
        let mut set = redis::cmd("SET");
        set.arg(&name)
            .arg(state)
            .query::<()>(&mut connection)
            .unwrap();
        let before = store.corrupt_states();
        let grant = lend(&store, "alice", &limit, &want(2, 2)).await.unwrap();
        assert_eq!((grant.units, grant.status.remaining), (2, 3), "{state:?}");
        assert_eq!(store.corrupt_states(), before + 1);
        redis::cmd("FLUSHALL").query::<()>(&mut connection).unwrap();
    }
}

#[tokio::test]
async fn a_lease_on_an_unsupported_algorithm_is_the_callers_fault() {
    let server = RedisServer::start(ServerProgram::Redis);
    let store = long_timeout_store(server.url()).await;
    let queue = LeakyBucket::queue(Rate::per_second(1)).burst(3).build();
    let window = FixedWindow::builder(5, Window::Epoch(Nanos::HOUR)).build();
    for limit in [
        numbered_limit(1, queue.unwrap()),
        numbered_limit(1, window.unwrap()),
    ] {
        let error = lend(&store, "alice", &limit, &want(1, 1)).await;
        assert_eq!(error.unwrap_err().kind(), StoreErrorKind::BadRequest);
    }
}
