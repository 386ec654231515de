//! Charges and refunds of a key's units over the admin listener.

use serde_json::json;

use super::serve_admin;

const POLICY: &str = r#"
limits:
  - { name: api, key: header.x-api-key, rate: 3/h }
  - { name: jobs, key: header.x-job, concurrency: 20 }
  - { name: plans, key: header.x-user, rate: 10/h, tiers: { by: claim.plan, pro: 100/h } }
"#;

/// The operation that rate-limiter-flexible calls `penalty` and `reward`.
#[tokio::test]
async fn an_operator_charges_and_refunds_units_of_one_key() {
    let admin = serve_admin(POLICY).await;
    let mut operator = admin.operator().await;
    let body = r#""limit": "api", "key": ["a"], "units": 2"#;
    let charged = operator.change("POST", "/v1/charges", body).await;
    assert_eq!(charged.json(), json!({ "done": true, "remaining": 1 }));
    assert!(admin.check("a") && !admin.check("a"));
    assert!(admin.check("b"), "other keys are not charged");
    let refunded = operator.change("POST", "/v1/refunds", body).await;
    assert_eq!(refunded.json(), json!({ "done": true, "remaining": 2 }));
    assert!(admin.check("a") && admin.check("a") && !admin.check("a"));
    let much = r#""limit": "api", "key": "a", "units": 9007199254740991"#;
    let refunded = operator.change("POST", "/v1/refunds", much).await;
    assert_eq!(refunded.json()["remaining"], 3, "the bucket is full");
    let plan = r#""limit": "plans", "key": "u", "units": 30, "attributes": {"claim.plan": "pro"}"#;
    let charged = operator.change("POST", "/v1/charges", plan).await;
    assert_eq!(charged.json()["remaining"], 70);
    let audit = operator.get("/v1/audit").await.json();
    assert_eq!(
        audit["events"][3]["what"],
        "2 units charged to key `a` of limit `api`"
    );
    let page = operator.get("/metrics").await.body;
    for line in [
        "tollgate_operator_adjustments_total{what=\"charge\"} 2\n",
        "tollgate_operator_adjustments_total{what=\"refund\"} 2\n",
    ] {
        assert!(page.contains(line), "{line}");
    }
}

#[tokio::test]
async fn invalid_charges_and_refunds_name_the_field_and_change_nothing() {
    let admin = serve_admin(POLICY).await;
    let mut operator = admin.operator().await;
    for (body, status, expected) in [
        (r#""limit": "api", "key": "a""#, 400, "units: "),
        (
            r#""limit": "api", "key": "a", "units": 0"#,
            400,
            "units: \"0\"",
        ),
        (
            r#""limit": "api", "key": "a", "units": -1"#,
            400,
            "units: \"-1\"",
        ),
        (
            r#""limit": "api", "key": "a", "units": 1.5"#,
            400,
            "units: \"1.5\"",
        ),
        (r#""limit": "api", "units": 1"#, 400, "key: "),
        (r#""key": "a", "units": 1"#, 400, "limit: "),
        (
            r#""limit": "apj", "key": "a", "units": 1"#,
            404,
            "limit: there is no limit `apj`",
        ),
        (
            r#""limit": "jobs", "key": "a", "units": 1"#,
            400,
            "limit: units of `jobs` cannot be charged or refunded: it counts requests in progress",
        ),
        (
            r#""limit": "plans", "key": "a", "units": 1"#,
            400,
            "attributes: the quota of `plans` depends on the request",
        ),
        (
            r#""limit": "plans", "key": "a", "units": 1, "attributes": {"claim": "x"}"#,
            400,
            "attributes.claim: ",
        ),
        (
            r#""limit": "api", "key": "a", "units": 1, "for": "1h""#,
            400,
            "for: ",
        ),
    ] {
        for path in ["/v1/charges", "/v1/refunds"] {
            let answer = operator.change("POST", path, body).await;
            assert_eq!(answer.status, status, "{path} {body}");
            assert!(
                answer.problem().starts_with(expected),
                "{}",
                answer.problem()
            );
        }
    }
    assert_eq!(
        operator.get("/v1/audit").await.json(),
        json!({ "events": [] })
    );
    assert!(admin.check("a") && admin.check("a") && admin.check("a"));
}
