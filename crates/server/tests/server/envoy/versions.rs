//! The oldest supported Envoy, with the same example without the features that it lacks.

use tollgate_testkit::envoy::Version;

use super::harness::{ENVOY, EnvoyHarness, LIMITS, TO_THE_HOUR, remaining};

const BOB: [(&str, &str); 1] = [("x-user", "bob")];

/// The changes that the example documents for older versions.
fn before_1_38() -> String {
    let kept = ENVOY
        .lines()
        .filter(|line| !line.ends_with("# from 1.38 on"));
    kept.flat_map(|line| [line, "\n"]).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn envoy_1_36_behaves_as_1_40_does() {
    let older = before_1_38();
    assert_eq!(ENVOY.lines().count() - older.lines().count(), 3);
    let mut harness = EnvoyHarness::with_config(Version::V1_36, &older, LIMITS).await;
    for left in [2, 1, 0] {
        assert_eq!(harness.remaining_after("/api", &BOB).await, left);
    }
    let denied = harness.get("/api", &BOB).await;
    assert_eq!((denied.status, remaining(&denied)), (429, Some(0)));
    let until = TO_THE_HOUR.to_string();
    assert_eq!(denied.field("x-ratelimit-reset"), Some(&*until));
    assert_eq!(denied.field("retry-after"), Some(&*until));

    assert_eq!(harness.remaining_after("/search", &BOB).await, 15);
    assert_eq!(
        harness.remaining_after("/points", &BOB).await,
        15,
        "looking costs nothing"
    );
    let calls = harness
        .envoy
        .counted("cluster.tollgate.upstream_rq_completed");
    let using = [("x-user", "bob"), ("say-x-tokens-used", "400")];
    assert_eq!(harness.remaining_after("/chat", &using).await, 1_000);
    harness.wait_for_calls(calls + 2);
    assert_eq!(harness.remaining_after("/chat", &BOB).await, 600);
    let rich = [("x-tenant", "acme"), ("x-tenant-limit", "5")];
    assert_eq!(harness.remaining_after("/tenant", &rich).await, 4);
}
