//! The problem types that the draft registers, and their fields.

use serde_json::{Value, json};
use tollgate_core::Nanos;
use tollgate_engine::control::Attribution;

use crate::harness::{HttpReply, serve_policy};

const TYPES: &str = "https://iana.org/assignments/http-problem-types#";

fn kind(answer: &HttpReply) -> (u16, Value, Value, Value) {
    let body = answer.json();
    answer.problem();
    assert_eq!(answer.field("cache-control"), Some("no-store"));
    let member = |name: &str| body[name].clone();
    (
        answer.status,
        member("type"),
        member("title"),
        member("violated-policies"),
    )
}

fn registered(name: &str) -> Value {
    json!(format!("{TYPES}{name}"))
}

/// Two windows of one limit are two policies, by their names in `RateLimit-Policy`.
#[tokio::test]
async fn every_policy_that_refuses_is_named() {
    let text = "
limits:
  - { name: api, rate: [2/s, 2/h] }
  - { name: roomy, rate: 100/s }
  - { name: tight, rate: 1/m, burst: 2 }
";
    let server = serve_policy(text).await;
    let mut client = server.connect().await;
    assert_eq!(client.get("/v1/check?cost=2").await.status, 200);
    let denied = client.get("/v1/check").await;
    let violated = json!(["api", "api#2", "tight"]);
    assert_eq!(
        kind(&denied),
        (
            429,
            registered("quota-exceeded"),
            json!("Quota Exceeded"),
            violated
        )
    );
    // Until the last of them has room.
    assert_eq!(denied.field("retry-after"), Some("1800"));
    assert_eq!(denied.json()["retry-after-ms"], 1_800_000);
    let field = denied.field("ratelimit").unwrap();
    let expected = r#""api";r=0;t=1, "api#2";r=0;t=1800, "roomy";r=98;t=1, "tight";r=0;t=60"#;
    assert_eq!(field, expected);
}

#[tokio::test]
async fn a_penalty_is_an_abnormal_usage_problem() {
    let text = "limits: [{ name: login, key: header.x-api-key, rate: 1/s, penalty: block 10m }]";
    let server = serve_policy(text).await;
    let mut client = server.connect().await;
    assert_eq!(client.get("/v1/check?key=a").await.status, 200);
    for _ in 0..2 {
        let blocked = client.get("/v1/check?key=a").await;
        let (status, r#type, title, violated) = kind(&blocked);
        assert_eq!(
            (status, r#type),
            (429, registered("abnormal-usage-detected"))
        );
        assert_eq!(title, "Abnormal Usage Detected");
        assert!(
            violated[0].as_str().unwrap().starts_with("login"),
            "{violated}"
        );
        assert_eq!(blocked.field("retry-after"), Some("600"));
    }
}

/// Blocked clients are not charged, so only the wait and the limit of the block are reported.
#[tokio::test]
async fn a_blocked_client_gets_the_duration_and_the_limit() {
    let server = serve_policy("limits: [{ name: api, key: header.x-api-key, rate: 1/s }]").await;
    let by = Attribution {
        who: "ada",
        why: "a test",
    };
    let control = server.app.engine().control();
    let lasts = Some(Nanos::from_millis(90_500));
    control.block_key("api", &["a"], lasts, by).unwrap();
    control.block_address("192.0.2.0/24", None, by).unwrap();
    let mut client = server.connect().await;
    let blocked = client.get("/v1/check?key=a").await;
    let title = json!("Abnormal Usage Detected");
    let kind_of = registered("abnormal-usage-detected");
    assert_eq!(
        kind(&blocked),
        (429, kind_of.clone(), title.clone(), json!(["api"]))
    );
    assert_eq!(blocked.field("retry-after"), Some("91"));
    assert_eq!(blocked.json()["retry-after-ms"], 90_500);
    let blocked = client.get("/v1/check?key=b&ip=192.0.2.7").await;
    assert_eq!(kind(&blocked), (403, kind_of, title, Value::Null));
    assert_eq!(blocked.field("retry-after"), None, "nobody knows");
}

/// No limit was checked, so there are no rate limit fields, and the problem has no registered type.
#[tokio::test]
async fn a_refusal_without_a_limit_has_no_rate_limit_fields() {
    let text = "
deny: [{ match: { path: /secret } }]
limits: [{ name: per-user, key: { attribute: header.user, missing: deny }, rate: 1/s }]
";
    let server = serve_policy(text).await;
    let mut client = server.connect().await;
    for (target, status, title) in [
        ("/v1/check?path=/secret", 403, "Forbidden"),
        ("/v1/check?path=/open", 429, "Too Many Requests"),
    ] {
        let refused = client.get(target).await;
        assert_eq!(
            kind(&refused),
            (status, json!("about:blank"), json!(title), Value::Null)
        );
        for name in ["ratelimit", "ratelimit-policy", "retry-after"] {
            assert_eq!(refused.field(name), None, "{target}: {name}");
        }
    }
}

/// A batch has many verdicts and one response, so the fields are in the body.
#[tokio::test]
async fn each_answer_of_a_batch_is_a_verdict_or_its_problem() {
    let server = serve_policy("limits: [{ name: all, rate: 1/m }]").await;
    let mut client = server.connect().await;
    let answer = client
        .post(
            "/v1/check/batch",
            r#"{"requests": [{}, {}, {"peek": true}]}"#,
        )
        .await;
    assert_eq!((answer.status, answer.field("ratelimit")), (200, None));
    let body = answer.json();
    let of = |name: &str| -> Vec<Value> {
        let answers = body["answers"].as_array().unwrap();
        answers.iter().map(|one| one[name].clone()).collect()
    };
    assert_eq!(of("allowed"), [json!(true), json!(false), json!(false)]);
    let wait = json!(60_000);
    assert_eq!(of("retry-after-ms"), [Value::Null, wait.clone(), wait]);
    assert_eq!(of("status"), [Value::Null, json!(429), json!(429)]);
}
