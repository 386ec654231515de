//! Any bytes as what a client writes into the fields of proxies: nothing panics, and the client stays who it is (S-33).
//!
//! Must not know: which fuzzer calls it.

use std::net::IpAddr;
use std::num::NonZeroU8;

use tollgate_http::{AddressSource, ClientAddressResolver, ForwardedHeader, Network};

const PROXY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const CLIENT: &str = "192.0.2.66";

/// Sends the bytes through one trusted proxy and past it, and panics if they change whose address counts.
///
/// # Panics
/// If reading breaks a promise that holds for every input; that is what fuzzing is for.
pub fn address(bytes: &[u8]) {
    let trusted: Vec<Network> = "10.0.0.0/8".parse().into_iter().collect();
    for (source, told) in [
        (ForwardedHeader::XForwardedFor, CLIENT.to_owned()),
        (ForwardedHeader::Forwarded, format!("for={CLIENT}")),
    ] {
        let walking = ClientAddressResolver::behind_proxies(source.clone(), trusted.clone());
        let counting = ClientAddressResolver::behind_hops(source, NonZeroU8::MIN);
        check(&walking, &told, bytes);
        check(&counting, &told, bytes);
    }
    let one =
        ClientAddressResolver::behind_proxies(ForwardedHeader::Single("x-real-ip".into()), trusted);
    let found = one.resolve(PROXY, [bytes]);
    assert!(found.source == AddressSource::Forwarded || found.address == PROXY);
    if let Ok(text) = str::from_utf8(bytes)
        && let Ok(network) = text.parse::<Network>()
    {
        assert_eq!(network.to_string().parse(), Ok(network));
    }
}

/// The client calls a trusted proxy with the bytes in the field, and the proxy adds whom it was called by.
fn check(clients: &ClientAddressResolver, told: &str, bytes: &[u8]) {
    let client: Option<IpAddr> = CLIENT.parse().ok();
    let joined = [bytes, b", ", told.as_bytes()].concat();
    let apart: [&[u8]; 2] = [bytes, told.as_bytes()];
    for found in [
        clients.resolve(PROXY, [joined.as_slice()]),
        clients.resolve(PROXY, apart),
    ] {
        assert_eq!(Some(found.address), client, "{bytes:?} changed the client");
        assert_eq!(found.source, AddressSource::Forwarded);
    }
    // Alone they may name anyone or no one; no one is the proxy.
    let alone = clients.resolve(PROXY, [bytes]);
    assert!(alone.source == AddressSource::Forwarded || alone.address == PROXY);
    assert!(clients.key(alone.address).as_str().len() > 1);
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU8;

    use tollgate_http::{ClientAddressResolver, ForwardedHeader};

    use super::{CLIENT, address, check};
    use crate::fuzzing::pseudo_random_bytes;

    /// Letters of which hops are made, so that random texts get somewhere.
    const LETTERS: &[u8; 32] = b"0123456789abcdef.:,;=\"\\[]% _form";

    #[test]
    fn no_bytes_written_by_a_client_change_whose_address_counts() {
        for seed in 0..4_000 {
            let bytes = pseudo_random_bytes(seed, (seed % 80) as usize);
            address(&bytes);
            let letters = bytes.iter().map(|byte| LETTERS[usize::from(*byte % 32)]);
            address(&letters.collect::<Vec<u8>>());
        }
        address(&[b'"'; 2_000]);
        address(&[b'\\'; 2_000]);
        address(&[b','; 2_000]);
    }

    #[test]
    #[should_panic(expected = "changed the client")]
    fn control_one_hop_too_many_is_seen() {
        let two = NonZeroU8::MIN.saturating_add(1);
        let clients = ClientAddressResolver::behind_hops(ForwardedHeader::XForwardedFor, two);
        check(&clients, CLIENT, b"6.6.6.6");
    }
}
