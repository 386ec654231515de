//! Costs and counts that depend on the response.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use tower::{ServiceExt as _, service_fn};
use tower_layer::Layer as _;

use super::support::{TestLayer, field, get, layer};

/// The response of a service that answers with the status, the header `x-tokens` and so many bytes, as the path says:
/// `/200/7/100`.
async fn call(layer: &TestLayer, path: &str) -> (u16, Option<String>) {
    let inner = service_fn(|request: Request<()>| async move {
        let parts: Vec<&str> = request.uri().path().split('/').collect();
        let body = Bytes::from(vec![b'x'; parts[3].parse().unwrap()]);
        let response = Response::builder()
            .status(parts[1])
            .header("x-tokens", parts[2]);
        Ok::<_, Infallible>(response.body(Full::new(body)).unwrap())
    });
    let response = layer.layer(inner).oneshot(get(path)).await.unwrap();
    let answer = (
        response.status().as_u16(),
        field(&response, "ratelimit").map(ToOwned::to_owned),
    );
    response.into_body().collect().await.unwrap();
    answer
}

async fn status(layer: &TestLayer, path: &str) -> u16 {
    call(layer, path).await.0
}

#[tokio::test]
async fn a_header_of_the_response_settles_the_cost() {
    let policy =
        "limits: [{ name: tokens, rate: 10/h, cost: { response: x-tokens, estimate: 1 } }]";
    let (layer, _clock) = layer(policy);
    assert_eq!(status(&layer, "/200/9/0").await, 200);
    assert_eq!(status(&layer, "/200/1/0").await, 200);
    assert_eq!(status(&layer, "/200/1/0").await, 429, "10 are used");
}

#[tokio::test]
async fn the_bytes_of_the_body_settle_the_cost() {
    let policy = "limits: [{ name: traffic, unit: bytes, rate: 1kB/h, cost: { response_body: bytes, estimate: 1 } }]";
    let (layer, _clock) = layer(policy);
    assert_eq!(status(&layer, "/200/0/900").await, 200);
    assert_eq!(
        status(&layer, "/200/0/200").await,
        200,
        "100 bytes are left for the estimate"
    );
    assert_eq!(status(&layer, "/200/0/1").await, 429);
}

#[tokio::test]
async fn only_chosen_statuses_are_counted() {
    let policy = "limits: [{ name: failures, rate: 2/h, count: { responses: [401] } }]";
    let (layer, _clock) = layer(policy);
    for _ in 0..5 {
        assert_eq!(status(&layer, "/200/0/0").await, 200);
    }
    assert_eq!(status(&layer, "/401/0/0").await, 401);
    assert_eq!(status(&layer, "/401/0/0").await, 401);
    assert_eq!(status(&layer, "/401/0/0").await, 429);
}

#[tokio::test]
async fn a_failure_of_the_inner_service_is_refunded_where_the_policy_says_so() {
    let policy = "limits: [{ name: fair, rate: 2/h, refund: [5xx] }]";
    let (layer, _clock) = layer(policy);
    for _ in 0..5 {
        assert_eq!(status(&layer, "/503/0/0").await, 503);
    }
    let failing = service_fn(|_: Request<()>| async { Err::<Response<Full<Bytes>>, _>("failed") });
    for _ in 0..5 {
        assert!(layer.layer(failing).oneshot(get("/")).await.is_err());
    }
    assert_eq!(status(&layer, "/200/0/0").await, 200);
    assert_eq!(status(&layer, "/404/0/0").await, 404);
    assert_eq!(status(&layer, "/200/0/0").await, 429, "both were charged");
}

/// A client that left before the response got its estimate back, and could ask for ever.
#[tokio::test]
async fn a_client_that_leaves_before_the_response_pays_the_estimate() {
    let policy = "limits: [{ name: tokens, rate: 3/h, refund: [5xx], cost: { response: x-tokens, estimate: 1 } }]";
    let (layer, _clock) = layer(policy);
    let endless = service_fn(|_: Request<()>| {
        std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>()
    });
    for _ in 0..3 {
        let call = layer.layer(endless).oneshot(get("/"));
        assert!(
            tokio::time::timeout(std::time::Duration::ZERO, call)
                .await
                .is_err()
        );
    }
    assert_eq!(status(&layer, "/200/1/0").await, 429);
}
