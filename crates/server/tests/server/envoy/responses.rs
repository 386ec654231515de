//! Admissions and refusals, with the header fields that clients get.

use tollgate_core::Nanos;
use tollgate_testkit::envoy::Version;

use super::harness::{ENVOY, EnvoyHarness, LIMITS, TO_THE_HOUR, remaining};

const BOB: [(&str, &str); 1] = [("x-user", "bob")];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_admitted_to_the_limit_and_then_get_429_with_its_fields() {
    let mut harness = EnvoyHarness::new().await;
    // The third version of the draft: the tightest limit first, then all limits.
    let limits = r#"3, 1000;w=60, 3;w=3600;name="per-user""#;
    for left in [2, 1, 0] {
        let allowed = harness.get("/api/orders", &BOB).await;
        assert_eq!((allowed.status, allowed.body.as_str()), (200, "fine\n"));
        assert_eq!(allowed.field("x-ratelimit-limit"), Some(limits));
        assert_eq!(remaining(&allowed), Some(left));
        assert_eq!(
            allowed.field("x-ratelimit-reset"),
            Some(&*TO_THE_HOUR.to_string())
        );
        assert_eq!(allowed.field("retry-after"), None);
        let says = r#"{"descriptors":[{"entries":["remote_address=127.0.0.1"]},{"entries":["user=bob"]}],"domain":"edge","metadata":{"plan":"free"}}"#;
        assert_eq!(allowed.field("x-limit-says"), Some(says));
        let ours = allowed.field("ratelimit").unwrap();
        assert!(ours.contains(&format!(r#""per-user";r={left}"#)), "{ours}");
    }
    let denied = harness.get("/api/orders", &BOB).await;
    assert_eq!(denied.status, 429);
    assert_eq!(harness.reached(), 3, "a refused request goes no further");
    assert_eq!(denied.field("x-envoy-ratelimited"), Some("true"));
    assert_eq!(denied.field("x-ratelimit-limit"), Some(limits));
    assert_eq!(remaining(&denied), Some(0));
    let until = TO_THE_HOUR.to_string();
    assert_eq!(denied.field("x-ratelimit-reset"), Some(&*until));
    assert_eq!(denied.field("retry-after"), Some(&*until));

    // Another user has their own quota.
    assert_eq!(
        harness
            .remaining_after("/api", &[("x-user", "carol")])
            .await,
        2
    );
    // A request is admitted when `Retry-After` says so, and not a second earlier.
    harness.clock.advance(Nanos::from_secs(TO_THE_HOUR - 1));
    let early = harness.get("/api", &BOB).await;
    assert_eq!((early.status, early.field("retry-after")), (429, Some("1")));
    harness.clock.advance(Nanos::from_secs(1));
    assert_eq!(harness.remaining_after("/api", &BOB).await, 2);
    assert_eq!(harness.envoy.counted("cluster.upstream.ratelimit.ok"), 5);
    assert_eq!(
        harness
            .envoy
            .counted("cluster.upstream.ratelimit.over_limit"),
        2
    );
    assert_eq!(harness.envoy.counted("cluster.upstream.ratelimit.error"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn routes_and_requests_without_a_limit_cause_no_call() {
    let mut harness = EnvoyHarness::new().await;
    for (target, fields) in [("/elsewhere", BOB), ("/search", [("x-usr", "bob")])] {
        let allowed = harness.get(target, &fields).await;
        assert_eq!(allowed.status, 200);
        assert_eq!(allowed.field("x-ratelimit-limit"), None);
        assert_eq!(allowed.field("ratelimit"), None);
    }
    let calls = harness.envoy.counted("cluster.tollgate.upstream_rq_total");
    assert_eq!(calls, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rate_limit_fields_of_the_upstream_are_kept_besides_ours() {
    let mut harness = EnvoyHarness::new().await;
    let fields = "x-user: bob\r\nsay-ratelimit: \"theirs\";r=7\r\n";
    let lines = harness.lines("/api", fields).await;
    let values: Vec<&str> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("ratelimit: "))
        .collect();
    let ours = r#""edge.remote_address";r=999;t=40, "per-user";r=2;t=2800"#;
    assert_eq!(values, [r#""theirs";r=7"#, ours]);
}

/// Envoy can write `Retry-After` itself. Then there is still only one, and it is ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_after_occurs_once_even_if_envoy_writes_it_too() {
    let line = "enable_x_ratelimit_headers: DRAFT_VERSION_03";
    let both = ENVOY.replace(
        line,
        &format!("{line}\n              enable_retry_after_header: true"),
    );
    assert_ne!(both, ENVOY);
    let mut harness = EnvoyHarness::with_config(Version::V1_40, &both, LIMITS).await;
    for _ in 0..3 {
        harness.remaining_after("/api", &BOB).await;
    }
    // The client of this test fails on a duplicate field.
    let denied = harness.get("/api", &BOB).await;
    assert_eq!(denied.status, 429);
    assert_eq!(denied.field("retry-after"), Some(&*TO_THE_HOUR.to_string()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_override_from_envoy_replaces_the_limit_of_the_files() {
    let mut harness = EnvoyHarness::new().await;
    let rich = [("x-tenant", "acme"), ("x-tenant-limit", "5")];
    for left in (0..5).rev() {
        let allowed = harness.get("/tenant", &rich).await;
        assert_eq!(allowed.status, 200);
        assert_eq!(
            allowed.field("x-ratelimit-limit"),
            Some("5, 5;w=3600"),
            "it has no name"
        );
        assert_eq!(remaining(&allowed), Some(left));
    }
    let denied = harness.get("/tenant", &rich).await;
    assert_eq!(denied.status, 429);
    assert_eq!(denied.field("retry-after"), Some(&*TO_THE_HOUR.to_string()));
    // Without it the limit of the file applies. As in envoyproxy/ratelimit, both count in the same window.
    let plain = [("x-tenant", "acme")];
    assert_eq!(harness.get("/tenant", &plain).await.status, 429);
    let other = [("x-tenant", "globex")];
    assert_eq!(harness.remaining_after("/tenant", &other).await, 1);
    assert_eq!(harness.remaining_after("/tenant", &other).await, 0);
    assert_eq!(harness.get("/tenant", &other).await.status, 429);
}
