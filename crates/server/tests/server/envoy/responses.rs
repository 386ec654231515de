//! Yes and no, and the words that clients get with them.

use tollgate_core::Nanos;
use tollgate_testkit::envoy::Version;

use super::harness::{ENVOY, EnvoyHarness, LIMITS, TO_THE_HOUR, remaining};

const BOB: [(&str, &str); 1] = [("x-user", "bob")];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_go_through_until_the_limit_and_then_clients_see_429_with_its_words() {
    let mut rig = EnvoyHarness::new().await;
    // The draft's third version: the tightest limit first, then all of them.
    let limits = r#"3, 1000;w=60, 3;w=3600;name="per-user""#;
    for left in [2, 1, 0] {
        let allowed = rig.get("/api/orders", &BOB).await;
        assert_eq!((allowed.status, allowed.body.as_str()), (200, "fine\n"));
        assert_eq!(allowed.field("x-ratelimit-limit"), Some(limits));
        assert_eq!(remaining(&allowed), Some(left));
        assert_eq!(
            allowed.field("x-ratelimit-reset"),
            Some(&*TO_THE_HOUR.to_string())
        );
        assert_eq!(allowed.field("retry-after"), None);
        assert_eq!(allowed.field("x-limit-says"), Some(r#"{"plan":"free"}"#));
        let ours = allowed.field("ratelimit").unwrap();
        assert!(ours.contains(&format!(r#""per-user";r={left}"#)), "{ours}");
    }
    let denied = rig.get("/api/orders", &BOB).await;
    assert_eq!(denied.status, 429);
    assert_eq!(rig.reached(), 3, "a refused request goes no further");
    assert_eq!(denied.field("x-envoy-ratelimited"), Some("true"));
    assert_eq!(denied.field("x-ratelimit-limit"), Some(limits));
    assert_eq!(remaining(&denied), Some(0));
    let until = TO_THE_HOUR.to_string();
    assert_eq!(denied.field("x-ratelimit-reset"), Some(&*until));
    assert_eq!(denied.field("retry-after"), Some(&*until));

    // Another user has a quota of their own.
    assert_eq!(rig.remaining_after("/api", &[("x-user", "carol")]).await, 2);
    // What was promised is kept, and not a second earlier.
    rig.clock.advance(Nanos::from_secs(TO_THE_HOUR - 1));
    let early = rig.get("/api", &BOB).await;
    assert_eq!((early.status, early.field("retry-after")), (429, Some("1")));
    rig.clock.advance(Nanos::from_secs(1));
    assert_eq!(rig.remaining_after("/api", &BOB).await, 2);
    assert_eq!(rig.envoy.counted("cluster.upstream.ratelimit.ok"), 5);
    assert_eq!(
        rig.envoy.counted("cluster.upstream.ratelimit.over_limit"),
        2
    );
    assert_eq!(rig.envoy.counted("cluster.upstream.ratelimit.error"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_route_or_a_request_without_a_limit_is_not_asked_about() {
    let mut rig = EnvoyHarness::new().await;
    for (target, fields) in [("/elsewhere", BOB), ("/search", [("x-usr", "bob")])] {
        let allowed = rig.get(target, &fields).await;
        assert_eq!(allowed.status, 200);
        assert_eq!(allowed.field("x-ratelimit-limit"), None);
        assert_eq!(allowed.field("ratelimit"), None);
    }
    let asked = rig.envoy.counted("cluster.tollgate.upstream_rq_total");
    assert_eq!(asked, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_upstream_says_about_its_own_limits_stays_beside_ours() {
    let mut rig = EnvoyHarness::new().await;
    let fields = "x-user: bob\r\nsay-ratelimit: \"theirs\";r=7\r\n";
    let lines = rig.lines("/api", fields).await;
    let said: Vec<&str> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("ratelimit: "))
        .collect();
    let ours = r#""edge.remote_address";r=999;t=40, "per-user";r=2;t=2800"#;
    assert_eq!(said, [r#""theirs";r=7"#, ours]);
}

/// Envoy can write `Retry-After` by itself. Then there is still one, and it is ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_after_is_there_once_whoever_writes_it() {
    let line = "enable_x_ratelimit_headers: DRAFT_VERSION_03";
    let both = ENVOY.replace(
        line,
        &format!("{line}\n              enable_retry_after_header: true"),
    );
    assert_ne!(both, ENVOY);
    let mut rig = EnvoyHarness::with_config(Version::V1_40, &both, LIMITS).await;
    for _ in 0..3 {
        rig.remaining_after("/api", &BOB).await;
    }
    // A field that came twice would have stopped the test's client.
    let denied = rig.get("/api", &BOB).await;
    assert_eq!(denied.status, 429);
    assert_eq!(denied.field("retry-after"), Some(&*TO_THE_HOUR.to_string()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_envoy_brings_along_takes_the_place_of_the_files() {
    let mut rig = EnvoyHarness::new().await;
    let rich = [("x-tenant", "acme"), ("x-tenant-limit", "5")];
    for left in (0..5).rev() {
        let allowed = rig.get("/tenant", &rich).await;
        assert_eq!(allowed.status, 200);
        assert_eq!(
            allowed.field("x-ratelimit-limit"),
            Some("5, 5;w=3600"),
            "it has no name"
        );
        assert_eq!(remaining(&allowed), Some(left));
    }
    let denied = rig.get("/tenant", &rich).await;
    assert_eq!(denied.status, 429);
    assert_eq!(denied.field("retry-after"), Some(&*TO_THE_HOUR.to_string()));
    // Without it the file's limit holds. As with envoyproxy/ratelimit both count in the same window.
    let plain = [("x-tenant", "acme")];
    assert_eq!(rig.get("/tenant", &plain).await.status, 429);
    let other = [("x-tenant", "globex")];
    assert_eq!(rig.remaining_after("/tenant", &other).await, 1);
    assert_eq!(rig.remaining_after("/tenant", &other).await, 0);
    assert_eq!(rig.get("/tenant", &other).await.status, 429);
}
