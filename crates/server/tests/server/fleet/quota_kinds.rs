//! Every kind of quota decides alike in memory and over Redis: windows from the first request, steps, initial units, blocks that grow,
//! one bucket with two bursts, and a second quota when the first is empty.

use std::net::SocketAddr;
use std::sync::Arc;

use tollgate_server::{HttpApi, HttpLimits, Secret};
use tollgate_store::SystemClock;
use tollgate_testkit::redis::{RedisNode, ServerProgram};

use super::start_server;
use crate::harness::{HttpClient, policy};
use crate::running_server::RunningServer;

/// Periods are days long, so that a slow machine changes no decision.
const POLICY: &str = "
limits:
  - { name: first, match: { path: /first }, key: header.x-user, rate: 3/10d, algorithm: fixed_window, window: first_hit }
  - { name: steps, match: { path: /steps }, key: header.x-user, rate: 4/1000d, burst: 6, refill: interval }
  - { name: initial, match: { path: /initial }, key: header.x-user, rate: 10/10d, initial: 2 }
  - { name: empty, match: { path: /empty }, key: header.x-user, rate: 10/10d, initial: 0 }
  - { name: abuse, match: { path: /abuse }, key: header.x-user, rate: 2/10d, penalty: 'block 10m, 1h' }
  - { name: reads, bucket: items, match: { method: GET, path: /items }, key: header.x-user, rate: 9/10d, burst: 7 }
  - { name: writes, bucket: items, match: { method: POST, path: /items }, key: header.x-user, rate: 9/10d, burst: 3 }
  - { name: plan, match: { path: /plan }, key: header.x-user, rate: 2/20d, spillover: 3/12d }
  - { name: credits, match: { path: /credits }, key: header.x-user, rate: 1/3d, cost: 1, spillover: { rate: 4/1000d, algorithm: sliding_log } }
";

/// The statuses of eight requests with the quota that decided each, and what the last denial says about waiting, in hours.
async fn trace(
    servers: &[SocketAddr],
    method: &str,
    path: &str,
) -> (Vec<(u16, String)>, Option<u64>) {
    let body = format!(
        r#"{{"attributes": {{"method": "{method}", "path": "{path}", "header.x-user": "ada"}}}}"#
    );
    let (mut statuses, mut hours) = (Vec::new(), None);
    for server in servers.iter().cycle().take(8) {
        let reply = HttpClient::to(*server).await.post("/v1/check", &body).await;
        let part = reply.json()["limits"][0]["part"].to_string();
        statuses.push((reply.status, part));
        let seconds = reply.json()["retry_after_ms"].as_u64().map(|ms| ms / 1_000);
        hours = seconds.map(|seconds| seconds.div_ceil(3_600)).or(hours);
    }
    (statuses, hours)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_quota_decides_alike_in_memory_and_over_redis() {
    let redis = RedisNode::start(ServerProgram::Redis, &[]);
    let (one, other) = (
        start_server(&redis.url(), POLICY).await,
        start_server(&redis.url(), POLICY).await,
    );
    let fleet = [one.http.address, other.http.address];
    let secret = Secret::from_shared_text(b"the fleet's own secret").unwrap();
    let alone = HttpApi::new_with_secret(&policy(POLICY), 1_000, SystemClock::new(), secret);
    let alone = Arc::new(alone.unwrap());
    let alone =
        RunningServer::start(|listener, end| alone.run(listener, HttpLimits::default(), end)).await;
    for (method, path, admitted) in [
        ("GET", "/first", 3),
        ("GET", "/steps", 6),
        ("GET", "/initial", 2),
        ("GET", "/empty", 0),
        ("GET", "/abuse", 2),
        ("POST", "/items", 3),
        ("GET", "/items", 4),
        ("GET", "/plan", 5),
        ("GET", "/credits", 5),
    ] {
        let in_memory = trace(&[alone.address], method, path).await;
        let over_redis = trace(&fleet, method, path).await;
        assert_eq!(in_memory, over_redis, "{method} {path}");
        let allowed = in_memory
            .0
            .iter()
            .filter(|(status, _)| *status == 200)
            .count();
        assert_eq!(allowed, admitted, "{method} {path}: {in_memory:?}");
        assert!(
            in_memory.1.is_some(),
            "{method} {path} says how long to wait"
        );
    }
}
