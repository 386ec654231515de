//! Writes gateways.

use super::quota::duration;
use super::value::{Json, list, map, number, text, unless_default};
use crate::model::{
    GatewaySpec, HeaderEdits, HealthCheckSpec, RouteSpec, UpstreamSpec, UpstreamTlsSpec,
};

pub(super) fn gateway(gateway: &GatewaySpec) -> Json {
    let upstreams = gateway.upstreams.iter();
    let upstreams = upstreams.map(|one| (one.name.value.to_string(), upstream(one)));
    map(vec![
        ("upstreams", Some(Json::Map(upstreams.collect()))),
        (
            "routes",
            Some(Json::List(gateway.routes.iter().map(route).collect())),
        ),
        ("max_body_size", gateway.max_body_size.map(number)),
    ])
}

fn route(route: &RouteSpec) -> Json {
    map(vec![
        ("host", route.host.as_ref().map(text)),
        ("path", Some(text(&route.path))),
        ("upstream", Some(text(&route.upstream.value))),
        (
            "strip_prefix",
            Some(Json::Bare(route.strip_prefix.to_string())),
        ),
        ("max_body_size", route.max_body_size.map(number)),
        ("request_headers", Some(edits(&route.request_headers))),
        ("response_headers", Some(edits(&route.response_headers))),
    ])
}

fn edits(edits: &HeaderEdits) -> Json {
    let add = edits.add.iter();
    let add = add.map(|(name, value)| (name.to_string(), text(value)));
    map(vec![
        ("remove", list(edits.remove.iter().map(text).collect())),
        ("add", Some(Json::Map(add.collect()))),
    ])
}

fn upstream(upstream: &UpstreamSpec) -> Json {
    let addresses = upstream.addresses.iter().map(|one| {
        map(vec![
            ("url", Some(text(&one.address))),
            ("weight", Some(number(one.weight))),
        ])
    });
    let span = |time| Some(text(duration(time)));
    map(vec![
        ("addresses", Some(Json::List(addresses.collect()))),
        ("connect_timeout", span(upstream.connect_timeout)),
        ("first_byte_timeout", span(upstream.first_byte_timeout)),
        ("idle_timeout", span(upstream.idle_timeout)),
        ("total_timeout", upstream.total_timeout.and_then(span)),
        ("max_connections", Some(number(upstream.max_connections))),
        (
            "max_idle_connections",
            Some(number(upstream.max_idle_connections)),
        ),
        ("keepalive_timeout", span(upstream.keepalive_timeout)),
        ("retries", Some(number(upstream.retries))),
        ("retry_budget", Some(text(upstream.retry_budget))),
        (
            "health_check",
            upstream.health_check.as_ref().map(health_check),
        ),
        (
            "ejection",
            Some(map(vec![
                ("failures", Some(number(upstream.ejection.failures))),
                ("duration", span(upstream.ejection.duration)),
            ])),
        ),
        (
            "tls",
            unless_default(&upstream.tls, &UpstreamTlsSpec::default(), tls),
        ),
    ])
}

fn health_check(check: &HealthCheckSpec) -> Json {
    map(vec![
        ("path", Some(text(&check.path))),
        ("interval", Some(text(duration(check.interval)))),
        ("timeout", Some(text(duration(check.timeout)))),
        ("unhealthy_after", Some(number(check.unhealthy_after))),
        ("healthy_after", Some(number(check.healthy_after))),
    ])
}

fn tls(tls: &UpstreamTlsSpec) -> Json {
    map(vec![
        ("ca", tls.ca.as_ref().map(text)),
        ("server_name", tls.server_name.as_ref().map(text)),
        ("certificate", tls.certificate.as_ref().map(text)),
        ("key", tls.key.as_ref().map(text)),
    ])
}
