//! The resolved address for tables of `X-Forwarded-For`, `Forwarded` and single-address headers.

use super::{hops, ip, trusted};
use crate::{AddressSource, ClientAddress, ClientAddressResolver, ForwardedHeader};

use AddressSource::{Fallback, Forwarded, Peer};

fn resolve(
    resolver: &ClientAddressResolver,
    peer: &str,
    lines: &[&str],
) -> (String, AddressSource) {
    let lines: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
    let ClientAddress { address, source } = resolver.resolve(ip(peer), lines);
    (address.to_string(), source)
}

/// (peer, header lines, expected address, expected source)
type Case = (
    &'static str,
    &'static [&'static str],
    &'static str,
    AddressSource,
);

fn check(resolver: &ClientAddressResolver, cases: &[Case]) {
    for (peer, lines, expected, source) in cases {
        let resolved = resolve(resolver, peer, lines);
        assert_eq!(
            resolved,
            ((*expected).to_owned(), *source),
            "{peer} {lines:?}"
        );
    }
}

/// Values of `X-Forwarded-For` without a client address.
const INVALID_X_FORWARDED_FOR: &[&str] = &[
    "",
    " ",
    ",",
    "192.0.2.7,",
    "192.0.2.7, ,10.0.0.2",
    "unknown",
    "_hidden",
    "localhost",
    "192.0.2",
    "192.0.2.7.1",
    "192.0.2.256",
    "010.0.0.1",
    "192.0.2.7:",
    "192.0.2.7:65536",
    "192.0.2.7:-1",
    "192.0.2.7:80:80",
    "[192.0.2.7]",
    "[2001:db8::7",
    "2001:db8::7]",
    "[2001:db8::7]443",
    "[2001:db8::7]:x",
    "[]",
    "fe80::1%",
    "fe80::1%a b",
    "\"192.0.2.7\"",
    "for=192.0.2.7",
    "192.0.2.7 192.0.2.8",
    "192.0.2.7;",
    "\u{e9}",
    "1.1.1.1\0",
    "0x7f.1",
    "::ffff:999.0.0.1",
];

/// `X-Forwarded-For` behind trusted networks.
const X_FORWARDED_FOR: &[Case] = &[
    // The peer is not trusted, so the header is ignored.
    ("192.0.2.1", &["6.6.6.6"], "192.0.2.1", Peer),
    ("192.0.2.1", &["10.0.0.1, 6.6.6.6"], "192.0.2.1", Peer),
    ("192.0.2.1", &[], "192.0.2.1", Peer),
    // One proxy, two proxies; everything to the left of the client's address is forged.
    ("10.0.0.1", &["192.0.2.7"], "192.0.2.7", Forwarded),
    ("10.0.0.1", &["6.6.6.6, 192.0.2.7"], "192.0.2.7", Forwarded),
    (
        "10.0.0.1",
        &["6.6.6.6, 192.0.2.7, 10.0.0.2"],
        "192.0.2.7",
        Forwarded,
    ),
    (
        "10.0.0.1",
        &["127.0.0.1, 10.0.0.9, 192.0.2.7"],
        "192.0.2.7",
        Forwarded,
    ),
    (
        "10.0.0.1",
        &["garbage, 192.0.2.7,\t10.0.0.2 "],
        "192.0.2.7",
        Forwarded,
    ),
    ("2001:db8:aaaa::5", &["192.0.2.7"], "192.0.2.7", Forwarded),
    // Several lines are one list.
    (
        "10.0.0.1",
        &["6.6.6.6", "192.0.2.7"],
        "192.0.2.7",
        Forwarded,
    ),
    (
        "10.0.0.1",
        &["192.0.2.7", "10.0.0.3", "10.0.0.2"],
        "192.0.2.7",
        Forwarded,
    ),
    ("10.0.0.1", &["", "192.0.2.7"], "192.0.2.7", Forwarded),
    // Ports, brackets, zones, IPv4-mapped addresses.
    ("10.0.0.1", &["192.0.2.7:51234"], "192.0.2.7", Forwarded),
    ("10.0.0.1", &["[2001:db8::7]:443"], "2001:db8::7", Forwarded),
    ("10.0.0.1", &["[2001:db8::7]"], "2001:db8::7", Forwarded),
    ("10.0.0.1", &["2001:db8::7"], "2001:db8::7", Forwarded),
    ("10.0.0.1", &["fe80::1%eth0"], "fe80::1", Forwarded),
    ("10.0.0.1", &["[fe80::1%25-a.b]:80"], "fe80::1", Forwarded),
    ("10.0.0.1", &["::ffff:192.0.2.7"], "192.0.2.7", Forwarded),
    (
        "10.0.0.1",
        &["192.0.2.7, ::ffff:10.0.0.2"],
        "192.0.2.7",
        Forwarded,
    ),
    ("::ffff:10.0.0.1", &["192.0.2.7"], "192.0.2.7", Forwarded),
    ("::ffff:192.0.2.1", &["6.6.6.6"], "192.0.2.1", Peer),
    // A proxy's own request, and a request from a trusted network.
    ("10.0.0.1", &[], "10.0.0.1", Peer),
    ("10.0.0.1", &["10.0.0.9, 10.0.0.2"], "10.0.0.9", Forwarded),
];

