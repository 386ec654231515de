//! The cost of a request: set by the route, set by the request, or zero.

use super::harness::{EnvoyHarness, remaining};

const BOB: [(&str, &str); 1] = [("x-user", "bob")];

fn batch(points: &str) -> [(&str, &str); 2] {
    [("x-user", "bob"), ("x-points", points)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_route_has_its_cost_and_a_peek_costs_nothing() {
    let mut harness = EnvoyHarness::new().await;
    assert_eq!(harness.remaining_after("/points", &BOB).await, 20);
    assert_eq!(harness.remaining_after("/search", &BOB).await, 15);
    assert_eq!(harness.remaining_after("/search", &BOB).await, 10);
    assert_eq!(harness.remaining_after("/batch", &batch("7")).await, 3);
    for _ in 0..5 {
        assert_eq!(harness.remaining_after("/points", &BOB).await, 3);
    }
    assert_eq!(harness.remaining_after("/batch", &batch("3")).await, 0);
    assert_eq!(
        harness.remaining_after("/points", &BOB).await,
        0,
        "looking is still free"
    );
    let denied = harness.get("/search", &BOB).await;
    assert_eq!((denied.status, remaining(&denied)), (429, Some(0)));
    // As in envoyproxy/ratelimit, refused requests count too, and now a peek shows it.
    assert_eq!(harness.get("/points", &BOB).await.status, 429);
    assert_eq!(
        harness
            .remaining_after("/points", &[("x-user", "carol")])
            .await,
        20
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zero_hits_are_a_peek_and_any_large_number_is_refused() {
    let mut harness = EnvoyHarness::new().await;
    assert_eq!(harness.remaining_after("/batch", &batch("0")).await, 20);
    assert_eq!(harness.remaining_after("/batch", &batch("20")).await, 0);
    for points in ["21", "1000000000"] {
        let dave = [("x-user", points), ("x-points", points)];
        let denied = harness.get("/batch", &dave).await;
        assert_eq!(denied.status, 429, "{points}");
    }
}

/// The example warns about this: Envoy drops the limit and does not call the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cost_that_envoy_cannot_parse_disables_the_limit() {
    let mut harness = EnvoyHarness::new().await;
    for points in ["-4", "many", "4294967296", ""] {
        let allowed = harness.get("/batch", &batch(points)).await;
        assert_eq!(
            (allowed.status, remaining(&allowed)),
            (200, None),
            "{points}"
        );
    }
    assert_eq!(harness.remaining_after("/points", &BOB).await, 20);
}
