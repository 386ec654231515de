//! Counting: windows, values, hits and overrides.

use tollgate_core::Timestamp;

use super::test_server::{TestRequest, TestServer, format_reply};
use crate::config::{
    BadRequest, Descriptor, DescriptorEntry, MAX_DESCRIPTORS, MAX_ENTRIES, RlsRequest,
};

fn one(fields: &str) -> TestServer {
    TestServer::from_text(&format!("domain: d\ndescriptors:\n  - {{ {fields} }}\n"))
}

#[test]
fn a_window_begins_on_multiples_of_its_length() {
    let mut server = one("key: k, rate_limit: { unit: minute, requests_per_unit: 2 }");
    server.expect(59, "k=v", "OK: OK 1/2 minute 1s");
    server.expect(60, "k=v", "OK: OK 1/2 minute 60s");
    server.expect(61, "k=v", "OK: OK 0/2 minute 59s");
    server.expect(119, "k=v", "OVER: OVER 0/2 minute 1s");
    server.expect(120, "k=v", "OK: OK 1/2 minute 60s");
}

#[test]
fn every_unit_has_its_length() {
    let lengths = [
        ("second", 1),
        ("minute", 60),
        ("hour", 3_600),
        ("day", 86_400),
        ("week", 604_800),
        ("month", 2_592_000),
        ("year", 31_536_000),
    ];
    for (unit, length) in lengths {
        let fields = format!("key: k, rate_limit: {{ unit: {unit}, requests_per_unit: 1 }}");
        let mut server = one(&fields);
        let last = 7 * length - 1;
        server.expect(last, "k=v", &format!("OK: OK 0/1 {unit} 1s"));
        server.expect(last, "k=v", &format!("OVER: OVER 0/1 {unit} 1s"));
        server.expect(last + 1, "k=v", &format!("OK: OK 0/1 {unit} {length}s"));
    }
}

#[test]
fn parts_of_a_second_are_rounded_up() {
    let mut server = one("key: k, rate_limit: { unit: minute, requests_per_unit: 2 }");
    let now = Timestamp::from_nanos(59_400_000_000);
    let reply = TestRequest::parse("d", "k=v")
        .with(|request| server.decide(now, request, |_, reply| format_reply(reply)));
    assert_eq!(reply, "OK: OK 1/2 minute 1s");
}

#[test]
fn without_a_value_every_value_counts_by_itself() {
    let mut server = one("key: k, rate_limit: { unit: day, requests_per_unit: 1 }");
    server.expect(0, "k=a", "OK: OK 0/1 day 86400s");
    server.expect(0, "k=b", "OK: OK 0/1 day 86400s");
    server.expect(0, "k=a", "OVER: OVER 0/1 day 86400s");
}

#[test]
fn with_a_pattern_every_value_counts_by_itself_unless_the_threshold_is_shared() {
    let mut apart = one("key: k, value: a*, rate_limit: { unit: day, requests_per_unit: 1 }");
    apart.expect(0, "k=a1", "OK: OK 0/1 day 86400s");
    apart.expect(0, "k=a2", "OK: OK 0/1 day 86400s");
    let shared =
        "key: k, value: a*, share_threshold: true, rate_limit: { unit: day, requests_per_unit: 2 }";
    let mut together = one(shared);
    together.expect(0, "k=a1", "OK: OK 1/2 day 86400s");
    together.expect(0, "k=a2", "OK: OK 0/2 day 86400s");
    together.expect(0, "k=a3", "OVER: OVER 0/2 day 86400s");
    together.expect(0, "k=a*", "OVER: OVER 0/2 day 86400s");
}

#[test]
fn a_shared_threshold_applies_to_the_limits_below_it() {
    let mut server = TestServer::from_text(
        "
domain: d
descriptors:
  - key: k
    value: a*
    share_threshold: true
    descriptors:
      - { key: user, rate_limit: { unit: day, requests_per_unit: 2 } }
  - key: k
    value: b*
    descriptors:
      - { key: p, value: 'q*', share_threshold: true, rate_limit: { unit: day, requests_per_unit: 2 } }
",
    );
    server.expect(0, "k=a1,user=u", "OK: OK 1/2 day 86400s");
    server.expect(0, "k=a2,user=u", "OK: OK 0/2 day 86400s");
    server.expect(0, "k=a2,user=v", "OK: OK 1/2 day 86400s");
    server.expect(0, "k=b1,p=q1", "OK: OK 1/2 day 86400s");
    server.expect(0, "k=b1,p=q2", "OK: OK 0/2 day 86400s");
    server.expect(0, "k=b2,p=q2", "OK: OK 1/2 day 86400s");
}

