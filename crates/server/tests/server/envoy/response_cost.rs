//! Costs that are known only after the response: charged or refunded then.

use super::harness::{EnvoyHarness, TO_THE_DAY, TO_THE_HOUR, remaining};

const BOB: [(&str, &str); 1] = [("x-user", "bob")];

fn using(tokens: &str) -> [(&str, &str); 2] {
    [("x-user", "bob"), ("say-x-tokens-used", tokens)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_usage_of_a_response_is_charged_when_it_is_over() {
    let mut harness = EnvoyHarness::new().await;
    assert_eq!(harness.remaining_after("/chat", &using("300")).await, 1_000);
    harness.wait_for_calls(2);
    assert_eq!(harness.remaining_after("/chat", &using("699")).await, 700);
    harness.wait_for_calls(4);
    // One token is left, so a response of any length is paid for afterwards.
    assert_eq!(harness.remaining_after("/chat", &using("500")).await, 1);
    harness.wait_for_calls(6);
    let denied = harness.get("/chat", &using("1")).await;
    assert_eq!((denied.status, remaining(&denied)), (429, Some(0)));
    assert_eq!(denied.field("retry-after"), Some(&*TO_THE_DAY.to_string()));
    // A response without token usage is reported once and charged nothing.
    assert_eq!(
        harness
            .remaining_after("/chat", &[("x-user", "carol")])
            .await,
        1_000
    );
    assert_eq!(
        harness
            .remaining_after("/chat", &[("x-user", "carol")])
            .await,
        1_000
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_free_response_is_refunded_when_it_is_over() {
    let mut harness = EnvoyHarness::new().await;
    let cached = [("x-user", "bob"), ("say-x-cached", "1")];
    for round in 1..=4 {
        assert_eq!(harness.remaining_after("/download", &cached).await, 1);
        harness.wait_for_calls(2 * round);
    }
    assert_eq!(harness.remaining_after("/download", &BOB).await, 1);
    assert_eq!(harness.remaining_after("/download", &BOB).await, 0);
    let denied = harness.get("/download", &BOB).await;
    assert_eq!(denied.status, 429);
    assert_eq!(denied.field("retry-after"), Some(&*TO_THE_HOUR.to_string()));
    // A refund of more than was charged leaves no more than the limit.
    let generous = [("x-user", "carol"), ("say-x-cached", "100")];
    assert_eq!(harness.remaining_after("/download", &generous).await, 1);
    harness.wait_for_calls(13);
    let carol = [("x-user", "carol")];
    assert_eq!(harness.remaining_after("/download", &carol).await, 1);
    assert_eq!(harness.remaining_after("/download", &carol).await, 0);
    assert_eq!(harness.get("/download", &carol).await.status, 429);
}
