//! CORS preflights through a gateway: charged to a limit of their own, and no way around the others.

use crate::harness::{HttpReply, TestServer, serve_policy};
use tollgate_store::ManualClock;

const POLICY: &str = "preflights: 3/h\nlimits:\n  - { name: per-address, key: ip, rate: 2/h }\n  - { name: options, match: { method: OPTIONS, host: strict.example }, key: ip, rate: 1/h }\n";

const PREFLIGHT: [(&str, &str); 2] = [
    ("origin", "https://page.example"),
    ("access-control-request-method", "POST"),
];

async fn ask(
    server: &TestServer<ManualClock>,
    (method, host): (&str, &str),
    more: &[(&str, &str)],
) -> HttpReply {
    let mut fields = vec![
        ("x-forwarded-method", method),
        ("x-forwarded-uri", "/api"),
        ("x-forwarded-host", host),
        ("x-forwarded-for", "192.0.2.7"),
    ];
    fields.extend(more);
    let mut client = server.connect().await;
    client
        .request_with("GET", "/auth/traefik", &fields, "")
        .await
}

#[tokio::test]
async fn preflights_have_a_quota_of_their_own_for_each_address() {
    let server = serve_policy(POLICY).await;
    let own = ("OPTIONS", "api.example");
    for left in [2, 1, 0] {
        let allowed = ask(&server, own, &PREFLIGHT).await;
        assert_eq!(allowed.status, 200);
        let field = allowed.field("ratelimit").unwrap();
        assert!(
            field.starts_with(&format!(r#""cors-preflights";r={left}"#)),
            "{field}"
        );
    }
    let denied = ask(&server, own, &PREFLIGHT).await;
    assert_eq!(
        (denied.status, denied.field("retry-after")),
        (429, Some("1200"))
    );
    for _ in 0..2 {
        assert_eq!(
            ask(&server, ("GET", "api.example"), &[]).await.status,
            200,
            "untouched"
        );
    }
    assert_eq!(ask(&server, ("GET", "api.example"), &[]).await.status, 429);
}

#[tokio::test]
async fn a_request_that_is_no_preflight_is_charged_like_any_other() {
    let [origin, requested] = PREFLIGHT;
    let ordinary: [(&str, Vec<(&str, &str)>); 7] = [
        ("OPTIONS", vec![]),
        ("OPTIONS", vec![origin]),
        ("OPTIONS", vec![requested]),
        ("POST", vec![origin, requested]),
        (
            "OPTIONS",
            vec![origin, requested, ("authorization", "Bearer x")],
        ),
        ("OPTIONS", vec![origin, requested, ("cookie", "a=b")]),
        (
            "OPTIONS",
            vec![origin, requested, ("x-http-method-override", "POST")],
        ),
    ];
    for (method, fields) in ordinary {
        let server = serve_policy(POLICY).await;
        let reply = ask(&server, (method, "api.example"), &fields).await;
        let field = reply.field("ratelimit").unwrap();
        assert!(
            field.starts_with(r#""per-address";r=1"#),
            "{method} {fields:?}: {field}"
        );
    }
}

#[tokio::test]
async fn a_limit_that_names_options_applies_to_preflights_too_and_none_switches_them_off() {
    let server = serve_policy(POLICY).await;
    let strict = ("OPTIONS", "strict.example");
    assert_eq!(ask(&server, strict, &PREFLIGHT).await.status, 200);
    assert_eq!(ask(&server, strict, &PREFLIGHT).await.status, 429);
    let server = serve_policy(&POLICY.replace("3/h", "none")).await;
    let reply = ask(&server, ("OPTIONS", "api.example"), &PREFLIGHT).await;
    assert!(
        reply
            .field("ratelimit")
            .unwrap()
            .starts_with(r#""per-address";r=1"#)
    );
}

/// Lists come first: a preflight is no way around `deny`.
#[tokio::test]
async fn lists_decide_before_preflights() {
    let denied = format!("deny: [{{ ip: 192.0.2.7 }}]\n{POLICY}");
    let server = serve_policy(&denied).await;
    assert_eq!(
        ask(&server, ("OPTIONS", "api.example"), &PREFLIGHT)
            .await
            .status,
        403
    );
    let exempt = format!("exempt: [{{ ip: 192.0.2.7 }}]\n{POLICY}");
    let server = serve_policy(&exempt).await;
    for _ in 0..5 {
        assert_eq!(
            ask(&server, ("OPTIONS", "api.example"), &PREFLIGHT)
                .await
                .status,
            200
        );
    }
}
