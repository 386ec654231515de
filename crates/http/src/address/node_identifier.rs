//! Parses one hop of a forwarding header, the node identifier of RFC 7239: an address, optionally with a port, brackets or a
//! zone.
//!
//! Must not know: which header it came from, which proxies are trusted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest hop in bytes: an IPv6 address with brackets, a zone and a port.
const MAX_LEN: usize = 96;

/// The address of a hop in canonical form. `None` if it has none, such as `unknown` and `_hidden`.
pub(super) fn parse_address(text: &[u8]) -> Option<IpAddr> {
    let text = text.trim_ascii();
    if text.len() > MAX_LEN {
        return None;
    }
    let text = str::from_utf8(text).ok()?;
    let address = match text.strip_prefix('[') {
        Some(rest) => {
            let (inside, after) = rest.split_once(']')?;
            if !(after.is_empty() || after.strip_prefix(':').is_some_and(is_port)) {
                return None;
            }
            IpAddr::V6(parse_ipv6(inside)?)
        }
        None => parse_unbracketed(text)?,
    };
    Some(address.to_canonical())
}

fn parse_unbracketed(text: &str) -> Option<IpAddr> {
    match text.split_once(':') {
        None => text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        // One colon precedes a port. More colons are an IPv6 address, which needs brackets to have a port.
        Some((v4, port)) if !port.contains(':') => {
            let v4 = v4.parse::<Ipv4Addr>().ok()?;
            is_port(port).then_some(IpAddr::V4(v4))
        }
        Some(_) => parse_ipv6(text).map(IpAddr::V6),
    }
}

/// An IPv6 address without its zone, which is meaningful on one machine only.
fn parse_ipv6(text: &str) -> Option<Ipv6Addr> {
    let address = match text.split_once('%') {
        Some((address, zone)) => {
            let is_zone = |byte: u8| byte.is_ascii_alphanumeric() || b"._-~".contains(&byte);
            if zone.is_empty() || !zone.bytes().all(is_zone) {
                return None;
            }
            address
        }
        None => text,
    };
    address.parse().ok()
}

/// Whether the text is a port number, or an obfuscated port of RFC 7239.
fn is_port(text: &str) -> bool {
    match text.strip_prefix('_') {
        Some(hidden) => {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            !hidden.is_empty() && hidden.bytes().all(is_name)
        }
        None => text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok(),
    }
}
