//! Writes the series of the gateway: responses of each route, requests and connections of each upstream.
//!
//! Labels are names of the policy, which bounds their number. Must not know: HTTP, how numbers are counted.

use super::exposition::MetricsPage;
use super::families::{self, MetricFamily};
use super::gather::Getter;
use super::sources::{AddressCounts, GatewayCounts, UpstreamCounts};

/// The first digits of statuses.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

pub(super) fn write_gateway(page: &mut MetricsPage, counts: &GatewayCounts) {
    let mut responses = page.family(&families::GATEWAY_RESPONSES);
    for (route, by_class) in &counts.routes {
        for (class, count) in CLASSES.iter().zip(by_class) {
            responses.add(&[route, class], *count);
        }
    }
    let of_upstream: [(MetricFamily, Getter<UpstreamCounts>); 3] = [
        (families::UPSTREAM_REQUESTS, |counts| counts.requests),
        (families::UPSTREAM_FAILURES, |counts| counts.failures),
        (families::UPSTREAM_RETRIES, |counts| counts.retries),
    ];
    for (family, get) in of_upstream {
        let mut family = page.family(&family);
        for upstream in &counts.upstreams {
            family.add(&[&upstream.name], get(upstream));
        }
    }
    let of_address: [(MetricFamily, Getter<AddressCounts>); 4] = [
        (families::UPSTREAM_CONNECTIONS, |counts| counts.connections),
        (families::UPSTREAM_IN_FLIGHT, |counts| counts.in_flight),
        (families::UPSTREAM_AVAILABLE, |counts| {
            counts.is_available.into()
        }),
        (families::UPSTREAM_EJECTIONS, |counts| counts.ejections),
    ];
    for (family, get) in of_address {
        let mut family = page.family(&family);
        for upstream in &counts.upstreams {
            for address in &upstream.addresses {
                family.add(&[&upstream.name, &address.address], get(address));
            }
        }
    }
}
