//! Networks and addresses: `10.0.0.0/8`, `2001:db8::/32`, `192.0.2.7`.
//!
//! An address whose bits go on beyond the network's length is refused, because one of the two is a mistake. IPv4
//! addresses in the clothes of IPv6 are IPv4. Must not know: what networks are for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Wrong, quoted};
use crate::model::Network;

/// A network, or an address as a network of one.
///
/// ```
/// use tollgate_policy::words::network;
///
/// assert_eq!(network("10.0.0.0/8").unwrap().bits, 8);
/// assert_eq!(network("10.1.2.3/8").unwrap_err().help.as_deref(), Some("did you mean `10.0.0.0/8` or `10.1.2.3`?"));
/// ```
///
/// # Errors
/// The text is not a network.
pub fn network(text: &str) -> Result<Network, Wrong> {
    let text = text.trim();
    let Some((host, bits)) = text.split_once('/') else {
        let address: IpAddr = text
            .parse()
            .map_err(|_no_more_to_say| not_an_address(text))?;
        let address = address.to_canonical();
        return Ok(Network {
            address,
            bits: width(address),
        });
    };
    let shown = quoted(text);
    let host_address: IpAddr = host
        .parse()
        .map_err(|_no_more_to_say| not_an_address(host))?;
    let most = width(host_address);
    let bits: u8 = match bits.parse::<u8>() {
        Ok(bits) if bits <= most && is_plain(text) => bits,
        _ => {
            let help = bits
                .parse::<Ipv4Addr>()
                .ok()
                .and_then(mask_bits)
                .map_or_else(
                    || format!("write a number from 0 to {most} after the slash"),
                    |bits| format!("write `{host}/{bits}`"),
                );
            return Err(Wrong::with(
                format!(
                    "{shown} is not a network: {} is not its length",
                    quoted(bits)
                ),
                help,
            ));
        }
    };
    let network = unmapped(host_address, bits);
    let right = Network {
        address: masked(network.address, network.bits),
        bits: network.bits,
    };
    if right == network {
        return Ok(right);
    }
    Err(Wrong::with(
        format!("{shown} has bits beyond its length: {host} is one address in that network"),
        format!(
            "did you mean `{}/{}` or `{host}`?",
            right.address, right.bits
        ),
    ))
}

/// One address.
///
/// # Errors
/// The text is not an address.
pub fn address(text: &str) -> Result<IpAddr, Wrong> {
    let text = text.trim();
    text.parse::<IpAddr>()
        .map(|address| address.to_canonical())
        .map_err(|_no_more_to_say| Wrong {
            help: Some("write it as `192.0.2.7` or `2001:db8::1`".into()),
            ..not_an_address(text)
        })
}

fn not_an_address(text: &str) -> Wrong {
    let help = if text.contains('%') {
        "leave the zone out"
    } else if text.starts_with('[') {
        "write the address without brackets"
    } else {
        "write it as `10.0.0.0/8`, `192.0.2.7`, `2001:db8::/32`, or name a list: `{ in: NAME }`"
    };
    Wrong::with(format!("{} is not an address", quoted(text)), help)
}

/// `/+8` and `/08` parse as numbers and are no lengths.
fn is_plain(text: &str) -> bool {
    let bits = text.rsplit('/').next().unwrap_or_default();
    bits == "0" || !bits.starts_with(['0', '+'])
}

const fn width(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

fn unmapped(address: IpAddr, bits: u8) -> Network {
    match (address, address.to_canonical()) {
        (IpAddr::V6(_), v4 @ IpAddr::V4(_)) if bits >= 96 => Network {
            address: v4,
            bits: bits - 96,
        },
        _ => Network { address, bits },
    }
}

fn masked(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            Ipv4Addr::from_bits(v4.to_bits() & mask).into()
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            Ipv6Addr::from_bits(v6.to_bits() & mask).into()
        }
    }
}

/// The length of a network whose mask is written as an address.
fn mask_bits(mask: Ipv4Addr) -> Option<u32> {
    let bits = mask.to_bits().leading_ones();
    (mask.to_bits().count_ones() == bits).then_some(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        match network(text) {
            Ok(network) => format!("{}/{}", network.address, network.bits),
            Err(wrong) => format!("{}; {}", wrong.message, wrong.help.unwrap_or_default()),
        }
    }

    #[test]
    fn networks_and_addresses_are_read() {
        for (text, expected) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("192.0.2.7", "192.0.2.7/32"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("::/0", "::/0"),
            ("2001:DB8::1", "2001:db8::1/128"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:10.0.0.1", "10.0.0.1/32"),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_network_is_refused_and_the_right_one_named() {
        for (text, expected) in [
            ("10.1.2.3/8", "did you mean `10.0.0.0/8` or `10.1.2.3`?"),
            ("2001:db8::1/32", "did you mean `2001:db8::/32`"),
            ("10.0.0.0/33", "from 0 to 32"),
            ("10.0.0.0/-0", "from 0 to 32"),
            ("10.0.0.0/08", "from 0 to 32"),
            ("10.0.0.0/+8", "from 0 to 32"),
            ("10.0.0.0/1e1", "from 0 to 32"),
            ("::/129", "from 0 to 128"),
            ("10.0.0.0/255.0.0.0", "write `10.0.0.0/8`"),
            ("10.0.0", "not an address"),
            ("010.0.0.1", "not an address"),
            ("example.com", "not an address"),
            ("fe80::1%eth0", "leave the zone out"),
            ("[::1]", "without brackets"),
            ("", "not an address"),
        ] {
            assert!(read(text).contains(expected), "{text}: {}", read(text));
        }
    }
}
