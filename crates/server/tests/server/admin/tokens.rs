//! Read and operate permissions.

use std::sync::Arc;

use tollgate_core::{Nanos, Timestamp};
use tollgate_server::HttpApi;
use tollgate_server::admin::{AdminApi, AdminTokens, InvalidAdmin};
use tollgate_server::listen::ListenAddress;
use tollgate_store::ManualClock;

use super::{OPERATE, READ, serve_admin, serve_admin_with_tokens};
use crate::harness::policy;

const POLICY: &str = "limits: [{ name: api, key: header.x-api-key, rate: 2/h }]";
const HALT: &str = r#""limit": "*", "to": "off""#;

fn both() -> AdminTokens {
    AdminTokens::new(Some(READ), Some(OPERATE)).unwrap()
}

#[tokio::test]
async fn on_loopback_without_tokens_every_local_client_may_operate() {
    let admin = serve_admin(POLICY).await;
    let mut operator = admin.operator().await;
    assert_eq!(operator.get("/metrics").await.status, 200);
    assert_eq!(operator.put("/v1/switches", HALT).await.status, 200);
}

#[test]
fn s39_an_admin_listener_that_other_machines_can_reach_needs_tokens() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1)));
    let app = Arc::new(HttpApi::new(&policy(POLICY), 10, clock).unwrap());
    for place in ["0.0.0.0:8088", "[::]:8088", "192.0.2.1:8088"] {
        let place: ListenAddress = place.parse().unwrap();
        let admin = |tokens| AdminApi::new(Arc::clone(&app), &place, tokens).err();
        assert_eq!(
            admin(AdminTokens::default()),
            Some(InvalidAdmin::Unprotected)
        );
        assert_eq!(admin(both()), None);
        assert_eq!(admin(AdminTokens::new(Some(READ), None).unwrap()), None);
    }
    for place in ["127.0.0.1:0", "[::1]:0", "unix:/run/admin.sock"] {
        let place: ListenAddress = place.parse().unwrap();
        assert!(AdminApi::new(Arc::clone(&app), &place, AdminTokens::default()).is_ok());
    }
    let words = InvalidAdmin::Unprotected.to_string();
    assert!(words.contains("--admin-operate-token-file"), "{words}");
}

#[tokio::test]
async fn tokens_are_required_on_loopback_too_and_each_has_its_own_permission() {
    let admin = serve_admin_with_tokens(POLICY, both()).await;
    let mut stranger = admin.operator().await;
    for path in ["/", "/metrics", "/v1/state", "/v1/audit", "/nowhere"] {
        let answer = stranger.get(path).await;
        assert_eq!(answer.status, 401, "{path}");
        let challenge = answer.field("www-authenticate");
        assert_eq!(challenge, Some(r#"Bearer realm="tollgate admin""#));
        assert!(answer.problem().starts_with("a token is required"));
    }
    assert_eq!(stranger.put("/v1/switches", HALT).await.status, 401);
    for path in ["/healthz", "/readyz"] {
        assert_eq!(stranger.get(path).await.status, 200, "{path}");
    }
    let mut reader = admin.operator().await.with_token(READ);
    assert_eq!(reader.get("/v1/state").await.status, 200);
    let refused = reader.put("/v1/switches", HALT).await;
    assert_eq!(refused.status, 403);
    assert!(refused.problem().contains("may only read"));
    assert!(admin.check("a") && admin.check("a") && !admin.check("a"));
    let mut operator = admin.operator().await.with_token(OPERATE);
    assert_eq!(operator.get("/v1/state").await.status, 200);
    assert_eq!(operator.put("/v1/switches", HALT).await.status, 200);
    assert!(admin.check("a"), "everything is off");
}

#[tokio::test]
async fn without_an_operate_token_operating_is_disabled() {
    let admin = serve_admin_with_tokens(POLICY, AdminTokens::new(Some(READ), None).unwrap()).await;
    let mut reader = admin.operator().await.with_token(READ);
    assert_eq!(reader.get("/v1/limits").await.status, 200);
    let refused = reader.put("/v1/switches", HALT).await;
    assert_eq!(refused.status, 403);
    assert!(refused.problem().contains("--admin-operate-token-file"));
}

#[tokio::test]
async fn tokens_cannot_be_guessed_for_long() {
    let admin = serve_admin_with_tokens(POLICY, both()).await;
    let mut guesser = admin.operator().await.with_token("guess-0123456789abcdef");
    for _ in 0..10 {
        let answer = guesser.get("/v1/state").await;
        assert_eq!(answer.status, 401);
        let challenge = answer.field("www-authenticate").unwrap();
        assert!(challenge.contains("invalid_token"), "{challenge}");
    }
    let answer = guesser.get("/v1/state").await;
    assert_eq!(
        (answer.status, answer.field("retry-after")),
        (429, Some("6"))
    );
    // From the same address even the right token is refused, so that guessing cannot find it.
    let mut operator = admin.operator().await.with_token(OPERATE);
    assert_eq!(operator.get("/v1/state").await.status, 429);
    assert_eq!(operator.get("/readyz").await.status, 200);
    admin.clock.advance(Nanos::from_secs(6));
    assert_eq!(operator.get("/v1/state").await.status, 200);
    assert_eq!(guesser.get("/v1/state").await.status, 401);
    assert_eq!(guesser.get("/v1/state").await.status, 429);
}

#[tokio::test]
async fn other_authorization_schemes_are_no_tokens() {
    let admin = serve_admin_with_tokens(POLICY, both()).await;
    let mut client = admin.operator().await;
    let bearer = format!("Bearer {OPERATE}");
    let basic = format!("Basic {OPERATE}");
    let lower = format!("bearer   {OPERATE}");
    for (fields, status) in [
        (&[("authorization", bearer.as_str())][..], 200),
        (&[("authorization", &lower)], 200),
        (&[("authorization", &basic)], 401),
        (&[("authorization", OPERATE)], 401),
        (&[("authorization", "Bearer ")], 401),
        (&[("authorization", "")], 401),
        (
            &[("authorization", &bearer), ("authorization", &bearer)],
            401,
        ),
        (&[("x-token", OPERATE)], 401),
    ] {
        let answer = client.request("GET", "/v1/state", fields, "").await;
        assert_eq!(answer.status, status, "{fields:?}");
    }
    let query = format!("/v1/state?token={OPERATE}");
    assert_eq!(client.get(&query).await.status, 401);
}
