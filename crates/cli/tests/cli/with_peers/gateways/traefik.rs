//! Traefik and its ForwardAuth.

use tollgate_testkit::peer_programs;

use super::{GatewayKind, shared_checks};

const TRAEFIK: GatewayKind = GatewayKind {
    name: "traefik",
    program: || peer_programs::file("traefik", "bin/traefik"),
    arguments: &["--configFile=traefik.yaml"],
};

#[test]
fn exactly_the_limit_passes_and_refusals_can_be_acted_on() {
    let scene = shared_checks::exactly_the_limit_passes_and_refusals_can_be_acted_on(&TRAEFIK);
    shared_checks::what_we_cannot_read_does_not_pass(&scene, &[431]);
}

#[test]
fn a_crowd_is_admitted_exactly_to_the_limit() {
    shared_checks::a_crowd_is_admitted_exactly_to_the_limit(&TRAEFIK);
}

#[test]
fn what_an_admission_says_reaches_the_upstream_and_not_the_client() {
    shared_checks::what_an_admission_says_reaches_the_upstream_and_not_the_client(&TRAEFIK);
}

#[test]
fn it_says_500_while_the_server_is_gone() {
    shared_checks::nothing_passes_while_the_server_is_gone(&TRAEFIK, 500);
}

/// It has no setting for how long it waits: half a minute.
#[test]
fn it_says_500_while_the_server_is_silent() {
    shared_checks::nothing_passes_while_the_server_is_silent(&TRAEFIK, 500);
}