#[test]
fn an_exact_value_beside_a_shared_pattern_counts_by_itself() {
    let mut server = TestServer::from_text(
        "
domain: d
descriptors:
  - { key: k, value: a1, rate_limit: { unit: day, requests_per_unit: 9 } }
  - { key: k, value: 'a*', share_threshold: true, rate_limit: { unit: day, requests_per_unit: 2 } }
",
    );
    server.expect(0, "k=a1", "OK: OK 8/9 day 86400s");
    server.expect(0, "k=a2", "OK: OK 1/2 day 86400s");
    server.expect(0, "k=a1", "OK: OK 7/9 day 86400s");
}

#[test]
fn denied_requests_are_counted_too() {
    let mut server = one("key: k, rate_limit: { unit: day, requests_per_unit: 10 }");
    server.expect(0, "k=v +8", "OK: OK 2/10 day 86400s");
    server.expect(0, "k=v +5", "OVER: OVER 0/10 day 86400s");
    // If the five denied hits were not counted, one more would fit, and a peek would show units left.
    server.expect(0, "k=v +1", "OVER: OVER 0/10 day 86400s");
    server.expect(0, "k=v +0", "OVER: OVER 0/10 day 86400s");
    server.expect(86_400, "k=v +11", "OVER: OVER 0/10 day 86400s");
    server.expect(86_400, "k=v +0", "OVER: OVER 0/10 day 86400s");
}

#[test]
fn exactly_the_limit_is_admitted() {
    let mut server = one("key: k, rate_limit: { unit: day, requests_per_unit: 10 }");
    server.expect(0, "k=v +10", "OK: OK 0/10 day 86400s");
    server.expect(0, "k=v +0", "OK: OK 0/10 day 86400s");
    server.expect(0, "k=v", "OVER: OVER 0/10 day 86400s");
}

#[test]
fn zero_hits_are_a_peek() {
    let mut server = one("key: k, rate_limit: { unit: day, requests_per_unit: 2 }");
    server.expect(100, "k=v +0", "OK: OK 2/2 day 86300s");
    server.expect(100, "k=v +0", "OK: OK 2/2 day 86300s");
    server.expect(100, "k=v", "OK: OK 1/2 day 86300s");
}

#[test]
fn hits_of_a_descriptor_override_those_of_the_request_and_zero_of_a_request_means_one() {
    let mut server = one("key: k, rate_limit: { unit: day, requests_per_unit: 20 }");
    let mut check = |text: &str, hits_addend: u32| {
        let mut test_request = TestRequest::parse("d", text);
        test_request.hits_addend = hits_addend;
        let now = Timestamp::EPOCH;
        test_request.with(|request| server.decide(now, request, |_, reply| format_reply(reply)))
    };
    assert_eq!(check("k=v", 0), "OK: OK 19/20 day 86400s");
    assert_eq!(check("k=v", 3), "OK: OK 16/20 day 86400s");
    assert_eq!(check("k=v +2", 3), "OK: OK 14/20 day 86400s");
    assert_eq!(check("k=v +0", 3), "OK: OK 14/20 day 86400s");
    assert_eq!(
        check("k=v +1|k=w", 4),
        "OK: OK 13/20 day 86400s | OK 16/20 day 86400s"
    );
}

#[test]
fn hits_can_be_refunded_but_never_below_zero() {
    let mut server = one("key: k, rate_limit: { unit: day, requests_per_unit: 2 }");
    server.expect(0, "k=v +3", "OVER: OVER 0/2 day 86400s");
    server.expect(0, "k=v -1", "OK: OK 0/2 day 86400s");
    server.expect(0, "k=v -9", "OK: OK 2/2 day 86400s");
    server.expect(0, "k=v", "OK: OK 1/2 day 86400s");
}

#[test]
fn a_limit_of_zero_denies_everything_but_a_peek() {
    let mut server = one("key: k, rate_limit: { unit: day, requests_per_unit: 0 }");
    server.expect(0, "k=v +0", "OK: OK 0/0 day 86400s");
    server.expect(0, "k=v", "OVER: OVER 0/0 day 86400s");
    server.expect(0, "k=v +0", "OVER: OVER 0/0 day 86400s");
}

