//! A typical envoyproxy/ratelimit configuration with most of its features, used by the same Envoy unchanged.

use tollgate_core::Nanos;
use tollgate_testkit::envoy::Version;

use super::harness::{ENVOY, EnvoyHarness, TO_THE_HOUR, TO_THE_MINUTE, remaining};

const FILE: &str = r#"
domain: edge
descriptors:
  - key: plan
    value: gold
    descriptors:
      - key: user
        rate_limit:
          unit: hour
          requests_per_unit: 4
      - key: user
        value: root
        rate_limit:
          unlimited: true
  # Whoever has another plan.
  - key: plan
    descriptors:
      - key: user
        rate_limit:
          unit: hour
          requests_per_unit: 1
  - key: path
    value: /api/beta*
    rate_limit:
      name: beta
      unit: minute
      requests_per_unit: 2
  - key: path
    value: /api/old
    shadow_mode: true
    rate_limit:
      unit: minute
      requests_per_unit: 1
"#;

/// The first route of the example with other descriptors.
fn asking_for_more() -> String {
    let user = "- actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }]";
    let more = "- actions: [{ request_headers: { header_name: x-plan, descriptor_key: plan } }, \
                { request_headers: { header_name: x-user, descriptor_key: user } }]";
    let address = "- actions: [{ remote_address: {} }]";
    let path = "- actions: [{ request_headers: { header_name: \":path\", descriptor_key: path } }]";
    assert!(ENVOY.contains(user) && ENVOY.contains(address));
    ENVOY.replace(user, more).replace(address, path)
}

fn on<'a>(plan: &'a str, user: &'a str) -> [(&'a str, &'a str); 2] {
    [("x-plan", plan), ("x-user", user)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_most_specific_rule_decides_at_every_level() {
    let mut harness = EnvoyHarness::with_config(Version::V1_40, &asking_for_more(), FILE).await;
    for left in [3, 2, 1, 0] {
        assert_eq!(
            harness.remaining_after("/api", &on("gold", "bob")).await,
            left
        );
    }
    let denied = harness.get("/api", &on("gold", "bob")).await;
    assert_eq!(denied.status, 429);
    assert_eq!(denied.field("retry-after"), Some(&*TO_THE_HOUR.to_string()));
    assert_eq!(harness.remaining_after("/api", &on("tin", "bob")).await, 0);
    assert_eq!(harness.get("/api", &on("tin", "bob")).await.status, 429);
    for _ in 0..10 {
        let unlimited = harness.get("/api", &on("gold", "root")).await;
        assert_eq!(unlimited.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patterns_count_each_value_and_a_rule_in_shadow_mode_refuses_nothing() {
    let mut harness = EnvoyHarness::with_config(Version::V1_40, &asking_for_more(), FILE).await;
    let root = on("gold", "root");
    for target in ["/api/beta1", "/api/beta2"] {
        assert_eq!(harness.remaining_after(target, &root).await, 1);
        assert_eq!(harness.remaining_after(target, &root).await, 0);
        let denied = harness.get(target, &root).await;
        assert_eq!(denied.status, 429);
        assert_eq!(
            denied.field("x-ratelimit-limit"),
            Some(r#"2, 2;w=60;name="beta""#)
        );
        assert_eq!(
            denied.field("retry-after"),
            Some(&*TO_THE_MINUTE.to_string())
        );
    }
    for left in [0, 0, 0] {
        assert_eq!(harness.remaining_after("/api/old", &root).await, left);
    }
    harness.clock.advance(Nanos::from_secs(TO_THE_MINUTE));
    let allowed = harness.get("/api/beta1", &root).await;
    assert_eq!((allowed.status, remaining(&allowed)), (200, Some(1)));
}
