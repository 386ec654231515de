//! Web pages: a page of another site in somebody's browser cannot charge a limit here. Browsers send such requests without
//! asking first if the body is `text/plain`, a form, or without a type.

use crate::harness::{HttpReply, TestServer, serve_demo};
use tollgate_store::ManualClock;

const BODY: &str = r#"{"key": "a"}"#;
const EVIL: (&str, &str) = ("origin", "https://evil.example");
const CROSS: (&str, &str) = ("sec-fetch-site", "cross-site");

const fn typed(value: &'static str) -> (&'static str, &'static str) {
    ("content-type", value)
}

async fn post(server: &TestServer<ManualClock>, path: &str, fields: &[(&str, &str)]) -> HttpReply {
    let mut client = server.connect().await;
    client.request_with("POST", path, fields, BODY).await
}

#[tokio::test]
async fn only_json_is_accepted_from_a_page_of_another_site() {
    let server = serve_demo().await;
    let cases: [(&[(&str, &str)], u16); 15] = [
        // Any client.
        (&[typed("application/json")], 200),
        (&[typed("application/json; charset=utf-8")], 200),
        (&[typed("application/vnd.acme+json")], 200),
        (&[], 200),
        // `curl -d` says this of any body.
        (&[typed("application/x-www-form-urlencoded")], 200),
        (&[typed("text/plain")], 415),
        (&[typed("text/plain;charset=UTF-8")], 415),
        (&[typed("text/plain; application/json")], 415),
        (&[typed("multipart/form-data; boundary=x")], 415),
        (&[typed("application/octet-stream")], 415),
        // A page: a preflight would have to come before JSON, and none is ever allowed.
        (&[typed("application/json"), EVIL], 200),
        (&[typed("application/x-www-form-urlencoded"), EVIL], 415),
        (&[typed("application/x-www-form-urlencoded"), CROSS], 415),
        (&[EVIL], 415),
        (&[("origin", "null")], 415),
    ];
    for (fields, status) in cases {
        let answer = post(&server, "/v1/check", fields).await;
        assert_eq!(answer.status, status, "{fields:?}");
    }
    let refused = post(&server, "/v1/check", &[typed("text/plain")]).await;
    let detail = r#"content-type: "text/plain" is not valid: it must be application/json; with curl use --json"#;
    assert_eq!(refused.problem(), detail);
    // Nothing was charged by what was refused: 7 of 20.
    let left = server.get("/v1/status?key=a").await.json();
    assert_eq!(left["limits"][0]["remaining"], 14);
}

#[tokio::test]
async fn every_endpoint_that_takes_a_body_refuses_text() {
    let server = serve_demo().await;
    for path in [
        "/v1/check",
        "/v1/check/batch",
        "/v1/acquire",
        "/v1/reserve",
        "/v1/respond",
        "/v1/settle",
        "/v1/cancel",
        "/v1/renew",
        "/v1/release",
        "/json",
    ] {
        let answer = post(&server, path, &[typed("text/plain")]).await;
        assert_eq!(answer.status, 415, "{path}");
        let answer = post(&server, path, &[typed("application/json")]).await;
        assert_ne!(answer.status, 415, "{path}");
    }
    let asks = [EVIL, ("access-control-request-method", "POST")];
    let mut browser = server.connect().await;
    let answer = browser
        .request_with("OPTIONS", "/v1/check", &asks, "")
        .await;
    assert_eq!(answer.status, 405, "no preflight is allowed");
    assert_eq!(answer.field("access-control-allow-origin"), None);
}

/// An image of another site is a GET, and `GET /v1/check` charges.
#[tokio::test]
async fn a_page_of_another_site_cannot_charge_with_get() {
    let server = serve_demo().await;
    let cases: [(&[(&str, &str)], u16); 6] = [
        (&[], 200),
        (&[("sec-fetch-site", "none")], 200),
        (&[("sec-fetch-site", "same-origin")], 200),
        (&[("sec-fetch-site", "same-site")], 403),
        (&[CROSS], 403),
        (&[EVIL], 403),
    ];
    for (fields, status) in cases {
        let mut browser = server.connect().await;
        let answer = browser
            .request_with("GET", "/v1/check?key=a", fields, "")
            .await;
        assert_eq!(answer.status, status, "{fields:?}");
    }
    let mut browser = server.connect().await;
    for (path, status) in [
        ("/healthz", 200),
        ("/v1/limits", 200),
        ("/v1/status?key=a", 200),
    ] {
        let answer = browser.request_with("GET", path, &[CROSS], "").await;
        assert_eq!(answer.status, status, "{path} changes nothing");
    }
    let left = server.get("/v1/status?key=a").await.json();
    assert_eq!(left["limits"][0]["remaining"], 17);
}
