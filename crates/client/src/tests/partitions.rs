//! Partitions: apart where the server counts apart, shared where it says so, and bounded.

use super::support::{NOW, blocked, granted, info, pacer, queued, request, seconds};
use crate::{PaceRequest, Pacer, PacerSettings};

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
