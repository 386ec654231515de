//! Caddy and its `forward_auth`.

use tollgate_testkit::peer_programs;

use super::{GatewayKind, shared_checks};

const CADDY: GatewayKind = GatewayKind {
    name: "caddy",
    program: || peer_programs::file("caddy", "bin/caddy"),
    arguments: &["run", "--config", "Caddyfile"],
};

#[test]
fn exactly_the_limit_passes_and_refusals_can_be_acted_on() {
    let scene = shared_checks::exactly_the_limit_passes_and_refusals_can_be_acted_on(&CADDY);
    shared_checks::what_we_cannot_read_does_not_pass(&scene, &[431]);
}

#[test]
fn a_crowd_is_admitted_exactly_to_the_limit() {
    shared_checks::a_crowd_is_admitted_exactly_to_the_limit(&CADDY);
}

#[test]
fn what_an_admission_says_reaches_the_upstream_and_not_the_client() {
    shared_checks::what_an_admission_says_reaches_the_upstream_and_not_the_client(&CADDY);
}

#[test]
fn it_says_502_while_the_server_is_gone() {
    shared_checks::nothing_passes_while_the_server_is_gone(&CADDY, 502);
}

#[test]
fn it_says_504_while_the_server_is_silent() {
    shared_checks::nothing_passes_while_the_server_is_silent(&CADDY, 504);
}
