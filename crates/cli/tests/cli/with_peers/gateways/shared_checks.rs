//! What must hold behind every gateway. Must not know: which one it is.

use std::thread;

use super::{ALICE, BOB, CROWD, GatewayFixture, GatewayKind, POLICY, order};
use crate::with_peers::client::{ParsedResponse, RawRequest};
use crate::with_peers::server::Server;

/// Exactly the limit is let through, whatever clients say of themselves; then they see a refusal that they can act on.
pub(super) fn exactly_the_limit_passes_and_refusals_can_be_acted_on(
    kind: &GatewayKind,
) -> GatewayFixture {
    let scene = GatewayFixture::new(kind);
    let (gateway, before) = (scene.gateway.address, scene.upstream.answered());
    for left in [2, 1, 0] {
        let passed = order(ALICE).ask(gateway);
        assert_eq!(passed.status, 200, "{left} left: {passed:?}");
        assert!(
            passed.body.starts_with("POST /orders?page=1 "),
            "{passed:?}"
        );
        assert!(
            passed.body.ends_with("\r\n\r\ntwo lamps"),
            "the body went on: {passed:?}"
        );
    }
    let refused = order(ALICE).ask(gateway);
    is_a_refusal(&refused);
    assert_eq!(refused.json()["limits"][0]["name"], "per-address");
    assert_eq!(
        refused.json()["limits"][0]["remaining"],
        97,
        "the same address, whatever it says: {refused:?}"
    );
    assert_eq!(scene.passed_since(before), 3);

    // Others have a quota of their own, and other requests are not limited by this one.
    assert_eq!(order(BOB).ask(gateway).status, 200);
    let other = RawRequest::get("/orders?page=1").from(ALICE);
    assert_eq!(other.ask(gateway).status, 200);
    scene
}

fn is_a_refusal(refused: &ParsedResponse) {
    assert_eq!(refused.status, 429, "{refused:?}");
    let field = |name| {
        refused
            .field(name)
            .unwrap_or_else(|| panic!("{name}: {refused:?}"))
    };
    let seconds: u64 = field("Retry-After").parse().unwrap();
    assert!((1_000..=1_200).contains(&seconds), "{seconds}");
    let stands = field("RateLimit");
    assert!(stands.contains(r#""orders";r=0;t=1"#), "{stands}");
    let policy = field("RateLimit-Policy");
    assert!(policy.contains(r#""orders";q=3;w=3600"#), "{policy}");
    assert_eq!(field("Cache-Control"), "no-store");
    assert_eq!(field("Content-Type"), "application/problem+json");
    assert_eq!(refused.json()["violated-policies"][0], "orders");
}

/// Many at once are admitted exactly to the limit: nobody asks twice for one request, and nobody forgets to ask.
pub(super) fn a_crowd_is_admitted_exactly_to_the_limit(kind: &GatewayKind) {
    let scene = GatewayFixture::new(kind);
    let (gateway, before) = (scene.gateway.address, scene.upstream.answered());
    let crowd: Vec<_> = (0..24)
        .map(|_| thread::spawn(move || order(CROWD).ask(gateway).status))
        .collect();
    let statuses: Vec<_> = crowd
        .into_iter()
        .map(|client| client.join().unwrap())
        .collect();
    let count = |status| statuses.iter().filter(|one| **one == status).count();
    assert_eq!((count(200), count(429)), (3, 21), "{statuses:?}");
    assert_eq!(scene.passed_since(before), 3);
}

/// What an admission says is the upstream's to read: these gateways do not hand it to the client.
pub(super) fn what_an_admission_says_reaches_the_upstream_and_not_the_client(kind: &GatewayKind) {
    let scene = GatewayFixture::new(kind);
    let passed = order(ALICE).ask(scene.gateway.address);
    assert_eq!(passed.field("RateLimit"), None);
    assert!(
        passed.body.contains("\r\nRatelimit: \"per-address\";r=99;"),
        "{passed:?}"
    );
}

/// A server that is gone: the client sees this status, nothing passes, and all is well once it is back.
pub(super) fn nothing_passes_while_the_server_is_gone(kind: &GatewayKind, status: u16) {
    let mut scene = GatewayFixture::new(kind);
    let (gateway, before) = (scene.gateway.address, scene.upstream.answered());
    scene.server.kill();
    let answer = order(ALICE).ask(gateway);
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(scene.passed_since(before), 0);
    scene.server = Server::start_at(scene.server.http, POLICY);
    assert_eq!(order(ALICE).ask(gateway).status, 200);
    assert_eq!(scene.passed_since(before), 1);
}

/// A server that takes connections and says nothing.
pub(super) fn nothing_passes_while_the_server_is_silent(kind: &GatewayKind, status: u16) {
    let scene = GatewayFixture::new(kind);
    let (gateway, before) = (scene.gateway.address, scene.upstream.answered());
    scene.server.freeze();
    let answer = order(ALICE).ask(gateway);
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(scene.passed_since(before), 0);
    scene.server.thaw();
    // What was asked in the meantime may have been charged, but another client is served at once.
    assert_eq!(order(BOB).ask(gateway).status, 200);
}

/// More fields than we read are no way around the limits.
pub(super) fn what_we_cannot_read_does_not_pass(scene: &GatewayFixture, statuses: &[u16]) {
    let before = scene.upstream.answered();
    let many = (0..70).fold(order(BOB), |request, index| {
        request.with(&format!("x-field-{index}"), "1")
    });
    let answer = many.ask(scene.gateway.address);
    assert!(statuses.contains(&answer.status), "{answer:?}");
    let long = "x".repeat(20_000);
    let answer = order(BOB).with("x-long", &long).ask(scene.gateway.address);
    assert!(statuses.contains(&answer.status), "{answer:?}");
    assert_eq!(scene.passed_since(before), 0);
}
