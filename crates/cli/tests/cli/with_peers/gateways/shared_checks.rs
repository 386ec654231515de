//! Checks that hold for every gateway. Must not know: which gateway it is.

use std::thread;

use super::{ALICE, BOB, CROWD, GatewayFixture, GatewayKind, POLICY, order};
use crate::with_peers::client::{ParsedResponse, RawRequest};
use crate::with_peers::server::Server;

/// Exactly the limit passes, whatever clients put into forwarded fields. Then clients get a refusal with `Retry-After`.
pub(super) fn exactly_the_limit_passes_and_refusals_have_retry_after(
    kind: &GatewayKind,
) -> GatewayFixture {
    let fixture = GatewayFixture::new(kind);
    let (gateway, before) = (fixture.gateway.address, fixture.upstream.answered());
    for left in [2, 1, 0] {
        let passed = order(ALICE).ask(gateway);
        assert_eq!(passed.status, 200, "{left} left: {passed:?}");
        assert!(
            passed.body.starts_with("POST /orders?page=1 "),
            "{passed:?}"
        );
        assert!(
            passed.body.ends_with("\r\n\r\ntwo lamps"),
            "the body reached the upstream: {passed:?}"
        );
    }
    let refused = order(ALICE).ask(gateway);
    is_a_refusal(&refused);
    assert_eq!(refused.json()["limits"][0]["name"], "per-address");
    assert_eq!(
        refused.json()["limits"][0]["remaining"],
        97,
        "forged addresses are ignored: {refused:?}"
    );
    assert_eq!(fixture.passed_since(before), 3);

    // Other clients have their own quota, and other requests do not match this limit.
    assert_eq!(order(BOB).ask(gateway).status, 200);
    let other = RawRequest::get("/orders?page=1").from(ALICE);
    assert_eq!(other.ask(gateway).status, 200);
    fixture
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

/// Of many concurrent requests exactly the limit passes: the gateway asks once for each request.
pub(super) fn of_concurrent_requests_exactly_the_limit_passes(kind: &GatewayKind) {
    let fixture = GatewayFixture::new(kind);
    let (gateway, before) = (fixture.gateway.address, fixture.upstream.answered());
    let crowd: Vec<_> = (0..24)
        .map(|_| thread::spawn(move || order(CROWD).ask(gateway).status))
        .collect();
    let statuses: Vec<_> = crowd
        .into_iter()
        .map(|client| client.join().unwrap())
        .collect();
    let count = |status| statuses.iter().filter(|one| **one == status).count();
    assert_eq!((count(200), count(429)), (3, 21), "{statuses:?}");
    assert_eq!(fixture.passed_since(before), 3);
}

/// These gateways copy the fields of an admission to the upstream and not to the client.
pub(super) fn the_fields_of_an_admission_reach_the_upstream_and_not_the_client(kind: &GatewayKind) {
    let fixture = GatewayFixture::new(kind);
    let passed = order(ALICE).ask(fixture.gateway.address);
    assert_eq!(passed.field("RateLimit"), None);
    assert!(
        passed.body.contains("\r\nRatelimit: \"per-address\";r=99;"),
        "{passed:?}"
    );
}

/// While Tollgate is gone, clients get this status and nothing passes. Afterwards requests pass again.
pub(super) fn nothing_passes_while_tollgate_is_gone(kind: &GatewayKind, status: u16) {
    let mut fixture = GatewayFixture::new(kind);
    let (gateway, before) = (fixture.gateway.address, fixture.upstream.answered());
    fixture.server.kill();
    let answer = order(ALICE).ask(gateway);
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(fixture.passed_since(before), 0);
    fixture.server = Server::start_at(fixture.server.http, POLICY);
    assert_eq!(order(ALICE).ask(gateway).status, 200);
    assert_eq!(fixture.passed_since(before), 1);
}

/// While Tollgate accepts connections and does not answer, clients get this status and nothing passes.
pub(super) fn nothing_passes_while_tollgate_is_silent(kind: &GatewayKind, status: u16) {
    let fixture = GatewayFixture::new(kind);
    let (gateway, before) = (fixture.gateway.address, fixture.upstream.answered());
    fixture.server.freeze();
    let answer = order(ALICE).ask(gateway);
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(fixture.passed_since(before), 0);
    fixture.server.thaw();
    // The request of ALICE may have been charged, so another client checks that requests pass.
    assert_eq!(order(BOB).ask(gateway).status, 200);
}

/// Requests with more or longer fields than Tollgate reads do not bypass the limits.
pub(super) fn requests_that_tollgate_cannot_read_do_not_pass(
    fixture: &GatewayFixture,
    statuses: &[u16],
) {
    let before = fixture.upstream.answered();
    let many = (0..70).fold(order(BOB), |request, index| {
        request.with(&format!("x-field-{index}"), "1")
    });
    let answer = many.ask(fixture.gateway.address);
    assert!(statuses.contains(&answer.status), "{answer:?}");
    let long = "x".repeat(20_000);
    let answer = order(BOB)
        .with("x-long", &long)
        .ask(fixture.gateway.address);
    assert!(statuses.contains(&answer.status), "{answer:?}");
    assert_eq!(fixture.passed_since(before), 0);
}

/// After the limit of `/orders` is used up, no spelling of it passes. Gateways redirect or refuse some by themselves.
pub(super) fn no_spelling_passes_beyond_the_limit(fixture: &GatewayFixture) {
    let before = fixture.upstream.answered();
    for path in [
        "/orders%2f",
        "/ORDERS",
        "/orders;x",
        "//orders",
        "/./orders",
        "/a/../orders",
        "/a/..;/orders",
        "/%6Frders",
        "/orders\\",
        "/orders%5C",
        "/orders%00",
        "/orders%0a",
        "/orders%zz",
        "/orders/",
    ] {
        let spelled = RawRequest::post(&format!("{path}?page=1"), "two lamps");
        let answer = spelled
            .from(ALICE)
            .with("host", "shop.example")
            .ask(fixture.gateway.address);
        assert!((300..500).contains(&answer.status), "{path}: {answer:?}");
    }
    let host = RawRequest::post("/orders?page=1", "two lamps").from(ALICE);
    let answer = host
        .with("host", "Shop.Example.:80")
        .ask(fixture.gateway.address);
    assert_eq!(answer.status, 429, "{answer:?}");
    assert_eq!(fixture.passed_since(before), 0);
}
