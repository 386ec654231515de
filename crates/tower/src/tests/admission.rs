//! Which requests reach the inner service, and what clients are told.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use axum::Router;
use axum::body::Body;
use axum::routing::get as route;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use tokio::task::JoinSet;
use tollgate_service::Nanos;
use tower::{Service as _, ServiceExt as _, service_fn};
use tower_layer::Layer as _;

use super::support::{ask, field, get, layer, ready, statuses, text};
use crate::{LimitSpec, TollgateLayer};

/// tower's own rate limit counts for each clone of a service, and axum clones it for each connection: a cap of 5 a second let
/// 1,500 concurrent requests through.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn clones_share_their_counts() {
    let (layer, _clock) = layer("limits: [{ name: all, rate: 5/s }]");
    let reached = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&reached);
    let handler = route(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        async { "hello" }
    });
    let app: Router = Router::new().route("/", handler).layer(layer);
    let mut requests = JoinSet::new();
    for _ in 0..1_500 {
        let request = Request::get("/").body(Body::empty()).unwrap();
        requests.spawn(app.clone().oneshot(request));
    }
    let mut admitted = 0;
    while let Some(response) = requests.join_next().await {
        match response.unwrap().unwrap().status() {
            StatusCode::OK => admitted += 1,
            other => assert_eq!(other, StatusCode::TOO_MANY_REQUESTS),
        }
    }
    assert_eq!((admitted, reached.load(Ordering::Relaxed)), (5, 5));
}

#[tokio::test]
async fn every_answer_has_fields_and_a_denial_says_when_to_retry() {
    let (layer, clock) = layer("limits: [{ name: all, rate: 2/min }]");
    let first = ask(&layer, get("/")).await;
    assert_eq!(first.status(), 200);
    assert_eq!(field(&first, "ratelimit-policy"), Some(r#""all";q=2;w=60"#));
    assert_eq!(field(&first, "ratelimit"), Some(r#""all";r=1;t=30"#));
    assert_eq!(field(&first, "retry-after"), None);
    assert_eq!(statuses(&layer, "/", 1).await, [200]);

    let denied = ask(&layer, get("/")).await;
    assert_eq!(denied.status(), 429);
    assert_eq!(field(&denied, "ratelimit"), Some(r#""all";r=0;t=30"#));
    assert_eq!(field(&denied, "retry-after"), Some("30"));
    assert_eq!(field(&denied, "cache-control"), Some("no-store"));
    assert_eq!(
        field(&denied, "content-type"),
        Some("application/problem+json")
    );
    let body = denied.into_body().collect().await.unwrap().to_bytes();
    let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(problem["status"], 429);
    assert_eq!(problem["violated-policies"], serde_json::json!(["all"]));

    clock.advance(Nanos::from_secs(30));
    assert_eq!(statuses(&layer, "/", 2).await, [200, 429], "as it was told");
}

#[tokio::test]
async fn fields_of_the_handler_stay() {
    let (layer, _clock) = layer("limits: [{ name: all, rate: 2/min }]");
    let inner = service_fn(|_: Request<()>| async {
        let mut response = text("");
        let headers = response.headers_mut();
        headers.insert("ratelimit", r#""upstream";r=7"#.parse().unwrap());
        Ok::<_, Infallible>(response)
    });
    let response = layer.layer(inner).oneshot(get("/")).await.unwrap();
    let lines: Vec<_> = response.headers().get_all("ratelimit").iter().collect();
    assert_eq!(lines, [r#""upstream";r=7"#, r#""all";r=1;t=30"#]);
}

#[tokio::test]
async fn limits_in_code_have_the_fields_and_messages_of_a_file() {
    let limits = TollgateLayer::builder()
        .limit(
            LimitSpec::rate("login", "1/min")
                .match_route("/login")
                .key("header.x-user"),
        )
        .limit(LimitSpec::rate("all", "3/min").burst(3));
    let service = service_fn(|_| async { Ok::<_, Infallible>(text("")) });
    let service = limits.build().unwrap().layer(service);
    let mut answers = Vec::new();
    for (path, user) in [
        ("/login", "a"),
        ("/login", "a"),
        ("/login", "b"),
        ("/", "a"),
        ("/", "a"),
    ] {
        let request = Request::get(path).header("x-user", user).body(()).unwrap();
        let response = service.clone().oneshot(request).await.unwrap();
        answers.push(response.status().as_u16());
    }
    assert_eq!(answers, [200, 429, 200, 200, 429]);

    let wrong = LimitSpec::rate("login", "1/min").field("algoritm", "fixed_window".into());
    let error = TollgateLayer::builder().limit(wrong).build().unwrap_err();
    assert!(
        error.to_string().contains("did you mean `algorithm`"),
        "{error}"
    );
    // A `main` that returns the error shows it with `Debug`, which was one line of nested structs.
    assert_eq!(format!("{error:?}"), error.to_string());
    let none = TollgateLayer::builder().build().unwrap_err().to_string();
    assert!(none.contains("limits"), "{none}");
}

#[tokio::test]
async fn a_policy_file_is_loaded_again() {
    let path = std::env::temp_dir().join(format!("tollgate-tower-{}.yaml", std::process::id()));
    std::fs::write(&path, "limits: [{ name: all, rate: 1/h }]").unwrap();
    let layer = TollgateLayer::from_file(&path).unwrap();
    let service = service_fn(|_| async { Ok::<_, Infallible>(text("")) });
    let service = layer.layer(service);
    let status = async || service.clone().oneshot(get("/")).await.unwrap().status();
    assert_eq!(status().await, 200);
    assert_eq!(status().await, 429);
    std::fs::write(&path, "limits: [{ name: other, rate: 1/h }]").unwrap();
    // The watcher's thread would do so after its settle time.
    let reloader = layer.rate_limit_service().reloader().unwrap();
    reloader.reload_if_changed();
    assert_eq!(status().await, 200);
    std::fs::remove_file(&path).unwrap();
}

/// A layer that says it is ready whatever the inner service says makes `Buffer`, `LoadShed` and load balancers useless.
#[tokio::test]
async fn readiness_and_errors_are_those_of_the_inner_service() {
    #[derive(Clone, Default)]
    struct Busy {
        is_ready: bool,
    }
    impl tower::Service<Request<()>> for Busy {
        type Response = Response<http_body_util::Full<bytes::Bytes>>;
        type Error = &'static str;
        type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

        fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), Self::Error>> {
            match std::mem::replace(&mut self.is_ready, true) {
                true => Poll::Ready(Ok(())),
                false => Poll::Pending,
            }
        }

        fn call(&mut self, _: Request<()>) -> Self::Future {
            assert!(self.is_ready, "a service that is not ready was called");
            std::future::ready(Err("the inner error"))
        }
    }
    let (layer, _clock) = layer("limits: [{ name: all, rate: 5/s }]");
    let mut service = layer.layer(Busy::default());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(service.poll_ready(&mut context).is_pending());
    let called = ready(&mut service).await.call(get("/")).await;
    assert_eq!(called.unwrap_err(), "the inner error");
}
