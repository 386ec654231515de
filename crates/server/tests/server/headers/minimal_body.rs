//! `Prefer: return=minimal` and the setting: the same status and header fields, without a body.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_server::{BodyForm, HttpApi, HttpLimits};
use tollgate_store::ManualClock;

use super::NOW;
use crate::harness::{HttpClient, HttpReply, TestServer, policy, serve_app};

const POLICY: &str = "
limits:
  - { name: api, key: header.x-api-key, rate: 1/m, burst: 2, missing: skip }
  - { name: slow, key: header.x-slow, rate: 1/s, wait: 5s, missing: skip }
  - { name: held, key: header.x-held, concurrency: 2, missing: skip }
";
const BODY: &str = r#"{"key":"a"}"#;

async fn serve(form: BodyForm) -> TestServer<ManualClock> {
    let clock = Arc::new(ManualClock::at(NOW));
    let app = HttpApi::new(&policy(POLICY), 1_000, Arc::clone(&clock)).unwrap();
    serve_app(app.with_body_form(form), clock, HttpLimits::default()).await
}

/// A check. Without `is_plain` hyper parses the request.
async fn check(client: &mut HttpClient, prefer: &str, is_plain: bool, body: &str) -> HttpReply {
    let mut fields = vec![("prefer", prefer)];
    if !is_plain {
        fields.push(("origin", "http://127.0.0.1:1"));
        fields.push(("content-type", "application/json"));
    }
    client
        .request_with("POST", "/v1/check", &fields, body)
        .await
}

/// All fields but those about the body, and without the digests of keys, which differ between servers.
fn other_fields(reply: &HttpReply) -> BTreeMap<String, Option<String>> {
    let left_out = [
        "content-type",
        "content-length",
        "preference-applied",
        "date",
    ];
    let names = reply.fields().map(|(name, _)| name);
    names
        .filter(|name| !left_out.contains(name))
        .map(|name| match name.starts_with("ratelimit") {
            true => (name.to_owned(), reply.field_without_keys(name)),
            false => (name.to_owned(), reply.field(name).map(str::to_owned)),
        })
        .collect()
}

#[tokio::test]
async fn a_minimal_response_has_the_status_and_fields_of_the_full_one() {
    for is_plain in [true, false] {
        let (full, minimal) = (serve(BodyForm::Full).await, serve(BodyForm::Full).await);
        let (mut full, mut minimal) = (full.connect().await, minimal.connect().await);
        for status in [200, 200, 429] {
            let whole = check(&mut full, "return=representation", is_plain, BODY).await;
            let brief = check(&mut minimal, "return=minimal", is_plain, BODY).await;
            assert_eq!((whole.status, brief.status), (status, status));
            assert_eq!(other_fields(&whole), other_fields(&brief));
            assert!(brief.field("ratelimit").is_some());
            assert_eq!(whole.json()["allowed"], status == 200);
            assert_eq!(brief.body, "");
            assert_eq!(brief.field("content-length"), Some("0"));
            assert_eq!(brief.field("content-type"), None);
            let applied = |reply: &HttpReply| reply.field("preference-applied").map(str::to_owned);
            assert_eq!(applied(&brief).as_deref(), Some("return=minimal"));
            assert_eq!(applied(&whole).as_deref(), Some("return=representation"));
        }
    }
}

#[tokio::test]
async fn the_setting_is_the_default_and_clients_override_it() {
    let server = serve(BodyForm::Minimal).await;
    let mut client = server.connect().await;
    let brief = client.get("/v1/check?key=a").await;
    assert_eq!((brief.status, &*brief.body), (200, ""));
    assert_eq!(brief.field("preference-applied"), None, "nobody asked");
    assert!(brief.field("ratelimit").is_some());
    let whole = check(&mut client, "return=representation", true, BODY).await;
    assert_eq!(whole.json()["allowed"], true);
    let denied = client.get("/v1/check?key=a").await;
    assert_eq!((denied.status, &*denied.body), (429, ""));
    assert_eq!(denied.field("retry-after"), Some("60"));
}

/// Status and fields say nothing of tickets and waits, and an error without its reason helps nobody.
#[tokio::test]
async fn a_body_that_the_client_needs_is_sent_all_the_same() {
    let server = serve(BodyForm::Minimal).await;
    let mut client = server.connect().await;
    let held = r#"{"attributes":{"header.x-held":"a"}}"#;
    let held = check(&mut client, "return=minimal", true, held).await;
    assert!(held.json()["ticket"].is_string(), "{}", held.body);
    assert_eq!(held.field("preference-applied"), None);
    let slow = r#"{"attributes":{"header.x-slow":"a"}}"#;
    assert_eq!(
        check(&mut client, "return=minimal", true, slow).await.body,
        ""
    );
    let waits = check(&mut client, "return=minimal", true, slow).await;
    assert_eq!(waits.json()["wait_ms"], 1_000);
    let wrong = check(&mut client, "return=minimal", true, r#"{"cost":-1}"#).await;
    assert!(wrong.problem().starts_with("cost: "), "{}", wrong.body);
    let fields = [("prefer", "return=minimal")];
    let acquired = client
        .request_with("POST", "/v1/acquire", &fields, BODY)
        .await;
    assert_eq!(acquired.json()["allowed"], true);
}
