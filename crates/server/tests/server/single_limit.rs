//! The demo limit: its decisions and header fields.

use serde_json::json;
use tollgate_core::Nanos;

use crate::harness::serve_demo;

#[tokio::test]
async fn exactly_the_burst_is_admitted_and_then_a_denial_has_its_fields() {
    let server = serve_demo().await;
    let mut client = server.connect().await;
    for n in 1..=20_u64 {
        let answer = client.get("/v1/check?key=alice").await;
        assert_eq!(answer.status, 200);
        let left = 20 - n;
        let expected = json!({
            "allowed": true, "wait_ms": 0, "reason": null, "limit": "demo", "retry_after_ms": null,
            "ticket": null, "degraded": [], "generation": 1,
            "limits": [{
                "name": "demo", "level": null, "part": "main", "mode": "enforce", "outcome": "allow",
                "limit": 20, "remaining": left, "reset_after_ms": n * 100, "retry_after_ms": null,
            }],
        });
        assert_eq!(answer.json(), expected);
        assert_eq!(answer.field("content-type"), Some("application/json"));
        assert_eq!(answer.field("cache-control"), Some("no-store"));
        assert_eq!(
            answer.field_without_keys("ratelimit-policy").as_deref(),
            Some(r#""demo";q=20;w=2"#)
        );
        // The reset time while something remains; the time of the next token when nothing does.
        let t = if left == 0 { 1 } else { n.div_ceil(10) };
        let expected = format!(r#""demo";r={left};t={t}"#);
        assert_eq!(answer.field_without_keys("ratelimit"), Some(expected));
        assert_eq!(answer.field("retry-after"), None);
    }
    let denied = client.get("/v1/check?key=alice").await;
    assert_eq!(denied.status, 429);
    assert_eq!(denied.field("retry-after"), Some("1"));
    assert_eq!(
        denied.field_without_keys("ratelimit").as_deref(),
        Some(r#""demo";r=0;t=1"#)
    );
    assert_eq!(
        denied.field_without_keys("ratelimit-policy").as_deref(),
        Some(r#""demo";q=20;w=2"#)
    );
    assert_eq!(denied.field("cache-control"), Some("no-store"));
    let detail = "the limit \"demo\" has no room for this now; try again after 100 ms";
    assert_eq!(denied.problem(), detail);
    let expected = json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Quota Exceeded",
        "status": 429,
        "detail": detail,
        "violated-policies": ["demo"],
        "retry-after-ms": 100,
        "allowed": false, "wait_ms": 0, "reason": "rate", "limit": "demo", "retry_after_ms": 100,
        "ticket": null, "degraded": [], "generation": 1,
        "limits": [{
            "name": "demo", "level": null, "part": "main", "mode": "enforce", "outcome": "deny",
            "limit": 20, "remaining": 0, "reset_after_ms": 2000, "retry_after_ms": 100,
        }],
    });
    assert_eq!(denied.json(), expected);
}

#[tokio::test]
async fn the_promised_wait_is_exact_to_the_nanosecond() {
    let server = serve_demo().await;
    let mut client = server.connect().await;
    assert_eq!(client.get("/v1/check?key=a&cost=20").await.status, 200);
    server.clock.advance(Nanos::from_nanos(250_000_001));
    let denied = client.get("/v1/check?key=a&cost=5").await;
    assert_eq!(denied.status, 429);
    assert_eq!(denied.json()["retry_after_ms"], 250, "rounded up");
    // Two are available and five are requested: the field states both.
    assert_eq!(
        denied.field_without_keys("ratelimit").as_deref(),
        Some(r#""demo";r=2;t=1"#)
    );

    server.clock.advance(Nanos::from_nanos(249_999_998));
    assert_eq!(client.get("/v1/check?key=a&cost=5").await.status, 429);
    server.clock.advance(Nanos::from_nanos(1));
    assert_eq!(client.get("/v1/check?key=a&cost=5").await.status, 200);
}

#[tokio::test]
async fn keys_do_not_touch_each_other() {
    let server = serve_demo().await;
    let mut client = server.connect().await;
    assert_eq!(client.get("/v1/check?key=alice&cost=20").await.status, 200);
    assert_eq!(client.get("/v1/check?key=alice").await.status, 429);
    for key in ["bob", "Alice", "alice%00", "alice%20", "a", "lice"] {
        let target = format!("/v1/check?key={key}&cost=20");
        assert_eq!(client.get(&target).await.status, 200, "{key}");
    }
}

#[tokio::test]
async fn a_status_request_costs_nothing() {
    let server = serve_demo().await;
    let mut client = server.connect().await;
    for _ in 0..50 {
        let answer = client.get("/v1/check?key=alice&cost=0").await;
        assert_eq!(
            (answer.status, &answer.json()["limits"][0]["remaining"]),
            (200, &json!(20))
        );
        assert_eq!(
            answer.field_without_keys("ratelimit").as_deref(),
            Some(r#""demo";r=20;t=0"#)
        );
    }
    assert_eq!(client.get("/v1/check?key=alice&cost=20").await.status, 200);
    let answer = client.get("/v1/check?key=alice&cost=0").await;
    assert_eq!(
        (answer.status, &answer.json()["limits"][0]["remaining"]),
        (200, &json!(0))
    );
}

#[tokio::test]
async fn a_refused_request_spends_nothing() {
    let server = serve_demo().await;
    let mut client = server.connect().await;
    assert_eq!(client.get("/v1/check?key=a&cost=15").await.status, 200);
    for _ in 0..10 {
        assert_eq!(client.get("/v1/check?key=a&cost=6").await.status, 429);
    }
    assert_eq!(client.get("/v1/check?key=a&cost=5").await.status, 200);
}

#[tokio::test]
async fn a_cost_above_the_burst_is_refused_without_a_time_to_retry() {
    let server = serve_demo().await;
    for cost in ["21", "18446744073709551615"] {
        let never = server.get(&format!("/v1/check?key=a&cost={cost}")).await;
        assert_eq!((never.status, never.field("retry-after")), (429, None));
        assert_eq!(
            never.field_without_keys("ratelimit").as_deref(),
            Some(r#""demo";r=20;t=0"#)
        );
        let detail = "the request asks for more than the limit \"demo\" ever admits at once; waiting does not help";
        assert_eq!(never.problem(), detail);
        assert_eq!(never.json()["retry_after_ms"], json!(null));
    }
}

#[tokio::test]
async fn a_query_and_a_body_are_the_same_request() {
    let server = serve_demo().await;
    let mut client = server.connect().await;
    let body = r#"{"attributes": {"header.X-Api-Key": "alice"}, "cost": 12}"#;
    assert_eq!(client.post("/v1/check", body).await.status, 200);
    let short = client
        .post("/v1/check", r#"{"key": "alice", "cost": 8}"#)
        .await;
    assert_eq!(short.status, 200);
    assert_eq!(short.json()["limits"][0]["remaining"], 0);
    for target in ["/v1/check?key=alice", "/v1/check?header.x-api-key=alice"] {
        assert_eq!(client.get(target).await.status, 429);
    }
}

#[tokio::test]
async fn requests_without_the_key_attribute_share_one_quota() {
    let server = serve_demo().await;
    let mut client = server.connect().await;
    assert_eq!(client.get("/v1/check?cost=20").await.status, 200);
    assert_eq!(client.post("/v1/check", "{}").await.status, 429);
    assert_eq!(client.get("/v1/check?ip=192.0.2.7").await.status, 429);
    assert_eq!(client.get("/v1/check?key=alice").await.status, 200);
}

#[tokio::test]
async fn a_peek_reports_the_decision_and_charges_nothing() {
    let server = serve_demo().await;
    let mut client = server.connect().await;
    let peek = r#"{"key": "alice", "cost": 20, "peek": true}"#;
    for _ in 0..3 {
        let answer = client.post("/v1/check", peek).await;
        assert_eq!(
            (answer.status, &answer.json()["allowed"]),
            (200, &json!(true))
        );
    }
    assert_eq!(client.get("/v1/check?key=alice&cost=19").await.status, 200);
    assert_eq!(client.post("/v1/check", peek).await.status, 429);
    let status = client.get("/v1/status?key=alice&cost=20").await;
    assert_eq!((status.status, status.field("retry-after")), (200, None));
    assert_eq!(status.json()["allowed"], false);
    assert_eq!(status.json()["retry_after_ms"], 1_900);
    assert_eq!(
        status.field_without_keys("ratelimit").as_deref(),
        Some(r#""demo";r=1;t=2"#)
    );
    assert_eq!(
        client.get("/v1/check?key=alice").await.status,
        200,
        "the last one"
    );
}
