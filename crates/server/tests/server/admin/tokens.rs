//! Read and operate permissions.

use std::sync::Arc;

use tollgate_core::Timestamp;
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

/// Tokens of 16 digits were accepted everywhere. Guessing cannot be stopped by refusing requests, because that also refuses the
/// operator, so a token has to be too long to guess.
#[test]
fn a_token_below_128_bits_is_refused_where_other_machines_can_connect() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1)));
    let app = Arc::new(HttpApi::new(&policy(POLICY), 10, clock).unwrap());
    let admin = |place: &str, read: Option<&str>, operate: Option<&str>| {
        let tokens = AdminTokens::new(read, operate).unwrap();
        AdminApi::new(Arc::clone(&app), &place.parse().unwrap(), tokens).err()
    };
    let open = "0.0.0.0:8088";
    let weak = [
        "0123456789abcdef".to_owned(),
        // 31 hexadecimal digits, 38 decimal ones, 21 characters of base64.
        "f3a9c1d07e58b264f3a9c1d07e58b26".to_owned(),
        "82719460351827194603518271946035182719".to_owned(),
        "qT8nZr4wLx0pVd7sKb2mJ".to_owned(),
        // Long, and nobody's random token.
        "x".repeat(100),
        "abababab".repeat(12),
    ];
    for token in &weak {
        let refused = admin(open, Some(token), None);
        assert_eq!(refused, Some(InvalidAdmin::WeakToken("read")), "{token}");
        let refused = admin(open, None, Some(token));
        assert_eq!(refused, Some(InvalidAdmin::WeakToken("operate")), "{token}");
        assert_eq!(admin("127.0.0.1:0", Some(token), None), None, "{token}");
    }
    for strong in [
        "f3a9c1d07e58b264f3a9c1d07e58b264",
        "F3A9C1D07E58B264F3A9C1D07E58B264",
        "827194603518271946035182719460351827194",
        "qT8nZr4wLx0pVd7sKb2mJg",
        OPERATE,
    ] {
        assert_eq!(admin(open, Some(strong), None), None, "{strong}");
    }
    let message = InvalidAdmin::WeakToken("read").to_string();
    assert!(message.contains("openssl rand -hex 32"), "{message}");
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
