//! HAProxy, which asks with the Lua of the example.

use tollgate_testkit::beside;

use super::{ALICE, BOB, Kind, Scene, order, story};

const HAPROXY: Kind = Kind {
    name: "haproxy",
    program: || beside::program("haproxy"),
    arguments: &["-db", "-f", "haproxy.cfg"],
};

#[test]
fn exactly_the_limit_passes_and_refusals_can_be_acted_on() {
    let scene = story::exactly_the_limit_passes_and_refusals_can_be_acted_on(&HAPROXY);
    story::what_we_cannot_read_does_not_pass(&scene, &[400, 431, 503]);
}

#[test]
fn a_crowd_is_admitted_exactly_to_the_limit() {
    story::a_crowd_is_admitted_exactly_to_the_limit(&HAPROXY);
}

#[test]
fn what_an_admission_says_reaches_the_client() {
    let scene = Scene::of(&HAPROXY);
    let passed = order(ALICE).ask(scene.gateway.address);
    let stands = passed.field("RateLimit").unwrap();
    assert!(stands.contains(r#""orders";r=2;"#), "{stands}");
    let policy = passed.field("RateLimit-Policy").unwrap();
    assert!(policy.contains(r#""orders";q=3;"#), "{policy}");
}

#[test]
fn it_says_503_while_the_server_is_gone() {
    story::nothing_passes_while_the_server_is_gone(&HAPROXY, 503);
}

#[test]
fn it_says_503_while_the_server_is_silent() {
    story::nothing_passes_while_the_server_is_silent(&HAPROXY, 503);
}

/// The other setting of the example: what is not answered passes, and still nothing that Tollgate refuses.
#[test]
fn told_to_stay_open_it_lets_through_what_nobody_answers_and_nothing_else() {
    let (closed, open) = ("local OPEN = false", "local OPEN = true");
    let is_there = super::example(HAPROXY.name)
        .iter()
        .any(|(_, text)| text.contains(closed));
    assert!(is_there, "the example has another name for it");
    let mut scene = Scene::with(&HAPROXY, |text| text.replace(closed, open));
    story::what_we_cannot_read_does_not_pass(&scene, &[400, 431, 503]);
    for expected in [200, 200, 200, 429] {
        assert_eq!(order(ALICE).ask(scene.gateway.address).status, expected);
    }
    scene.server.kill();
    for client in [ALICE, BOB] {
        assert_eq!(order(client).ask(scene.gateway.address).status, 200);
    }
}
