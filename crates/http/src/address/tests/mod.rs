//! Client addresses behind proxies (S-33): tables of header values, address keys, and forged headers.
//!
//! Must not know: how headers are parsed.

mod address_keys;
mod forged_headers;
mod forwarding_headers;

use std::net::IpAddr;
use std::num::NonZeroU8;

use super::Network;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn trusted() -> Vec<Network> {
    ["10.0.0.0/8", "2001:db8:aaaa::/48"]
        .map(|text| text.parse().unwrap())
        .to_vec()
}

fn hops(count: u8) -> NonZeroU8 {
    NonZeroU8::new(count).unwrap()
}
