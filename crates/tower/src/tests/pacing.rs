//! Requests that wait for their turn.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Request;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, advance};
use tollgate_service::{
    ManualClock, PolicyFormat, RateLimitService, Secret, Timestamp, load_policy,
};
use tower::{ServiceExt as _, service_fn};
use tower_layer::Layer as _;

use super::support::{get, layer, text};
use crate::TollgateLayer;

const PACED: &str = "limits: [{ name: paced, key: header.x-user, rate: 1/s, burst: 1, wait: 3s }]";

fn by(user: &str) -> Request<()> {
    Request::get("/").header("x-user", user).body(()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn requests_of_one_key_wait_in_their_order_and_those_of_others_do_not() {
    let (layer, _clock) = layer(PACED);
    let begun = Instant::now();
    let order = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&order);
    let service = layer.layer(service_fn(move |request: Request<()>| {
        let user = request.headers()["x-user"].to_str().unwrap().to_owned();
        log.lock().unwrap().push((user, begun.elapsed().as_secs()));
        async { Ok::<_, Infallible>(text("")) }
    }));
    let mut requests = JoinSet::new();
    for user in ["a", "a", "a", "a", "a", "b"] {
        requests.spawn(service.clone().oneshot(by(user)));
    }
    let mut statuses = Vec::new();
    while let Some(response) = requests.join_next().await {
        statuses.push(response.unwrap().unwrap().status().as_u16());
    }
    statuses.sort_unstable();
    assert_eq!(
        statuses,
        [200, 200, 200, 200, 200, 429],
        "a wait is bounded"
    );
    let at = |user: &str, second| (user.to_owned(), second);
    let order = order.lock().unwrap().clone();
    let expected = [at("a", 0), at("b", 0), at("a", 1), at("a", 2), at("a", 3)];
    assert_eq!(order, expected);
    assert_eq!(layer.rate_limit_service().saturation().waiting(), 0);
}

/// A client that leaves while it waits gives its place back: the next one waits for it no longer.
#[tokio::test(start_paused = true)]
async fn a_cancelled_wait_gives_its_place_back() {
    let (layer, _clock) = layer(PACED);
    let service = layer.layer(service_fn(|_| async { Ok::<_, Infallible>(text("")) }));
    service.clone().oneshot(by("a")).await.unwrap();
    let mut waiting = JoinSet::new();
    waiting.spawn(service.clone().oneshot(by("a")));
    while layer.rate_limit_service().saturation().waiting() == 0 {
        tokio::task::yield_now().await;
    }
    advance(Duration::from_millis(10)).await;
    waiting.shutdown().await;
    assert_eq!(layer.rate_limit_service().saturation().waiting(), 0);
    let begun = Instant::now();
    service.clone().oneshot(by("a")).await.unwrap();
    let waited = begun.elapsed();
    assert!(waited < Duration::from_millis(1_100), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_cancelled_before_its_turn_is_not_charged_and_holds_no_permit() {
    let policy =
        "limits: [{ name: paced, rate: 1/s, burst: 1, wait: 3s }, { name: few, concurrency: 2 }]";
    let (layer, _clock) = layer(policy);
    let service = layer.layer(service_fn(|_| async { Ok::<_, Infallible>(text("")) }));
    drop(service.clone().oneshot(get("/")).await.unwrap());
    for _ in 0..5 {
        let mut waiting = JoinSet::new();
        waiting.spawn(service.clone().oneshot(get("/")));
        while layer.rate_limit_service().saturation().waiting() == 0 {
            tokio::task::yield_now().await;
        }
        waiting.shutdown().await;
    }
    let response = service.clone().oneshot(get("/")).await.unwrap();
    assert_eq!(response.status(), 200, "neither limit was used up");
}

const CROWDED: &str = "
limits:
  - { name: paced, key: header.x-user, rate: 1/s, burst: 1, wait: 3s, on_store_failure: open }
  - { name: few, key: header.x-tenant, concurrency: 1 }
";

/// Requests that are let through because nobody else can wait were charged to no limit: a client could fill the wait queue, and then no
/// limit held any more, that of concurrency included (I-14).
#[tokio::test(start_paused = true)]
async fn i14_a_full_wait_queue_that_lets_requests_through_charges_them_all_the_same() {
    let (clock, policy) = (
        Arc::new(ManualClock::at(Timestamp::from_secs(1_700_000_000))),
        load_policy(CROWDED, "policy", PolicyFormat::Yaml).unwrap(),
    );
    let service = RateLimitService::new(&policy, 1_000, clock, Secret::random()).unwrap();
    let service = Arc::new(service.with_max_waiting(1));
    let layer = TollgateLayer::builder().build_with_service(Arc::clone(&service));
    let ends = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&ends);
    let limited = layer.unwrap().layer(service_fn(move |_: Request<()>| {
        let held = Arc::clone(&held);
        async move {
            held.acquire().await.unwrap().forget();
            Ok::<_, Infallible>(text(""))
        }
    }));
    let mut requests = JoinSet::new();
    let mut send = |user: &str, tenant: &str| {
        let request = Request::get("/").header("x-user", user);
        let request = request.header("x-tenant", tenant).body(()).unwrap();
        let response = limited.clone().oneshot(request);
        requests.spawn(async move { response.await.unwrap().status().as_u16() });
    };
    // One request waits, so the queue is full.
    send("a", "other-1");
    send("a", "other-2");
    while service.saturation().waiting() == 0 {
        yield_now().await;
    }
    send("b", "other-3");
    send("b", "tenant");
    send("b", "tenant");
    for _ in 0..100 {
        yield_now().await;
    }
    assert_eq!(service.saturation().let_through(), 1);
    assert_eq!(service.held_permits().0, 3, "one for each tenant at work");
    ends.add_permits(100);
    let mut statuses = Vec::new();
    while let Some(status) = requests.join_next().await {
        statuses.push(status.unwrap());
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 200, 200, 429]);
}