#[test]
fn s_33_x_forwarded_for_behind_trusted_networks() {
    let resolver = ClientAddressResolver::behind_proxies(ForwardedHeader::XForwardedFor, trusted());
    assert_eq!(resolver.field(), Some("x-forwarded-for"));
    check(&resolver, X_FORWARDED_FOR);
    for text in INVALID_X_FORWARDED_FOR {
        let resolved = resolve(&resolver, "10.0.0.1", &[text]);
        assert_eq!(resolved, ("10.0.0.1".to_owned(), Fallback), "{text:?}");
        let behind = format!("6.6.6.6, {text}, 10.0.0.2");
        let resolved = resolve(&resolver, "10.0.0.1", &[&behind]);
        assert_eq!(resolved, ("10.0.0.1".to_owned(), Fallback), "{behind:?}");
    }
}

#[test]
fn s_33_hops_are_counted_from_the_right() {
    let one = ClientAddressResolver::behind_hops(ForwardedHeader::XForwardedFor, hops(1));
    let two = ClientAddressResolver::behind_hops(ForwardedHeader::XForwardedFor, hops(2));
    check(
        &one,
        &[
            ("172.16.0.1", &["192.0.2.7"], "192.0.2.7", Forwarded),
            (
                "172.16.0.1",
                &["6.6.6.6, 10.0.0.2, 192.0.2.7"],
                "192.0.2.7",
                Forwarded,
            ),
            ("172.16.0.1", &[], "172.16.0.1", Fallback),
            ("172.16.0.1", &["garbage"], "172.16.0.1", Fallback),
        ],
    );
    check(
        &two,
        &[
            (
                "172.16.0.1",
                &["6.6.6.6, 192.0.2.7, 172.16.0.2"],
                "192.0.2.7",
                Forwarded,
            ),
            (
                "172.16.0.1",
                &["6.6.6.6", "192.0.2.7", "172.16.0.2"],
                "192.0.2.7",
                Forwarded,
            ),
            (
                "172.16.0.1",
                &["6.6.6.6, 192.0.2.7, garbage"],
                "172.16.0.1",
                Fallback,
            ),
            // A client that bypasses the outer proxy cannot choose an address.
            ("172.16.0.1", &["192.0.2.7"], "172.16.0.1", Fallback),
        ],
    );
    let guarded = two.with_trusted_proxies(vec!["172.16.0.0/12".parse().unwrap()]);
    check(
        &guarded,
        &[
            (
                "172.16.0.1",
                &["192.0.2.7, 172.16.0.2"],
                "192.0.2.7",
                Forwarded,
            ),
            ("192.0.2.1", &["6.6.6.6, 6.6.6.7"], "192.0.2.1", Peer),
        ],
    );
    let many = ClientAddressResolver::behind_hops(ForwardedHeader::XForwardedFor, hops(255));
    let long = vec!["1.1.1.1"; 300].join(",");
    assert_eq!(
        resolve(&many, "172.16.0.1", &[&long]),
        ("172.16.0.1".to_owned(), Fallback)
    );
}

/// Values of `Forwarded` without a client address.
const INVALID_FORWARDED: &[&str] = &[
    "",
    "192.0.2.43",
    "for",
    "for=",
    "for=unknown",
    "for=_hidden",
    "for=\"_hidden\"",
    "proto=http",
    "for=192.0.2.43;for=6.6.6.6",
    "for=192.0.2.43;proto",
    "for =192.0.2.43",
    "for=\"192.0.2.43",
    "for=192.0.2.43\"",
    "for=\"192.0.2.43\"x",
    "for=\"192.0.2.\\43\"",
    "for=192.0.2.43 x",
    "for=[2001:db8::7",
    "for=\"\"",
    "for=192.0.2.43,",
    "=192.0.2.43",
    "xfor=192.0.2.43",
    "for=\"\\\"192.0.2.43\\\"\"",
];

