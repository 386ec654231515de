//! Clients of a fleet's server that leave while they wait: the places that Redis keeps are given back.

use std::sync::Arc;

use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;
use tollgate_server::HttpLimits;
use tollgate_service::RateLimitService;
use tollgate_service::fleet::FleetMaintenance;
use tollgate_store::SystemClock;
use tollgate_testkit::redis::{RedisNode, ServerProgram};

use super::{DEADLINE, start_server};
use crate::abandoned_waits::{WaitingClients, told_wait};

const HOUR_MS: u64 = 3_600_000;
/// Fewer than over memory: each takes calls to Redis.
const CLIENTS: usize = 100;

/// The attack of 500 abandoned waits, over Redis. The wait that the next client is told on either server is at most the time
/// until the next unit, an hour; with the places of the others it would be a hundred.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_leave_give_their_places_in_redis_back() {
    let text = "limits: [{ name: slow, key: header.x-api-key, rate: 1/h, wait: 1000h }]";
    let redis = RedisNode::start(ServerProgram::Redis, &[]);
    let (one, other) = (
        start_server(&redis.url(), text).await,
        start_server(&redis.url(), text).await,
    );
    let mut background = JoinSet::new();
    let service = Arc::<RateLimitService<SystemClock>>::clone(one.app.service());
    background.spawn(Arc::new(FleetMaintenance::new(service)).run());
    let mut clients = WaitingClients::start(&one.app, CLIENTS, HttpLimits::default()).await;
    assert!(told_wait(&other.app).await > 99 * HOUR_MS);
    for _ in 0..CLIENTS {
        clients.leave(0).await;
    }
    let given_back = async {
        while told_wait(&other.app).await > HOUR_MS {
            yield_now().await;
        }
    };
    timeout(DEADLINE, given_back)
        .await
        .expect("places come back");
    // Nothing more came back than was taken: the unit of the first request is still used.
    assert!(told_wait(&one.app).await > 0);
}
