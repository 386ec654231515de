//! Caddy and its `forward_auth`.

use tollgate_testkit::peer_programs;

use super::{GatewayKind, shared_checks};

const CADDY: GatewayKind = GatewayKind {
    name: "caddy",
    program: || peer_programs::file("caddy", "bin/caddy"),
    arguments: &["run", "--config", "Caddyfile"],
};

#[test]
fn exactly_the_limit_passes_and_refusals_have_retry_after() {
    let fixture = shared_checks::exactly_the_limit_passes_and_refusals_have_retry_after(&CADDY);
    shared_checks::no_spelling_passes_beyond_the_limit(&fixture);
    shared_checks::requests_that_tollgate_cannot_read_do_not_pass(&fixture, &[431]);
}

#[test]
fn of_concurrent_requests_exactly_the_limit_passes() {
    shared_checks::of_concurrent_requests_exactly_the_limit_passes(&CADDY);
}

#[test]
fn the_fields_of_an_admission_reach_the_upstream_and_not_the_client() {
    shared_checks::the_fields_of_an_admission_reach_the_upstream_and_not_the_client(&CADDY);
}

#[test]
fn it_returns_502_while_tollgate_is_gone() {
    shared_checks::nothing_passes_while_tollgate_is_gone(&CADDY, 502);
}

#[test]
fn it_returns_504_while_tollgate_is_silent() {
    shared_checks::nothing_passes_while_tollgate_is_silent(&CADDY, 504);
}
