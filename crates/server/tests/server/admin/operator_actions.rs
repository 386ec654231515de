//! Operator actions, and the pages that operators read.

use serde_json::json;
use tollgate_core::Nanos;
use tollgate_server::HttpApi;
use tollgate_server::admin::AdminTokens;
use tollgate_store::ManualClock;

use super::{serve_admin, serve_admin_of, value_at};

const POLICY: &str = r#"
limits:
  - { name: api, key: header.x-api-key, rate: 2/h }
  - { name: trial, key: header.x-api-key, rate: 1/h, mode: shadow }
"#;

#[tokio::test]
async fn every_endpoint_is_on_the_index_page_and_in_the_openapi_document() {
    let admin = serve_admin(POLICY).await;
    let mut operator = admin.operator().await;
    let page = operator.get("/").await;
    let document = operator.get("/openapi.json").await.json();
    let paths = document["paths"].as_object().unwrap();
    for path in paths.keys() {
        assert!(page.body.contains(path.as_str()), "{path}");
        let status = operator.request("HEAD", path, &[], "").await.status;
        assert!(matches!(status, 200 | 405), "{path}: {status}");
    }
    for line in page.body.lines().filter(|line| line.starts_with('/')) {
        let path = line.split_whitespace().next().unwrap();
        assert!(paths.contains_key(path), "{path} is not described");
        let answer = operator.request("PATCH", path, &[("content-type", "application/json")], "{}");
        let answer = answer.await;
        assert_eq!(answer.status, 405, "{path}");
        let allowed: Vec<_> = answer.field("allow").unwrap().split(", ").collect();
        for method in ["get", "put", "post", "delete"] {
            let is_described = paths[path].get(method).is_some();
            let is_allowed = allowed.contains(&method.to_uppercase().as_str());
            assert_eq!(is_described, is_allowed, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn a_stopping_server_is_alive_but_not_ready() {
    let mut admin = serve_admin(POLICY).await;
    let mut operator = admin.operator().await;
    assert_eq!(operator.get("/readyz").await.status, 200);
    admin.stop.take().unwrap().trigger();
    assert_eq!(operator.get("/readyz").await.status, 503);
    assert_eq!(operator.get("/healthz").await.status, 200);
    assert_eq!(operator.get("/v1/state").await.json()["ready"], false);
}

#[tokio::test]
async fn s42_a_switch_holds_from_the_next_decision_on_and_back() {
    let admin = serve_admin(POLICY).await;
    let mut operator = admin.operator().await;
    assert!(admin.check("a") && admin.check("a") && !admin.check("a"));
    for (limit, to) in [
        ("api", "shadow"),
        ("api", "off"),
        ("*", "shadow"),
        ("*", "off"),
    ] {
        let body = format!(r#""limit": "{limit}", "to": "{to}""#);
        let done = operator.put("/v1/switches", &body).await;
        assert_eq!((done.status, done.json()), (200, json!({ "done": true })));
        assert!(admin.check("a"), "{limit} is {to}");
        let switches = operator.get("/v1/switches").await.json();
        let way = if limit == "*" {
            "everything.to"
        } else {
            "limits.api.to"
        };
        assert_eq!(value_at(&switches, way), to);
        let body = format!(r#""limit": "{limit}", "to": "on""#);
        assert_eq!(operator.put("/v1/switches", &body).await.status, 200);
        assert!(!admin.check("a"), "{limit} is on again");
    }
    let nobody = operator.put("/v1/switches", r#""limit": "api", "enforce": "0%""#);
    assert_eq!(nobody.await.status, 200);
    let switches = operator.get("/v1/switches").await.json();
    assert_eq!(value_at(&switches, "limits.api.enforce"), "0%");
    assert!(admin.check("a"), "it is enforced for no key");
}

#[tokio::test]
async fn a_key_gets_another_quota_for_a_while() {
    let admin = serve_admin(POLICY).await;
    let mut operator = admin.operator().await;
    let body = r#""limit": "api", "key": ["a"], "quota": "4/h", "for": "1min""#;
    assert_eq!(operator.put("/v1/overrides", body).await.status, 200);
    let listed = operator.get("/v1/overrides").await.json();
    assert_eq!(value_at(&listed, "overrides.0.limit"), "api");
    assert_eq!(value_at(&listed, "overrides.0.quota"), "4/h");
    assert_eq!(
        value_at(&listed, "overrides.0.until"),
        "2023-11-14T22:14:20Z"
    );
    let admitted = |key| (0..9).filter(|_| admin.check(key)).count();
    assert_eq!((admitted("a"), admitted("b")), (4, 2));
    let lifted = operator.change("DELETE", "/v1/overrides", r#""limit": "api", "key": ["a"]"#);
    assert_eq!(lifted.await.status, 200);
    let listed = operator.get("/v1/overrides").await.json();
    assert_eq!(listed, json!({ "overrides": [] }));
    let again = operator.change("DELETE", "/v1/overrides", r#""limit": "api", "key": ["a"]"#);
    let again = again.await;
    assert_eq!(
        (again.status, again.problem()),
        (404, "there is no such override".to_owned())
    );
}

#[tokio::test]
async fn keys_and_networks_are_blocked_until_expiry_or_until_they_are_unblocked() {
    let admin = serve_admin(POLICY).await;
    let mut operator = admin.operator().await;
    let body = r#""limit": "api", "key": "a", "for": "1min""#;
    assert_eq!(operator.put("/v1/blocks", body).await.status, 200);
    assert!(!admin.check("a") && admin.check("b"));
    admin.clock.advance(Nanos::MINUTE);
    assert!(admin.check("a"));
    let body = r#""address": "192.0.2.0/24""#;
    assert_eq!(operator.put("/v1/blocks", body).await.status, 200);
    assert!(!admin.check("c"));
    let blocks = operator.get("/v1/blocks").await.json();
    let expected =
        json!([{ "limit": null, "key": null, "address": "192.0.2.0/24", "until": null }]);
    assert_eq!(blocks["blocks"], expected);
    assert_eq!(
        operator.change("DELETE", "/v1/blocks", body).await.status,
        200
    );
    assert!(admin.check("c"));
}

#[tokio::test]
async fn a_reset_forgets_the_usage_of_a_key() {
    let admin = serve_admin(POLICY).await;
    let mut operator = admin.operator().await;
    assert!(admin.check("a") && admin.check("a") && !admin.check("a"));
    let body = r#""limit": "api", "key": ["a"]"#;
    let reset = operator.change("POST", "/v1/resets", body).await;
    assert_eq!(reset.json(), json!({ "done": true, "found": true }));
    assert!(admin.check("a"));
    let nothing = r#""limit": "api", "key": ["nobody"]"#;
    let reset = operator.change("POST", "/v1/resets", nothing).await;
    assert_eq!(reset.json(), json!({ "done": true, "found": false }));
}

#[tokio::test]
async fn every_change_is_signed_and_in_the_audit_log() {
    let admin = serve_admin(POLICY).await;
    let mut operator = admin.operator().await;
    let json = [("content-type", "application/json")];
    for (body, field) in [
        (r#"{"limit": "*", "to": "off"}"#, "who: "),
        (r#"{"limit": "*", "to": "off", "who": "ada"}"#, "why: "),
        (
            r#"{"limit": "*", "to": "off", "who": "", "why": "x"}"#,
            "who: ",
        ),
        (
            r#"{"limit": "*", "to": "off", "who": "ada", "why": ""}"#,
            "why: ",
        ),
        (
            "{\"limit\": \"*\", \"to\": \"off\", \"who\": \"a\\nb\", \"why\": \"x\"}",
            "who: ",
        ),
    ] {
        let answer = operator.request("PUT", "/v1/switches", &json, body).await;
        assert_eq!(answer.status, 400, "{body}");
        assert!(answer.problem().starts_with(field), "{}", answer.problem());
    }
    operator
        .put("/v1/switches", r#""limit": "api", "to": "shadow""#)
        .await;
    operator.put("/v1/blocks", r#""address": "::1""#).await;
    let audit = operator.get("/v1/audit").await.json();
    let events = audit["events"].as_array().unwrap();
    assert_eq!(events.len(), 2);
    let latest = json!({
        "when": "2023-11-14T22:13:20Z",
        "who": "ada (127.0.0.1)",
        "what": "address `::1` blocked until it is removed",
        "why": "incident 7",
    });
    assert_eq!(events[0], latest);
    assert_eq!(events[1]["what"], "limit `api` switched to shadow");
}

/// The request, and the status and message of its refusal.
const INVALID_REQUESTS: &[(&str, &str, &str, u16, &str)] = &[
    (
        "PUT",
        "/v1/switches",
        r#""limit": "apj", "to": "off""#,
        404,
        "limit: there is no limit `apj`; did you mean `api`?",
    ),
    ("PUT", "/v1/switches", r#""to": "off""#, 400, "limit: "),
    ("PUT", "/v1/switches", r#""limit": "api""#, 400, "to: "),
    (
        "PUT",
        "/v1/switches",
        r#""limit": "api", "to": "away""#,
        400,
        "to: \"away\"",
    ),
    (
        "PUT",
        "/v1/overrides",
        r#""limit": "api", "key": ["a"]"#,
        400,
        "quota: ",
    ),
    (
        "PUT",
        "/v1/overrides",
        r#""limit": "api", "key": ["a"], "quota": "soon""#,
        400,
        "quota: ",
    ),
    (
        "PUT",
        "/v1/overrides",
        r#""limit": "api", "key": ["a", "b"], "quota": "1/s""#,
        400,
        "key: 2 values name no key",
    ),
    (
        "PUT",
        "/v1/overrides",
        r#""limit": "api", "key": ["a"], "quota": "1/s", "for": "-1s""#,
        400,
        "for: ",
    ),
    (
        "PUT",
        "/v1/blocks",
        r#""address": "nowhere""#,
        400,
        "address: ",
    ),
    (
        "PUT",
        "/v1/blocks",
        r#""address": "::1", "limit": "api""#,
        400,
        "limit: ",
    ),
    ("PUT", "/v1/blocks", "", 400, "limit: "),
    (
        "POST",
        "/v1/resets",
        r#""limit": "api", "key": ["a"], "quota": "1/s""#,
        400,
        "quota: ",
    ),
    (
        "POST",
        "/v1/resets",
        r#""limit": "api", "keys": ["a"]"#,
        400,
        "body: ",
    ),
    (
        "POST",
        "/v1/reload",
        "",
        409,
        "the policy does not come from a file",
    ),
];

#[tokio::test]
async fn invalid_operator_requests_are_refused_by_field() {
    let admin = serve_admin(POLICY).await;
    let mut operator = admin.operator().await;
    for (method, path, body, status, words) in INVALID_REQUESTS {
        let answer = operator.change(method, path, body).await;
        assert_eq!(answer.status, *status, "{path} {body}");
        assert!(answer.problem().starts_with(words), "{}", answer.problem());
    }
    assert_eq!(
        operator.get("/v1/audit").await.json(),
        json!({ "events": [] })
    );
    let long = format!(r#""limit": "{}", "to": "off""#, "x".repeat(20_000));
    let mut other = admin.operator().await;
    assert_eq!(other.put("/v1/switches", &long).await.status, 413);
    assert_eq!(operator.get("/v1/state?x=1").await.status, 400);
    assert_eq!(operator.get("/v2/state").await.status, 404);
}

#[tokio::test]
async fn the_policy_file_is_reloaded_and_its_errors_are_reported() {
    let path = std::env::temp_dir().join(format!("tollgate-admin-{}.yaml", std::process::id()));
    std::fs::write(&path, POLICY).unwrap();
    let clock = std::sync::Arc::new(ManualClock::at(tollgate_core::Timestamp::from_secs(
        1_700_000_000,
    )));
    let app = HttpApi::from_file(
        &path,
        1_000,
        std::sync::Arc::clone(&clock),
        tollgate_server::Secret::random(),
    )
    .unwrap();
    let admin = serve_admin_of(app, clock, AdminTokens::default()).await;
    let mut operator = admin.operator().await;
    let before = operator.get("/v1/policy").await.json();
    assert_eq!(
        (&before["valid"], &before["generation"]),
        (&json!(true), &json!(1))
    );
    let file = before["file"].as_str().unwrap();
    assert!(file.contains("tollgate-admin-"), "{file}");
    std::fs::write(&path, "limits: [{ name: api, rate: 5/fortnight }]").unwrap();
    let refused = operator.change("POST", "/v1/reload", "").await;
    assert_eq!(refused.status, 422);
    assert!(
        refused.problem().contains("fortnight"),
        "{}",
        refused.problem()
    );
    let wrong = operator.get("/v1/policy").await.json();
    assert_eq!(
        (&wrong["valid"], &wrong["generation"]),
        (&json!(false), &json!(1))
    );
    assert!(wrong["problems"].as_str().unwrap().contains("fortnight"));
    assert_eq!(
        value_at(&wrong, "limits.1.name"),
        "trial",
        "the last good one stays"
    );
    std::fs::write(&path, "limits: [{ name: api, rate: 5/s }]").unwrap();
    let reloaded = operator.change("POST", "/v1/reload", "").await;
    assert_eq!(reloaded.json(), json!({ "done": true, "generation": 2 }));
    std::fs::remove_file(&path).unwrap();
}

const SECRET: &str = "sk_live_4eC39HqLyjWDarjtT1zdp7dc";

/// The read permission reveals the state of the server, but no keys.
#[tokio::test]
async fn s39_nothing_that_a_reader_sees_has_a_key_in_it() {
    let text = format!(
        r#"
deny: [{{ match: {{ header.authorization: "Bearer {SECRET}" }} }}]
divergence_threshold: 1%
limits:
  - name: api
    key: header.x-api-key
    rate: 2/h
    candidate: {{ rate: 1/h }}
    overrides: [{{ key: ["{SECRET}"], rate: 3/h }}]
"#
    );
    let admin = serve_admin(&text).await;
    for _ in 0..5 {
        admin.check(SECRET);
        admin.check("somebody-else-entirely");
    }
    let mut reader = admin.operator().await;
    for path in [
        "/metrics",
        "/v1/state",
        "/v1/policy",
        "/v1/limits",
        "/v1/switches",
    ] {
        let page = reader.get(path).await.body;
        assert!(!page.contains(SECRET), "{path}: {page}");
        assert!(!page.contains("somebody-else"), "{path}: {page}");
    }
    let state = reader.get("/v1/state").await.json();
    assert_eq!(value_at(&state, "divergences.0.limit"), "api");
    let key = value_at(&state, "divergences.0.top.0.key")
        .as_str()
        .unwrap();
    assert!(
        key.len() == 32 && key.bytes().all(|digit| digit.is_ascii_hexdigit()),
        "{key}"
    );
    assert_eq!(
        value_at(&state, "stores.0.live").as_u64(),
        Some(3),
        "{state}"
    );
}
