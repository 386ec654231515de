//! Cross-site requests: a page of another site in an operator's browser gets no data and changes nothing.

use super::{SIGNED, serve_admin, serve_admin_with_tokens};
use tollgate_server::admin::AdminTokens;

const POLICY: &str = "limits: [{ name: api, key: header.x-api-key, rate: 1/h }]";
const JSON: (&str, &str) = ("content-type", "application/json");

fn halt() -> String {
    format!(r#"{{"limit": "*", "to": "off", {SIGNED}}}"#)
}

#[tokio::test]
async fn a_page_of_another_site_cannot_operate() {
    let admin = serve_admin(POLICY).await;
    let mut browser = admin.operator().await;
    let cases: [(&[(&str, &str)], u16); 12] = [
        (&[JSON, ("origin", "https://evil.example")], 403),
        (&[JSON, ("origin", "http://127.0.0.1:9999")], 403),
        (&[JSON, ("origin", "null")], 403),
        (&[JSON, ("sec-fetch-site", "cross-site")], 403),
        (&[JSON, ("sec-fetch-site", "same-site")], 403),
        (&[("content-type", "text/plain")], 415),
        (
            &[("content-type", "application/x-www-form-urlencoded")],
            415,
        ),
        (&[("content-type", "multipart/form-data; boundary=x")], 415),
        (&[], 415),
        (&[JSON, ("origin", "http://127.0.0.1:8088")], 200),
        (&[JSON, ("sec-fetch-site", "same-origin")], 200),
        (&[("content-type", "Application/JSON; charset=utf-8")], 200),
    ];
    for (fields, status) in cases {
        let answer = browser
            .request("PUT", "/v1/switches", fields, &halt())
            .await;
        assert_eq!(answer.status, status, "{fields:?}");
    }
    // No CORS preflight is allowed.
    let asks = [
        ("origin", "https://evil.example"),
        ("access-control-request-method", "PUT"),
    ];
    let answer = browser.request("OPTIONS", "/v1/switches", &asks, "").await;
    assert_eq!(answer.status, 403);
    assert_eq!(answer.field("access-control-allow-origin"), None);
}

#[tokio::test]
async fn a_rebound_dns_name_gets_nothing() {
    let admin = serve_admin(POLICY).await;
    let mut browser = admin.operator().await;
    for (host, status) in [
        ("evil.example", 421),
        ("evil.example:8088", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example:8088", 421),
        ("", 421),
        ("127.0.0.1:8088", 200),
        ("[::1]:8088", 200),
        ("192.0.2.1", 200),
        ("localhost:8088", 200),
        ("LOCALHOST", 200),
        ("admin.localhost:1", 200),
    ] {
        for path in ["/v1/state", "/metrics"] {
            let answer = browser.request("GET", path, &[("host", host)], "").await;
            assert_eq!(answer.status, status, "{host}");
        }
    }
}

#[tokio::test]
async fn a_client_with_a_token_may_use_any_host_name() {
    let tokens = AdminTokens::new(None, Some(super::OPERATE)).unwrap();
    let admin = serve_admin_with_tokens(POLICY, tokens).await;
    let mut operator = admin.operator().await.with_token(super::OPERATE);
    let named = [("host", "tollgate.internal:8088")];
    let answer = operator.request("GET", "/v1/state", &named, "").await;
    assert_eq!(answer.status, 200);
}
