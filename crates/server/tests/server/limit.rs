//! What the demonstration limit admits, and the words it says it in.

use serde_json::json;
use tollgate_core::Nanos;

use crate::harness::demo;

#[tokio::test]
async fn exactly_the_burst_is_admitted_and_then_the_words_of_a_denial() {
    let server = demo().await;
    let mut client = server.connect().await;
    for n in 1..=20_u64 {
        let answer = client.get("/v1/check?key=alice").await;
        assert_eq!(answer.status, 200);
        let left = 20 - n;
        let expected = json!({
            "allowed": true, "limit": "demo", "remaining": left, "reset_after_ms": n * 100,
        });
        assert_eq!(answer.json(), expected);
        assert_eq!(answer.field("content-type"), Some("application/json"));
        assert_eq!(answer.field("cache-control"), Some("no-store"));
        assert_eq!(answer.field("ratelimit-policy"), Some(r#""demo";q=20;w=2"#));
        // Until everything is back while something is left; until the next one when nothing is.
        let t = if left == 0 { 1 } else { n.div_ceil(10) };
        let expected = format!(r#""demo";r={left};t={t}"#);
        assert_eq!(answer.field("ratelimit"), Some(expected.as_str()));
        assert_eq!(answer.field("retry-after"), None);
    }
    let denied = client.get("/v1/check?key=alice").await;
    assert_eq!(denied.status, 429);
    assert_eq!(denied.field("retry-after"), Some("1"));
    assert_eq!(denied.field("ratelimit"), Some(r#""demo";r=0;t=1"#));
    assert_eq!(denied.field("ratelimit-policy"), Some(r#""demo";q=20;w=2"#));
    assert_eq!(denied.field("cache-control"), Some("no-store"));
    let detail = "the limit \"demo\" has no room for a cost of 1 now; it has after 100 ms";
    assert_eq!(denied.problem(), detail);
    let expected = json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Quota Exceeded",
        "status": 429,
        "detail": detail,
        "violated-policies": ["demo"],
        "retry-after-ms": 100,
    });
    assert_eq!(denied.json(), expected);
}

#[tokio::test]
async fn the_promised_wait_is_exact_to_the_nanosecond() {
    let server = demo().await;
    let mut client = server.connect().await;
    assert_eq!(client.get("/v1/check?key=a&cost=20").await.status, 200);
    server.clock.advance(Nanos::from_nanos(250_000_001));
    let denied = client.get("/v1/check?key=a&cost=5").await;
    assert_eq!(denied.status, 429);
    assert_eq!(denied.json()["retry-after-ms"], 250, "rounded up");
    // Two are there, five are asked for: the field says both.
    assert_eq!(denied.field("ratelimit"), Some(r#""demo";r=2;t=1"#));

    server.clock.advance(Nanos::from_nanos(249_999_998));
    assert_eq!(client.get("/v1/check?key=a&cost=5").await.status, 429);
    server.clock.advance(Nanos::from_nanos(1));
    assert_eq!(client.get("/v1/check?key=a&cost=5").await.status, 200);
}

#[tokio::test]
async fn keys_do_not_touch_each_other() {
    let server = demo().await;
    let mut client = server.connect().await;
    assert_eq!(client.get("/v1/check?key=alice&cost=20").await.status, 200);
    assert_eq!(client.get("/v1/check?key=alice").await.status, 429);
    for key in ["bob", "Alice", "alice%00", "alice%20", "a", "lice"] {
        let target = format!("/v1/check?key={key}&cost=20");
        assert_eq!(client.get(&target).await.status, 200, "{key}");
    }
}

#[tokio::test]
async fn looking_costs_nothing() {
    let server = demo().await;
    let mut client = server.connect().await;
    for _ in 0..50 {
        let answer = client.get("/v1/check?key=alice&cost=0").await;
        assert_eq!(
            (answer.status, &answer.json()["remaining"]),
            (200, &json!(20))
        );
        assert_eq!(answer.field("ratelimit"), Some(r#""demo";r=20;t=0"#));
    }
    assert_eq!(client.get("/v1/check?key=alice&cost=20").await.status, 200);
    let answer = client.get("/v1/check?key=alice&cost=0").await;
    assert_eq!(
        (answer.status, &answer.json()["remaining"]),
        (200, &json!(0))
    );
}

#[tokio::test]
async fn a_refused_request_spends_nothing() {
    let server = demo().await;
    let mut client = server.connect().await;
    assert_eq!(client.get("/v1/check?key=a&cost=15").await.status, 200);
    for _ in 0..10 {
        assert_eq!(client.get("/v1/check?key=a&cost=6").await.status, 429);
    }
    assert_eq!(client.get("/v1/check?key=a&cost=5").await.status, 200);
}

#[tokio::test]
async fn a_cost_above_the_burst_is_refused_without_a_time_to_retry() {
    let server = demo().await;
    for cost in ["21", "18446744073709551615"] {
        let never = server.get(&format!("/v1/check?key=a&cost={cost}")).await;
        assert_eq!((never.status, never.field("retry-after")), (429, None));
        assert_eq!(never.field("ratelimit"), Some(r#""demo";r=20;t=0"#));
        let detail = format!(
            "a cost of {cost} is above 20, the most that the limit \"demo\" ever admits at once; waiting does not help"
        );
        assert_eq!(never.problem(), detail);
        assert_eq!(never.json().get("retry-after-ms"), None);
    }
}

#[tokio::test]
async fn a_query_and_a_body_ask_the_same_question() {
    let server = demo().await;
    let mut client = server.connect().await;
    let body = r#"{"key": "alice", "cost": 12, "limit": "demo"}"#;
    assert_eq!(client.post("/v1/check", body).await.status, 200);
    let half = client.post("/v1/check?key=alice", r#"{"cost": 8}"#).await;
    assert_eq!((half.status, &half.json()["remaining"]), (200, &json!(0)));
    let target = "/v1/check?key=alice&limit=demo";
    assert_eq!(client.post(target, "").await.status, 429);
    assert_eq!(client.get(target).await.status, 429);
}

#[tokio::test]
async fn without_a_key_the_address_is_the_key() {
    let server = demo().await;
    let mut client = server.connect().await;
    assert_eq!(client.get("/v1/check?cost=20").await.status, 200);
    assert_eq!(client.post("/v1/check", "{}").await.status, 429);
    assert_eq!(server.get("/v1/check").await.status, 429, "from any port");
    assert_eq!(client.get("/v1/check?key=127.0.0.1").await.status, 429);
    assert_eq!(client.get("/v1/check?key=alice").await.status, 200);
}
