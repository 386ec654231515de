//! Whose address counts (S-33): a table of everything that is written into these fields, and that nobody mints keys.
//!
//! Must not know: how fields are read.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::num::NonZeroU8;

use proptest::prelude::*;

use super::{
    AddressKey, AddressSource, ClientAddress, ClientAddressResolver, ForwardedHeader, Network,
};

use AddressSource::{Fallback, Forwarded, Peer};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn ours() -> Vec<Network> {
    ["10.0.0.0/8", "2001:db8:aaaa::/48"]
        .map(|text| text.parse().unwrap())
        .to_vec()
}

fn hops(count: u8) -> NonZeroU8 {
    NonZeroU8::new(count).unwrap()
}

fn find(clients: &ClientAddressResolver, peer: &str, lines: &[&str]) -> (String, AddressSource) {
    let lines: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
    let ClientAddress {
        address,
        source: found,
    } = clients.resolve(ip(peer), lines);
    (address.to_string(), found)
}

/// (connected from, lines, whose address counts, how it was found)
type Case = (
    &'static str,
    &'static [&'static str],
    &'static str,
    AddressSource,
);

fn check(clients: &ClientAddressResolver, cases: &[Case]) {
    for (peer, lines, expected, found) in cases {
        let resolved = find(clients, peer, lines);
        assert_eq!(
            resolved,
            ((*expected).to_owned(), *found),
            "{peer} {lines:?}"
        );
    }
}