/// `Forwarded` behind trusted networks.
const FORWARDED: &[Case] = &[
    (
        "10.0.0.1",
        &["for=192.0.2.43;by=203.0.113.60;proto=https;host=example.com"],
        "192.0.2.43",
        Forwarded,
    ),
    (
        "10.0.0.1",
        &["For=\"[2001:db8:cafe::17]:4711\""],
        "2001:db8:cafe::17",
        Forwarded,
    ),
    (
        "10.0.0.1",
        &["proto=http; FOR=192.0.2.43 ;by=_x"],
        "192.0.2.43",
        Forwarded,
    ),
    (
        "10.0.0.1",
        &["for=6.6.6.6, for=192.0.2.43;host=\"a,b;c\\\"d\", for=10.0.0.2"],
        "192.0.2.43",
        Forwarded,
    ),
    (
        "10.0.0.1",
        &["for=6.6.6.6", "for=192.0.2.43", "for=10.0.0.2"],
        "192.0.2.43",
        Forwarded,
    ),
    (
        "10.0.0.1",
        &["for=\"192.0.2.43:_port\""],
        "192.0.2.43",
        Forwarded,
    ),
    (
        "10.0.0.1",
        &["for=\"[fe80::1%eth0]\""],
        "fe80::1",
        Forwarded,
    ),
    (
        "10.0.0.1",
        &["for=\"[::ffff:192.0.2.43]\""],
        "192.0.2.43",
        Forwarded,
    ),
    // A quote that a client opens must not swallow the hops that proxies add after it.
    (
        "10.0.0.1",
        &["for=\"6.6.6.6, for=192.0.2.43"],
        "192.0.2.43",
        Forwarded,
    ),
    (
        "10.0.0.1",
        &["for=\"\\, for=192.0.2.43"],
        "192.0.2.43",
        Forwarded,
    ),
    (
        "10.0.0.1",
        &["\"\"\", for=\"[2001:db8::7]:1\", for=10.0.0.2"],
        "2001:db8::7",
        Forwarded,
    ),
    ("192.0.2.1", &["for=6.6.6.6"], "192.0.2.1", Peer),
    ("10.0.0.1", &[], "10.0.0.1", Peer),
];

#[test]
fn s_33_forwarded_is_read_from_the_right() {
    let resolver = ClientAddressResolver::behind_proxies(ForwardedHeader::Forwarded, trusted());
    assert_eq!(resolver.field(), Some("forwarded"));
    check(&resolver, FORWARDED);
    for text in INVALID_FORWARDED {
        let resolved = resolve(&resolver, "10.0.0.1", &[text]);
        assert_eq!(resolved, ("10.0.0.1".to_owned(), Fallback), "{text:?}");
    }
}

#[test]
fn s_33_a_single_address_header_has_one_line_and_one_address() {
    let resolver = ClientAddressResolver::behind_proxies(
        ForwardedHeader::Single("x-real-ip".into()),
        trusted(),
    );
    assert_eq!(resolver.field(), Some("x-real-ip"));
    check(
        &resolver,
        &[
            ("10.0.0.1", &["192.0.2.7"], "192.0.2.7", Forwarded),
            ("10.0.0.1", &[" [2001:db8::7]:1 "], "2001:db8::7", Forwarded),
            (
                "10.0.0.1",
                &["192.0.2.7", "192.0.2.7"],
                "10.0.0.1",
                Fallback,
            ),
            ("10.0.0.1", &["192.0.2.7, 6.6.6.6"], "10.0.0.1", Fallback),
            ("10.0.0.1", &["x"], "10.0.0.1", Fallback),
            ("10.0.0.1", &[], "10.0.0.1", Peer),
            ("192.0.2.1", &["6.6.6.6"], "192.0.2.1", Peer),
        ],
    );
    let without_header = ClientAddressResolver::default();
    assert_eq!(without_header.field(), None);
    check(
        &without_header,
        &[("10.0.0.1", &["6.6.6.6"], "10.0.0.1", Peer)],
    );
    let untrusting =
        ClientAddressResolver::behind_proxies(ForwardedHeader::XForwardedFor, Vec::new());
    check(&untrusting, &[("10.0.0.1", &["6.6.6.6"], "10.0.0.1", Peer)]);
}

#[test]
fn s_33_the_walk_through_a_long_header_is_bounded() {
    let resolver = ClientAddressResolver::behind_proxies(ForwardedHeader::XForwardedFor, trusted());
    let forged = "6.6.6.6,".repeat(1_300);
    let long = format!("{forged} 192.0.2.7");
    assert!(long.len() > 10_000);
    assert_eq!(
        resolve(&resolver, "10.0.0.1", &[&long]),
        ("192.0.2.7".to_owned(), Forwarded)
    );
    for text in [
        "10.0.0.2,".repeat(1_300) + "10.0.0.3",
        "1".repeat(10_000),
        " ".repeat(10_000),
    ] {
        assert_eq!(resolve(&resolver, "10.0.0.1", &[&text]).1, Fallback);
    }
    let forwarded = ClientAddressResolver::behind_proxies(ForwardedHeader::Forwarded, trusted());
    for text in [
        format!("for=\"{}\"", "x".repeat(10_000)),
        format!("for=1.1.1.1;host={}", "x".repeat(600)),
    ] {
        assert_eq!(resolve(&forwarded, "10.0.0.1", &[&text]).1, Fallback);
    }
}