#[test]
fn the_largest_numbers_saturate() {
    let mut server = one("key: k, rate_limit: { unit: year, requests_per_unit: 4294967295 }");
    server.expect(0, "k=v", "OK: OK 4294967294/4294967295 year 31536000s");
    let most = format!("k=v +{}", u64::MAX);
    server.expect(0, &most, "OVER: OVER 0/4294967295 year 31536000s");
    server.expect(0, &most, "OVER: OVER 0/4294967295 year 31536000s");
    server.expect(0, "k=v +0", "OVER: OVER 0/4294967295 year 31536000s");
}

#[test]
fn the_same_counter_twice_in_one_request_is_charged_twice() {
    let mut server = one("key: k, rate_limit: { unit: day, requests_per_unit: 2 }");
    server.expect(
        0,
        "k=v|k=v|k=w|k=v",
        "OVER: OK 1/2 day 86400s | OK 0/2 day 86400s | OK 1/2 day 86400s | OVER 0/2 day 86400s",
    );
    let test_request = TestRequest::parse("d", "k=v|k=v|k=w|k=v");
    let rounds: Vec<u8> = test_request.with(|request| {
        let plan = server.policy.plan(request).unwrap();
        plan.charges().map(|charge| charge.round).collect()
    });
    assert_eq!(rounds, [0, 1, 0, 2]);
}

#[test]
fn an_override_replaces_the_limit_of_the_file() {
    let mut server = TestServer::from_text(
        "
domain: d
descriptors:
  - key: k
    shadow_mode: true
    quota_mode: true
    rate_limit: { unit: minute, requests_per_unit: 5, name: own }
  - { key: free, rate_limit: { unlimited: true } }
",
    );
    // An override has no shadow mode, quota mode or name.
    server.expect(0, "k=v 1/hour", "OK: OK 0/1 hour 3600s");
    server.expect(0, "k=v 1/hour", "OVER: OVER 0/1 hour 3600s");
    server.expect(0, "free=v 1/day", "OK: OK 0/1 day 86400s");
    server.expect(0, "nowhere=v 1/day", "OK: OK 0/1 day 86400s");
    server.expect(0, "nowhere=v 1/day", "OVER: OVER 0/1 day 86400s");
    server.expect(0, "nowhere=v 0/second", "OVER: OVER 0/0 second 1s");
    // With the rule's unit it uses the rule's counter.
    server.expect(0, "k=v", "OK: OK 4/5 minute 60s 'own'");
    server.expect(0, "k=v 2/minute", "OK: OK 0/2 minute 60s");
    server.expect(0, "k=v", "OK: OK 2/5 minute 60s 'own'");
    server.expect(0, "k=v 2/minute", "OVER: OVER 0/2 minute 60s");
    server.expect(0, "k=v 9/minute", "OK: OK 4/9 minute 60s");
}

#[test]
fn an_override_counts_by_value_even_if_the_threshold_is_shared() {
    let mut server = one(
        "key: k, value: a*, share_threshold: true, rate_limit: { unit: day, requests_per_unit: 5 }",
    );
    server.expect(0, "k=a1", "OK: OK 4/5 day 86400s");
    server.expect(0, "k=a1 5/day", "OK: OK 4/5 day 86400s");
    server.expect(0, "k=a2 5/day", "OK: OK 4/5 day 86400s");
    server.expect(0, "k=a2", "OK: OK 3/5 day 86400s");
}

#[test]
fn invalid_requests_are_refused_before_anything_is_charged() {
    let server = one("key: k, rate_limit: { unit: day, requests_per_unit: 2 }");
    let entries = [DescriptorEntry::new("k", "v"); MAX_ENTRIES + 1];
    let fits = Descriptor::new(&entries[..MAX_ENTRIES]);
    let too_long = Descriptor::new(&entries);
    let check = |domain: &str, descriptors: &[Descriptor<'_>]| {
        let request = RlsRequest::new(domain, descriptors);
        server.policy.plan(&request).err()
    };
    assert_eq!(check("", &[fits]), Some(BadRequest::EmptyDomain));
    assert_eq!(check("d", &[]), Some(BadRequest::NoDescriptors));
    assert_eq!(check("d", &[fits; MAX_DESCRIPTORS]), None);
    let count = MAX_DESCRIPTORS + 1;
    assert_eq!(
        check("d", &[fits; MAX_DESCRIPTORS + 1]),
        Some(BadRequest::TooManyDescriptors { count })
    );
    let count = MAX_ENTRIES + 1;
    assert_eq!(
        check("d", &[fits, too_long]),
        Some(BadRequest::TooManyEntries { count })
    );
    let nothing = Descriptor::new(&[]);
    assert_eq!(
        check("d", &[nothing]),
        None,
        "it is admitted, as by envoyproxy/ratelimit"
    );
}
