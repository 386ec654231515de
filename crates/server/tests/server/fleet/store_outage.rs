//! While the store is unavailable no client gets an error, and afterwards the store decides again.

use tokio::net::TcpListener;
use tollgate_testkit::redis::{RedisNode, RedisServer, ServerProgram};

use super::{degraded, start_server, wait_until};
use crate::grpc::OK;

const LIMITS: &str = "
limits:
  - { name: hundred, key: header.x-api-key, missing: skip, rate: 100/h }
  - { name: shut, key: header.x-shut, missing: skip, rate: 100/h, on_store_failure: closed }
  - { name: free, key: header.x-free, missing: skip, rate: 100/h, on_store_failure: open }
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_store_causes_no_errors_and_decides_again_after_its_restart() {
    let mut redis = RedisNode::start(
        ServerProgram::Redis,
        &["--appendonly", "yes", "--appendfsync", "always"],
    );
    let one = start_server(&redis.url(), LIMITS).await;
    for _ in 0..30 {
        let answer = one.check("alice").await;
        assert_eq!((answer.status, degraded(&answer).len()), (200, 0));
    }
    redis.kill();
    let mut statuses = [0_usize; 2];
    for _ in 0..100 {
        let answer = one.check("alice").await;
        assert_eq!(degraded(&answer), ["store"], "{}", answer.body);
        match answer.status {
            200 => statuses[0] += 1,
            429 => statuses[1] += 1,
            other => panic!("{other}: {}", answer.body),
        }
    }
    // Half of a hundred, thirty of which are spent as far as this node knows.
    assert!(statuses[0] > 0 && statuses[1] > 0, "{statuses:?}");
    assert!(statuses[0] <= 50, "{statuses:?}");
    let answer = one.should_rate_limit("carol").await.unwrap();
    assert_eq!(answer.overall, OK);
    let replies = one
        .send_commands(&["TG.CHECK header.x-api-key dora", "CL.THROTTLE k 9 1 60"])
        .await;
    assert!(replies.contains("allowed\r\n:1"), "{replies}");
    assert!(replies.contains("*5\r\n:0\r\n"), "{replies}");
    assert!(one.app.service().fleet().unwrap().is_degraded());
    redis.restart();
    wait_until("the store decides again", async || {
        degraded(&one.check("erin").await).is_empty()
    })
    .await;
    let looked = one
        .post("/v1/check", r#"{"key": "alice", "peek": true}"#)
        .await;
    let left = looked.json()["limits"][0]["remaining"].as_u64().unwrap();
    assert!(left <= 70, "what was admitted before is known: {left}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_limit_that_fails_closed_refuses_without_a_store_and_sends_retry_after() {
    let mut redis = RedisNode::start(ServerProgram::Redis, &[]);
    let one = start_server(&redis.url(), LIMITS).await;
    redis.kill();
    let shut = r#"{"attributes": {"header.x-shut": "a"}}"#;
    let answer = one.post("/v1/check", shut).await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.field("retry-after"), Some("1"));
    assert_eq!(
        answer.field("content-type"),
        Some("application/problem+json")
    );
    let free = one
        .post("/v1/check", r#"{"attributes": {"header.x-free": "a"}}"#)
        .await;
    assert_eq!(
        (free.status, degraded(&free)),
        (200, vec!["store".to_owned()])
    );
    assert_eq!(one.check("alice").await.status, 200);

    let request_for = |key| {
        let entry = crate::grpc::client::Descriptor::new(&[(key, "a")]);
        crate::grpc::client::request("edge", &[entry], 0)
    };
    let mut client = crate::grpc::client::Client::connect(one.grpc.address).await;
    let (code, message) = client.expect_error(&request_for("header.x-shut")).await;
    assert_eq!(code, 14, "unavailable: {message}");
    assert_eq!(
        client
            .should_rate_limit(&request_for("header.x-free"))
            .await
            .overall,
        OK
    );
    assert_eq!(
        client
            .should_rate_limit(&request_for("header.x-api-key"))
            .await
            .overall,
        OK
    );
    let json = r#"{"domain": "edge", "descriptors": [{"entries": [{"key": "header.x-shut", "value": "a"}]}]}"#;
    let answer = one.post("/json", json).await;
    assert_eq!(
        (answer.status, answer.field("retry-after")),
        (503, Some("1"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_starts_without_its_store_is_ready_and_recovers() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let one = start_server(&format!("redis://{address}"), LIMITS).await;
    let mut connection = crate::harness::HttpClient::to(one.http.address).await;
    assert_eq!(connection.get("/readyz").await.status, 200);
    let answer = one.check("alice").await;
    assert_eq!(
        (answer.status, degraded(&answer)),
        (200, vec!["store".to_owned()])
    );
    let redis = RedisServer::start_at(ServerProgram::Redis, address);
    wait_until("the store decides", async || {
        degraded(&one.check("alice").await).is_empty()
    })
    .await;
    drop(redis);
    wait_until("it is away again", async || {
        degraded(&one.check("alice").await) == ["store"]
    })
    .await;
    assert_eq!(connection.get("/readyz").await.status, 200);
}
