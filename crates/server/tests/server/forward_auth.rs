//! The responses to each gateway, in the form that it understands.

use tokio::time::pause;
use tollgate_core::Timestamp;
use tollgate_server::HttpLimits;
use tollgate_store::ManualClock;

use crate::harness::{HttpClient, HttpReply, serve_policy, start_app};

const POLICY: &str = r#"
limits:
  - name: per-address
    match: { route: "/api/{*rest}" }
    key: ip
    rate: 2/h
    status: 420
  - name: per-cookie
    match: { cookie.session: present, query.slow: present }
    key: cookie.session
    rate: 1/h
"#;

const FORWARDED: [(&str, &str); 4] = [
    ("x-forwarded-method", "GET"),
    ("x-forwarded-uri", "/api/items?page=1"),
    ("x-forwarded-host", "api.example"),
    ("x-forwarded-for", "192.0.2.7"),
];
const ORIGINAL: [(&str, &str); 4] = [
    ("x-original-method", "GET"),
    ("x-original-uri", "/api/items?page=1"),
    ("x-original-host", "api.example"),
    ("x-real-ip", "192.0.2.7"),
];

async fn ask(client: &mut HttpClient, gateway: &str, fields: &[(&str, &str)]) -> HttpReply {
    client
        .request_with("GET", &format!("/auth/{gateway}"), fields, "")
        .await
}

#[tokio::test]
async fn traefik_caddy_and_haproxy_pass_a_refusal_on() {
    for gateway in ["traefik", "caddy", "haproxy"] {
        let server = serve_policy(POLICY).await;
        let mut client = server.connect().await;
        for left in [1, 0] {
            let allowed = ask(&mut client, gateway, &FORWARDED).await;
            assert_eq!((allowed.status, allowed.body.as_str()), (200, "ok\n"));
            assert_eq!(allowed.field("x-ratelimit-decision"), Some("allow"));
            let field = allowed.field("ratelimit").unwrap();
            assert!(
                field.starts_with(&format!(r#""per-address";r={left}"#)),
                "{field}"
            );
        }
        let denied = ask(&mut client, gateway, &FORWARDED).await;
        assert_eq!(denied.status, 420);
        denied.problem();
        assert_eq!(denied.field("retry-after"), Some("1800"));
        assert_eq!(denied.field("x-ratelimit-decision"), Some("deny"));
        assert_eq!(denied.field("x-ratelimit-reason"), Some("rate"));
        let mut other = FORWARDED;
        other[3].1 = "192.0.2.7, 192.0.2.8";
        assert_eq!(ask(&mut client, gateway, &other).await.status, 200);
    }
}

#[tokio::test]
async fn nginx_gets_403_and_the_status_in_a_field() {
    let server = serve_policy(POLICY).await;
    let mut client = server.connect().await;
    for _ in 0..2 {
        let allowed = ask(&mut client, "nginx", &ORIGINAL).await;
        assert_eq!((allowed.status, allowed.body.as_str()), (204, ""));
        assert_eq!(allowed.field("content-type"), None);
    }
    let denied = ask(&mut client, "nginx", &ORIGINAL).await;
    assert_eq!(denied.status, 403);
    assert_eq!(denied.field("x-ratelimit-status"), Some("420"));
    assert_eq!(denied.field("x-ratelimit-reason"), Some("rate"));
    assert_eq!(denied.field("retry-after"), Some("1800"));
}

#[tokio::test]
async fn cookies_and_queries_of_the_held_request_are_attributes() {
    let server = serve_policy(POLICY).await;
    let mut client = server.connect().await;
    let mut fields = ORIGINAL.to_vec();
    fields[1].1 = "/other?slow";
    fields.push(("cookie", "theme=dark; session=s1"));
    assert_eq!(ask(&mut client, "nginx", &fields).await.status, 204);
    assert_eq!(ask(&mut client, "nginx", &fields).await.status, 403);
    fields[4].1 = "session=s2";
    assert_eq!(ask(&mut client, "nginx", &fields).await.status, 204);
    fields[1].1 = "/other?fast";
    fields[4].1 = "session=s1";
    assert_eq!(ask(&mut client, "nginx", &fields).await.status, 204);
}

#[tokio::test]
async fn the_method_of_the_gateways_request_does_not_matter() {
    let server = serve_policy(POLICY).await;
    for method in ["POST", "DELETE"] {
        let mut client = server.connect().await;
        let answer = client
            .request_with(method, "/auth/traefik", &FORWARDED, "")
            .await;
        assert_eq!(answer.status, 200);
    }
}

#[tokio::test]
async fn missing_fields_of_a_gateway_are_named() {
    let server = serve_policy(POLICY).await;
    let mut client = server.connect().await;
    let answer = ask(&mut client, "traefik", &FORWARDED[..3]).await;
    let detail = "x-forwarded-for: \"\" is not valid: the gateway must send this field; docs/gateways.md has its settings";
    assert_eq!((answer.status, answer.problem().as_str()), (400, detail));
}

#[tokio::test]
async fn only_trusted_gateways_are_accepted() {
    let clock = ManualClock::at(Timestamp::from_secs(1_700_000_000));
    let trusted = "10.0.0.0/8".parse().unwrap();
    let server = start_app(POLICY, clock, HttpLimits::default(), trusted).await;
    let answer = ask(&mut server.connect().await, "traefik", &FORWARDED).await;
    let detail = "127.0.0.1 is not a trusted gateway; see --trusted-proxies";
    assert_eq!((answer.status, answer.problem().as_str()), (403, detail));
    assert_eq!(
        answer.field("x-ratelimit-reason"),
        Some("untrusted_gateway")
    );
    // nginx takes 403 for a denial, and configurations make 429 of it.
    let answer = ask(&mut server.connect().await, "nginx", &ORIGINAL).await;
    assert_eq!((answer.status, answer.problem().as_str()), (421, detail));
    assert_eq!(
        answer.field("x-ratelimit-reason"),
        Some("untrusted_gateway")
    );
    assert_eq!(answer.field("x-ratelimit-decision"), None);
    assert_eq!(server.app.metrics().untrusted_gateway_requests(), 2);
}

#[tokio::test]
async fn a_gateway_waits_for_a_request_that_has_to_wait() {
    let text = "limits: [{ name: paced, rate: 1/s, burst: 1, wait: 2s }]";
    let server = serve_policy(text).await;
    let mut client = server.connect().await;
    assert_eq!(ask(&mut client, "caddy", &FORWARDED).await.status, 200);
    pause();
    let begun = tokio::time::Instant::now();
    assert_eq!(ask(&mut client, "caddy", &FORWARDED).await.status, 200);
    let waited = begun.elapsed();
    assert!(waited >= std::time::Duration::from_secs(1), "{waited:?}");
}
