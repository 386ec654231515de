//! Forged headers do not give a client another key.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::num::NonZeroU8;

use proptest::prelude::*;

use super::{hops, ip, trusted};
use crate::{ClientAddressResolver, ForwardedHeader};

/// A forged header: meaningful pieces, and arbitrary text.
fn forged_header() -> impl Strategy<Value = String> {
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

/// The keys of one client over these requests, through proxies that each append the address that called them.
fn keys_of_client(
    resolver: &ClientAddressResolver,
    client: IpAddr,
    proxies: &[IpAddr],
    requests: &[Vec<String>],
) -> BTreeSet<String> {
    let is_list = *resolver.field().unwrap_or_default() == *"x-forwarded-for";
    let mut keys = BTreeSet::new();
    for lines in requests {
        let mut lines = lines.clone();
        let mut from = client;
        for (n, proxy) in proxies.iter().enumerate() {
            let hop = match (is_list, from) {
                (true, from) => from.to_string(),
                (false, IpAddr::V4(v4)) => format!("for={v4};proto=https"),
                (false, IpAddr::V6(v6)) => format!("proto=http;for=\"[{v6}]:443\""),
            };
            // Some proxies append to the last line, others add a line.
            match lines.last_mut() {
                Some(line) if n % 2 == 0 => *line = format!("{line}, {hop}"),
                _ => lines.push(hop),
            }
            from = *proxy;
        }
        let lines: Vec<&[u8]> = lines.iter().map(String::as_bytes).collect();
        let client = resolver.resolve(from, lines);
        keys.insert(resolver.key(client.address).as_str().to_owned());
    }
    keys
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn s_33_a_client_has_one_key_whatever_headers_it_sends(
        requests in prop::collection::vec(prop::collection::vec(forged_header(), 0..3), 1..8),
        proxies in 0..3_usize,
        is_v6 in any::<bool>(),
    ) {
        let client = ip(if is_v6 { "2001:db8:66::6" } else { "192.0.2.66" });
        let chain = [ip("10.0.0.1"), ip("2001:db8:aaaa::1")];
        let chain = &chain[..proxies];
        for source in [ForwardedHeader::XForwardedFor, ForwardedHeader::Forwarded] {
            let mut resolvers = vec![ClientAddressResolver::behind_proxies(source.clone(), trusted())];
            if let Some(count) = NonZeroU8::new(u8::try_from(proxies).unwrap()) {
                resolvers.push(ClientAddressResolver::behind_hops(source, count));
            }
            for resolver in resolvers {
                let keys = keys_of_client(&resolver, client, chain, &requests);
                let own = resolver.key(client).as_str().to_owned();
                prop_assert_eq!(keys, BTreeSet::from([own]), "{:?}", resolver);
            }
        }
    }
}

#[test]
fn control_trusting_one_hop_too_many_lets_a_client_choose_keys() {
    let resolver = ClientAddressResolver::behind_hops(ForwardedHeader::XForwardedFor, hops(2));
    let requests: Vec<Vec<String>> = (1..50).map(|n| vec![format!("6.6.6.{n}")]).collect();
    let keys = keys_of_client(&resolver, ip("192.0.2.66"), &[ip("10.0.0.1")], &requests);
    assert_eq!(keys.len(), 49);
}
