//! Writing into a warm buffer allocates nothing: this crate's tests count allocations.
//!
//! Must not know: how anything is written.

use std::net::IpAddr;

use tollgate_core::Nanos;
use tollgate_testkit::allocation::{CountingAllocator, calls};

use super::support::{NOW, Sample, denied};
use crate::{
    ClientAddressResolver, Dialect, Dialects, ForwardedHeader, HeaderFields, Jitter, PartitionKey,
    ProblemType, RateLimitStatus,
};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn the_allocator_counts() {
    assert!(calls(|| drop(std::hint::black_box(vec![1]))) >= 2);
}

#[test]
fn every_dialect_and_problem_is_written_to_a_warm_buffer_without_allocating() {
    let sample = Sample::new();
    let items = sample.refused();
    let items = [
        items[0],
        items[1],
        sample.upload(),
        items[0].with_quota(7, Nanos::HOUR),
    ];
    let mut fields = HeaderFields::new();
    let mut body = Vec::new();
    let mut round = || {
        for dialect in Dialect::ALL {
            let rate_limit = RateLimitStatus::new(denied(7), &items).with_now(NOW);
            let rate_limit = rate_limit.with_jitter(Jitter::new(Nanos::MINUTE, 3));
            rate_limit.write(Dialects::from(dialect), &mut fields);
            body.clear();
            rate_limit.write_problem(ProblemType::QuotaExceeded, 429, &mut body);
        }
        fields.len() + body.len()
    };
    assert!(
        calls(|| assert!(round() > 0)) > 0,
        "the first round allocates"
    );
    assert_eq!(calls(|| assert!(round() > 0)), 0);
}

#[test]
fn digests_and_addresses_are_computed_without_allocating() {
    let trusted = vec!["10.0.0.0/8".parse().unwrap()];
    let clients = ClientAddressResolver::behind_proxies(ForwardedHeader::Forwarded, trusted);
    let peer: IpAddr = "10.0.0.1".parse().unwrap();
    let line: &[u8] = b"for=\"[2001:db8::7]:99\";proto=https, for=10.9.9.9";
    let counted = calls(|| {
        let client = clients.resolve(peer, [line]);
        assert_eq!(clients.key(client.address).as_str(), "2001:db8::/64");
        std::hint::black_box(PartitionKey::digest(&[1; 16], line));
    });
    assert_eq!(counted, 0);
}
