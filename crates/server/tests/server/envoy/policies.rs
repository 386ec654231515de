//! The same Envoy with a policy: all limits are charged or none, and refusals cost nothing.

use tollgate_core::Nanos;
use tollgate_testkit::envoy::Version;

use super::harness::{ENVOY, EnvoyHarness, remaining};
use crate::grpc::serve_policy;

const POLICY: &str = "
limits:
  - name: per-address
    match: { domain: edge, descriptor.remote_address: present }
    key: ip
    rate: 5/h
  - name: per-user
    match: { descriptor.user: present }
    key: descriptor.user
    rate: 2/h
  - name: tokens
    match: { descriptor.tokens: present }
    key: descriptor.tokens
    rate: 100/h
    charge: always
    overdraft: 1000
";

const BOB: [(&str, &str); 1] = [("x-user", "bob")];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_request_takes_nothing_from_its_other_limits() {
    let server = serve_policy(POLICY).await;
    let mut harness = EnvoyHarness::in_front_of(server, Version::V1_40, ENVOY).await;
    for left in [1, 0] {
        assert_eq!(harness.remaining_after("/api", &BOB).await, left);
    }
    for _ in 0..10 {
        let denied = harness.get("/api", &BOB).await;
        assert_eq!((denied.status, remaining(&denied)), (429, Some(0)));
        // A token bucket refills one token every half hour, not all at the end of a window.
        assert_eq!(denied.field("retry-after"), Some("1800"));
        let ours = denied.field("ratelimit").unwrap();
        assert!(ours.contains(r#""per-user";r=0;t=1800"#), "{ours}");
    }
    // With files the address would have been charged twelve times. Here it was charged twice, and three are left.
    for (user, left) in [("carol", 1), ("dave", 1), ("erin", 0)] {
        assert_eq!(
            harness.remaining_after("/api", &[("x-user", user)]).await,
            left,
            "{user}"
        );
    }
    let denied = harness.get("/api", &[("x-user", "frank")]).await;
    assert_eq!(denied.status, 429);
    let ours = denied.field("ratelimit").unwrap();
    assert!(ours.contains(r#""per-address";r=0"#), "{ours}");
    harness.clock.advance(Nanos::from_secs(1_800));
    assert_eq!(harness.get("/api", &BOB).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn costs_charged_afterwards_may_cause_debt_and_a_peek_shows_it() {
    let server = serve_policy(POLICY).await;
    let mut harness = EnvoyHarness::in_front_of(server, Version::V1_40, ENVOY).await;
    let using = [("x-user", "bob"), ("say-x-tokens-used", "60")];
    assert_eq!(harness.remaining_after("/chat", &using).await, 100);
    harness.wait_for_calls(2);
    assert_eq!(harness.remaining_after("/chat", &using).await, 40);
    harness.wait_for_calls(4);
    // Forty were left and sixty were used: twenty are owed, and one is available when they are paid back.
    let denied = harness.get("/chat", &using).await;
    assert_eq!((denied.status, remaining(&denied)), (429, Some(0)));
    assert_eq!(denied.field("retry-after"), Some("756"));
    harness.clock.advance(Nanos::from_secs(755));
    assert_eq!(harness.get("/chat", &using).await.status, 429);
    harness.clock.advance(Nanos::from_secs(1));
    assert_eq!(harness.remaining_after("/chat", &BOB).await, 1);
}
