//! HAProxy with the Lua script of the example.

use tollgate_testkit::peer_programs;

use super::{ALICE, BOB, GatewayFixture, GatewayKind, order, shared_checks};

const HAPROXY: GatewayKind = GatewayKind {
    name: "haproxy",
    program: || peer_programs::program("haproxy"),
    arguments: &["-db", "-f", "haproxy.cfg"],
};

#[test]
fn exactly_the_limit_passes_and_refusals_have_retry_after() {
    let fixture = shared_checks::exactly_the_limit_passes_and_refusals_have_retry_after(&HAPROXY);
    shared_checks::no_spelling_passes_beyond_the_limit(&fixture);
    shared_checks::requests_that_tollgate_cannot_read_do_not_pass(&fixture, &[400, 431, 503]);
}

#[test]
fn of_concurrent_requests_exactly_the_limit_passes() {
    shared_checks::of_concurrent_requests_exactly_the_limit_passes(&HAPROXY);
}

#[test]
fn the_fields_of_an_admission_reach_the_client() {
    let fixture = GatewayFixture::new(&HAPROXY);
    let passed = order(ALICE).ask(fixture.gateway.address);
    let stands = passed.field("RateLimit").unwrap();
    assert!(stands.contains(r#""orders";r=2;"#), "{stands}");
    let policy = passed.field("RateLimit-Policy").unwrap();
    assert!(policy.contains(r#""orders";q=3;"#), "{policy}");
}

#[test]
fn it_returns_503_while_tollgate_is_gone() {
    shared_checks::nothing_passes_while_tollgate_is_gone(&HAPROXY, 503);
}

#[test]
fn it_returns_503_while_tollgate_is_silent() {
    shared_checks::nothing_passes_while_tollgate_is_silent(&HAPROXY, 503);
}

/// The other setting of the example: requests without a response of Tollgate pass, and denied requests do not.
#[test]
fn with_open_it_admits_requests_only_while_tollgate_does_not_answer() {
    let (closed, open) = ("local OPEN = false", "local OPEN = true");
    let is_there = super::example(HAPROXY.name)
        .iter()
        .any(|(_, text)| text.contains(closed));
    assert!(is_there, "the example has this line");
    let mut fixture = GatewayFixture::with(&HAPROXY, |text| text.replace(closed, open));
    shared_checks::requests_that_tollgate_cannot_read_do_not_pass(&fixture, &[400, 431, 503]);
    for expected in [200, 200, 200, 429] {
        assert_eq!(order(ALICE).ask(fixture.gateway.address).status, expected);
    }
    fixture.server.kill();
    for client in [ALICE, BOB] {
        assert_eq!(order(client).ask(fixture.gateway.address).status, 200);
    }
}
