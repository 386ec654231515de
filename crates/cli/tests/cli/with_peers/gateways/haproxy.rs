//! HAProxy, which asks with the Lua of the example.

use tollgate_testkit::peer_programs;

use super::{ALICE, BOB, GatewayFixture, GatewayKind, order, shared_checks};

const HAPROXY: GatewayKind = GatewayKind {
    name: "haproxy",
    program: || peer_programs::program("haproxy"),
    arguments: &["-db", "-f", "haproxy.cfg"],
};

#[test]
fn exactly_the_limit_passes_and_refusals_can_be_acted_on() {
    let scene = shared_checks::exactly_the_limit_passes_and_refusals_can_be_acted_on(&HAPROXY);
    shared_checks::what_we_cannot_read_does_not_pass(&scene, &[400, 431, 503]);
}

#[test]
fn a_crowd_is_admitted_exactly_to_the_limit() {
    shared_checks::a_crowd_is_admitted_exactly_to_the_limit(&HAPROXY);
}

#[test]
fn what_an_admission_says_reaches_the_client() {
    let scene = GatewayFixture::new(&HAPROXY);
    let passed = order(ALICE).ask(scene.gateway.address);
    let stands = passed.field("RateLimit").unwrap();
    assert!(stands.contains(r#""orders";r=2;"#), "{stands}");
    let policy = passed.field("RateLimit-Policy").unwrap();
    assert!(policy.contains(r#""orders";q=3;"#), "{policy}");
}

#[test]
fn it_says_503_while_the_server_is_gone() {
    shared_checks::nothing_passes_while_the_server_is_gone(&HAPROXY, 503);
}

#[test]
fn it_says_503_while_the_server_is_silent() {
    shared_checks::nothing_passes_while_the_server_is_silent(&HAPROXY, 503);
}

/// The other setting of the example: what is not answered passes, and still nothing that Tollgate refuses.
#[test]
fn told_to_stay_open_it_lets_through_what_nobody_answers_and_nothing_else() {
    let (closed, open) = ("local OPEN = false", "local OPEN = true");
    let is_there = super::example(HAPROXY.name)
        .iter()
        .any(|(_, text)| text.contains(closed));
    assert!(is_there, "the example has another name for it");
    let mut scene = GatewayFixture::with(&HAPROXY, |text| text.replace(closed, open));
    shared_checks::what_we_cannot_read_does_not_pass(&scene, &[400, 431, 503]);
    for expected in [200, 200, 200, 429] {
        assert_eq!(order(ALICE).ask(scene.gateway.address).status, expected);
    }
    scene.server.kill();
    for client in [ALICE, BOB] {
        assert_eq!(order(client).ask(scene.gateway.address).status, 200);
    }
}
