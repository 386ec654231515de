//! Partitions: apart where the server counts apart, shared where it says so, and bounded.

use tollgate_core::Nanos;
use tollgate_http::{RateLimitInfo, ResponseReader};

use super::support::{NOW, blocked, granted, info, pacer, queued, request, seconds};
use crate::{PaceError, PaceRequest, Pacer, PacerSettings};

#[test]
fn hosts_are_paced_apart() {
    let mut pacer = blocked("30");
    let _other = granted(&mut pacer, &PaceRequest::new("other.example.com"), NOW);
    queued(&mut pacer, &request(), NOW);
}

#[test]
fn routes_that_the_server_gives_one_bucket_share_it() {
    let mut pacer = pacer();
    let [read, write] =
        ["GET /messages", "POST /messages"].map(|route| request().with_route(route));
    let bucket = ("x-ratelimit-bucket", "abcd1234");
    for route in [read, write] {
        let grant = granted(&mut pacer, &route, NOW);
        pacer.on_response(grant, 200, &info(&[bucket]), NOW);
    }
    let grant = granted(&mut pacer, &read, seconds(1));
    pacer.on_response(
        grant,
        429,
        &info(&[bucket, ("retry-after", "30")]),
        seconds(1),
    );
    queued(&mut pacer, &write, seconds(1));
    let _apart = granted(&mut pacer, &request().with_route("GET /users"), seconds(1));
}

/// Discord's answer to a request over its global limit, as its documentation shows it.
fn discord_global() -> RateLimitInfo {
    let mut reader = ResponseReader::new(NOW);
    for (name, value) in [
        ("retry-after", "65"),
        ("x-ratelimit-global", "true"),
        ("x-ratelimit-scope", "global"),
    ] {
        reader.field(name, value.as_bytes());
    }
    let body =
        br#"{ "message": "You are being rate limited.", "retry_after": 64.57, "global": true }"#;
    reader.body(b"application/json", body);
    reader.finish()
}

#[test]
fn a_global_refusal_stops_every_route_of_the_host_also_those_that_come_later() {
    let mut pacer = pacer();
    let [first, second, later] =
        ["GET /users", "GET /guilds", "GET /channels"].map(|route| request().with_route(route));
    let other = granted(&mut pacer, &second, NOW);
    pacer.on_response(other, 200, &info(&[("x-ratelimit-bucket", "guilds")]), NOW);
    let grant = granted(&mut pacer, &first, NOW);
    let refusal = pacer.on_response(grant, 429, &discord_global(), NOW);
    assert_eq!(
        refusal.unwrap().retry_after,
        Some(Nanos::from_millis(64_570))
    );
    for route in [first, second, later] {
        let wait = pacer.acquire(&route, seconds(1)).unwrap_err();
        assert!(matches!(wait, PaceError::WaitTooLong { .. }), "{wait:?}");
    }
    let _other_host = granted(
        &mut pacer,
        &PaceRequest::new("other.example.com"),
        seconds(1),
    );
    let _after = granted(&mut pacer, &later, seconds(70));
}

#[test]
fn control_a_refusal_of_one_route_leaves_the_others_alone() {
    let mut pacer = pacer();
    let [first, second] = ["GET /users", "GET /guilds"].map(|route| request().with_route(route));
    let grant = granted(&mut pacer, &first, NOW);
    let fields = [("retry-after", "30"), ("x-ratelimit-scope", "user")];
    pacer.on_response(grant, 429, &info(&fields), NOW);
    queued(&mut pacer, &first, seconds(1));
    let _grant = granted(&mut pacer, &second, seconds(1));
}

/// Discord refuses with the scope `shared` what other users of a resource have used up. Its documentation says that it does not count against the caller.
#[test]
fn a_refusal_that_others_caused_delays_the_route_and_does_not_slow_it_down() {
    let refused_with = |scope: &str| {
        let mut pacer = pacer();
        let grant = granted(&mut pacer, &request(), NOW);
        let fields = [("retry-after", "3"), ("x-ratelimit-scope", scope)];
        pacer.on_response(grant, 429, &info(&fields), NOW);
        queued(&mut pacer, &request(), seconds(1));
        pacer.status(NOW).next().unwrap().rate
    };
    let before = pacer_rate();
    assert!((refused_with("shared") - before).abs() < 1e-9);
    assert!(refused_with("user") < before, "a control that slows down");
}

fn pacer_rate() -> f64 {
    let mut pacer = pacer();
    let _grant = granted(&mut pacer, &request(), NOW);
    pacer.status(NOW).next().unwrap().rate
}

#[test]
fn resources_of_one_host_are_paced_apart() {
    let mut pacer = pacer();
    let [core, search] = ["core", "search"].map(|route| request().with_route(route));
    for (route, resource, remaining) in [(core, "core", "50"), (search, "search", "0")] {
        let grant = granted(&mut pacer, &route, NOW);
        let fields = [
            ("x-ratelimit-resource", resource),
            ("x-ratelimit-remaining", remaining),
            ("x-ratelimit-reset", "1700000030"),
        ];
        pacer.on_response(grant, 200, &info(&fields), NOW);
    }
    queued(&mut pacer, &search, seconds(2));
    let _grant = granted(&mut pacer, &core, seconds(2));
}

#[test]
fn a_million_hosts_take_the_memory_of_a_few() {
    let mut pacer = Pacer::new(PacerSettings::default().with_max_partitions(100), 7);
    for host in 0..20_000 {
        let host = format!("host-{host}.example.com");
        let grant = granted(&mut pacer, &PaceRequest::new(&host), NOW);
        pacer.on_response(grant, 200, &info(&[]), NOW);
    }
    assert_eq!(pacer.status(NOW).count(), 100);
    // Partitions in use are not forgotten: newcomers share the oldest.
    let grants: Vec<_> = (0..300)
        .map(|host| {
            let host = format!("busy-{host}.example.com");
            pacer.acquire(&PaceRequest::new(&host), seconds(host_second(&host)))
        })
        .collect();
    assert!(grants.iter().all(Result::is_ok));
    assert_eq!(pacer.status(NOW).count(), 100);
}

fn host_second(host: &str) -> u64 {
    u64::try_from(host.len()).unwrap()
}
