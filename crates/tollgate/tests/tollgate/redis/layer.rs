//! Tower layers that share their quotas over a real Redis, each built in one call.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::routing::get;
use tollgate::redis::{BuildOverRedis as _, InvalidSharedLayer, SharedLayerOptions};
use tollgate::tower::{LimitSpec, TollgateLayer};
use tollgate_testkit::redis::{RedisServer, ServerProgram};
use tower::ServiceExt as _;

use super::{LONG, eventually};

const SECRET: &str = "the same text in every process";

fn options(address: &str, secret: &str) -> SharedLayerOptions {
    let options = SharedLayerOptions::new(address, secret).unwrap();
    options.nodes(2.try_into().unwrap()).redis(|redis| {
        redis.deadline = LONG;
        redis.connect_deadline = LONG;
    })
}

/// A router as of one process.
async fn process(address: &str, secret: &str) -> Router {
    let builder = TollgateLayer::builder().limit(LimitSpec::rate("all", "10/h"));
    let layer = builder.build_over_redis(options(address, secret)).await;
    let layer = layer.unwrap();
    let service = layer.rate_limit_service();
    let fleet = service.fleet().expect("it has joined").clone();
    eventually(async || fleet.remote().is_connected()).await;
    Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(layer)
}

/// The statuses of so many requests, in turn to each of the processes.
async fn statuses(processes: &[&Router], count: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for process in processes.iter().cycle().take(count) {
        let request = Request::get("/").body(Body::empty()).unwrap();
        let response = (*process).clone().oneshot(request).await.unwrap();
        statuses.push(response.status().as_u16());
    }
    statuses
}

#[tokio::test]
async fn two_layers_over_redis_share_one_quota_exactly() {
    let server = RedisServer::start(ServerProgram::Redis);
    let (one, other) = (
        process(&server.url(), SECRET).await,
        process(&server.url(), SECRET).await,
    );
    let mut expected = vec![200; 10];
    expected.extend([429; 6]);
    assert_eq!(statuses(&[&one, &other], 16).await, expected);
    // The control: another secret means other states, so its quota is untouched.
    let stranger = process(&server.url(), "another text, of another program").await;
    assert_eq!(statuses(&[&stranger], 11).await.last(), Some(&429));
}

#[tokio::test]
async fn an_invalid_layer_or_address_is_an_error_that_says_why() {
    let builder = || TollgateLayer::builder().limit(LimitSpec::rate("all", "lots"));
    let error = builder().build_over_redis(options("redis://127.0.0.1", SECRET));
    let error = error.await.unwrap_err();
    assert!(matches!(error, InvalidSharedLayer::Layer(_)));
    assert!(error.to_string().contains("lots"), "{error}");
    let builder = TollgateLayer::builder().limit(LimitSpec::rate("all", "1/s"));
    let error = builder.build_over_redis(options("http://127.0.0.1", SECRET));
    let error = error.await.unwrap_err();
    assert!(matches!(error, InvalidSharedLayer::Store(_)));
}
