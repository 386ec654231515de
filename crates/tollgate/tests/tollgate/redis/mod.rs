//! Limiters over a real Redis. Tests do not sleep: they poll until a deadline.

mod concurrency;
mod layer;
mod limit_ids;
mod memory_parity;
mod operations;
mod outages;
mod shared_quota;
mod wait;

use std::time::Duration;

use tollgate::redis::{KeyHashSecret, Redis, RedisOptions};
use tollgate_testkit::redis::{RedisServer, ServerProgram};

/// Longer than any step takes on a busy machine.
const LONG: Duration = Duration::from_secs(20);

fn options(address: impl Into<String>) -> RedisOptions {
    let mut options = RedisOptions::new(address, KeyHashSecret::new(*b"tests of a limit"));
    options.deadline = LONG;
    options.connect_deadline = LONG;
    options
}

/// A new server and a connection to it.
async fn server() -> (RedisServer, Redis) {
    let server = RedisServer::start(ServerProgram::Redis);
    let redis = another(&server).await;
    (server, redis)
}

/// Another connection, as of another process.
async fn another(server: &RedisServer) -> Redis {
    let redis = Redis::connect(options(server.url())).await.unwrap();
    eventually(async || redis.is_connected()).await;
    redis
}

/// Polls until the condition holds.
async fn eventually(mut is_so: impl AsyncFnMut() -> bool) {
    let asking = async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, asking).await.unwrap();
}