/// What names no client in `X-Forwarded-For`.
const NO_HOPS: &[&str] = &[
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
const LISTS: &[Case] = &[
    // Nobody of ours: whatever is written counts for nothing.
    ("192.0.2.1", &["6.6.6.6"], "192.0.2.1", Peer),
    ("192.0.2.1", &["10.0.0.1, 6.6.6.6"], "192.0.2.1", Peer),
    ("192.0.2.1", &[], "192.0.2.1", Peer),
    // One proxy, two proxies; what is left of the client is the client's invention.
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
    // Ports, brackets, zones, IPv4 in IPv6 clothes.
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
    // A proxy that asks for itself, and a request from inside.
    ("10.0.0.1", &[], "10.0.0.1", Peer),
    ("10.0.0.1", &["10.0.0.9, 10.0.0.2"], "10.0.0.9", Forwarded),
];

#[test]
fn s_33_x_forwarded_for_behind_trusted_networks() {
    let clients = ClientAddressResolver::behind_proxies(ForwardedHeader::XForwardedFor, ours());
    assert_eq!(clients.field(), Some("x-forwarded-for"));
    check(&clients, LISTS);
    for text in NO_HOPS {
        let resolved = find(&clients, "10.0.0.1", &[text]);
        assert_eq!(resolved, ("10.0.0.1".to_owned(), Fallback), "{text:?}");
        let behind = format!("6.6.6.6, {text}, 10.0.0.2");
        let resolved = find(&clients, "10.0.0.1", &[&behind]);
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
            // Whoever came around the outer proxy cannot choose an address.
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
        find(&many, "172.16.0.1", &[&long]),
        ("172.16.0.1".to_owned(), Fallback)
    );
}

/// What names no client in `Forwarded`.
const NO_FORS: &[&str] = &[
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
    // A quote that an attacker opens must not swallow what the proxy adds behind it.
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
    let clients = ClientAddressResolver::behind_proxies(ForwardedHeader::Forwarded, ours());
    assert_eq!(clients.field(), Some("forwarded"));
    check(&clients, FORWARDED);
    for text in NO_FORS {
        let resolved = find(&clients, "10.0.0.1", &[text]);
        assert_eq!(resolved, ("10.0.0.1".to_owned(), Fallback), "{text:?}");
    }
}

#[test]
fn s_33_a_field_of_one_address_has_one_line_and_one_address() {
    let clients =
        ClientAddressResolver::behind_proxies(ForwardedHeader::Single("x-real-ip".into()), ours());
    assert_eq!(clients.field(), Some("x-real-ip"));
    check(
        &clients,
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
    let nobody = ClientAddressResolver::default();
    assert_eq!(nobody.field(), None);
    check(&nobody, &[("10.0.0.1", &["6.6.6.6"], "10.0.0.1", Peer)]);
    let untrusting =
        ClientAddressResolver::behind_proxies(ForwardedHeader::XForwardedFor, Vec::new());
    check(&untrusting, &[("10.0.0.1", &["6.6.6.6"], "10.0.0.1", Peer)]);
}

#[test]
fn s_33_long_fields_are_not_walked_to_their_end() {
    let clients = ClientAddressResolver::behind_proxies(ForwardedHeader::XForwardedFor, ours());
    let rotation = "6.6.6.6,".repeat(1_300);
    let long = format!("{rotation} 192.0.2.7");
    assert!(long.len() > 10_000);
    assert_eq!(
        find(&clients, "10.0.0.1", &[&long]),
        ("192.0.2.7".to_owned(), Forwarded)
    );
    for text in [
        "10.0.0.2,".repeat(1_300) + "10.0.0.3",
        "1".repeat(10_000),
        " ".repeat(10_000),
    ] {
        assert_eq!(find(&clients, "10.0.0.1", &[&text]).1, Fallback);
    }
    let forwarded = ClientAddressResolver::behind_proxies(ForwardedHeader::Forwarded, ours());
    for text in [
        format!("for=\"{}\"", "x".repeat(10_000)),
        format!("for=1.1.1.1;host={}", "x".repeat(600)),
    ] {
        assert_eq!(find(&forwarded, "10.0.0.1", &[&text]).1, Fallback);
    }
}

#[test]
fn keys_are_of_networks_as_wide_as_asked() {
    let key = |address: &str, v4, v6| AddressKey::new(ip(address), v4, v6).as_str().to_owned();
    let cases = [
        ("192.0.2.7", 32, 64, "192.0.2.7"),
        ("192.0.2.7", 24, 64, "192.0.2.0/24"),
        ("192.0.2.7", 0, 64, "0.0.0.0/0"),
        ("::ffff:192.0.2.7", 32, 64, "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", 32, 64, "2001:db8:1:2::/64"),
        ("2001:db8:1:2ff:3:4:5:6", 32, 56, "2001:db8:1:200::/56"),
        ("2001:db8:1:2:3:4:5:6", 32, 128, "2001:db8:1:2:3:4:5:6"),
        (
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            32,
            127,
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/127",
        ),
        ("::1", 32, 0, "::/0"),
    ];
    for (address, v4, v6, expected) in cases {
        assert_eq!(key(address, v4, v6), expected);
    }
    let clients = ClientAddressResolver::default().with_prefix_lengths(24, 48);
    assert_eq!(
        format!("{:?}", clients.key(ip("192.0.2.7"))),
        "\"192.0.2.0/24\""
    );
    assert_eq!(
        clients.key(ip("2001:db8:1:2::")).as_str(),
        "2001:db8:1::/48"
    );
}

/// What an attacker writes: pieces that mean something, and anything else.
fn written() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[0-9a-f.:,; \"=\\\\\\[\\]%_]{0,12}",
        Just("for=".to_owned()),
        Just("6.6.6.6".to_owned()),
        Just("10.0.0.2".to_owned()),
        Just(", ".to_owned()),
        Just("\"".to_owned()),
        Just("for=\"[2001:db8::6]:1\"".to_owned()),
        Just("unknown".to_owned()),
        "\\PC{0,6}",
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

/// The keys that one client has over these requests: through so many proxies, each of which adds whom it was called by.
fn minted(
    clients: &ClientAddressResolver,
    client: IpAddr,
    proxies: &[IpAddr],
    requests: &[Vec<String>],
) -> BTreeSet<String> {
    let is_list = *clients.field().unwrap_or_default() == *"x-forwarded-for";
    let mut keys = BTreeSet::new();
    for lines in requests {
        let mut lines = lines.clone();
        let mut from = client;
        for (n, proxy) in proxies.iter().enumerate() {
            let told = match (is_list, from) {
                (true, from) => from.to_string(),
                (false, IpAddr::V4(v4)) => format!("for={v4};proto=https"),
                (false, IpAddr::V6(v6)) => format!("proto=http;for=\"[{v6}]:443\""),
            };
            // Some proxies go on writing on the last line, some begin another.
            match lines.last_mut() {
                Some(line) if n % 2 == 0 => *line = format!("{line}, {told}"),
                _ => lines.push(told),
            }
            from = *proxy;
        }
        let lines: Vec<&[u8]> = lines.iter().map(String::as_bytes).collect();
        let found = clients.resolve(from, lines);
        keys.insert(clients.key(found.address).as_str().to_owned());
    }
    keys
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn s_33_whatever_a_client_writes_it_has_one_key(
        requests in prop::collection::vec(prop::collection::vec(written(), 0..3), 1..8),
        proxies in 0..3_usize,
        is_v6 in any::<bool>(),
    ) {
        let client = ip(if is_v6 { "2001:db8:66::6" } else { "192.0.2.66" });
        let chain = [ip("10.0.0.1"), ip("2001:db8:aaaa::1")];
        let chain = &chain[..proxies];
        for source in [ForwardedHeader::XForwardedFor, ForwardedHeader::Forwarded] {
            let mut ways = vec![ClientAddressResolver::behind_proxies(source.clone(), ours())];
            if let Some(count) = NonZeroU8::new(u8::try_from(proxies).unwrap()) {
                ways.push(ClientAddressResolver::behind_hops(source, count));
            }
            for clients in ways {
                let keys = minted(&clients, client, chain, &requests);
                let own = clients.key(client).as_str().to_owned();
                prop_assert_eq!(keys, BTreeSet::from([own]), "{:?}", clients);
            }
        }
    }
}

#[test]
fn control_believing_one_proxy_too_many_mints_keys() {
    let trusting = ClientAddressResolver::behind_hops(ForwardedHeader::XForwardedFor, hops(2));
    let requests: Vec<Vec<String>> = (1..50).map(|n| vec![format!("6.6.6.{n}")]).collect();
    let keys = minted(&trusting, ip("192.0.2.66"), &[ip("10.0.0.1")], &requests);
    assert_eq!(keys.len(), 49);
}

#[test]
fn keys_are_spelt_as_the_standard_library_spells_addresses() {
    for number in 0..=u8::MAX {
        let address = IpAddr::from([number, 255 - number, 0, number]);
        let key = AddressKey::new(address, 32, 64);
        assert_eq!(key.as_str(), address.to_string());
    }
    for bits in 0..128 {
        let key = AddressKey::new(ip("ffff::1"), 32, bits);
        assert!(key.as_str().ends_with(&format!("/{bits}")), "{key:?}");
        assert!(key.as_str().parse::<Network>().is_ok(), "{key:?}");
    }
}
