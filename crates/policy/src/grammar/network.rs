//! Networks and addresses: `10.0.0.0/8`, `2001:db8::/32`, `192.0.2.7`.
//!
//! A network with host bits set is rejected, because either the address or the prefix length is a mistake. IPv4-mapped
//! IPv6 is IPv4. Must not know: what networks are for.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

use super::{GrammarError, quote};

/// Parses a network; a single address is a network of one address.
///
/// ```
/// use tollgate_policy::grammar::parse_network;
///
/// assert_eq!(parse_network("10.0.0.0/8").unwrap().prefix_len(), 8);
/// assert_eq!(parse_network("10.1.2.3/8").unwrap_err().help.as_deref(), Some("did you mean `10.0.0.0/8` or `10.1.2.3`?"));
/// ```
///
/// # Errors
/// The text is not a network.
pub fn parse_network(text: &str) -> Result<IpNet, GrammarError> {
    let text = text.trim();
    let Some((host, bits)) = text.split_once('/') else {
        let address: IpAddr = text
            .parse()
            .map_err(|_no_more_to_say| not_an_address(text))?;
        return Ok(address.to_canonical().into());
    };
    let host_address: IpAddr = host
        .parse()
        .map_err(|_no_more_to_say| not_an_address(host))?;
    let length = bits.parse().ok().filter(|_| is_plain_number(bits));
    let Some(network) = length.and_then(|length| IpNet::new(host_address, length).ok()) else {
        return Err(not_a_length(text, host, bits));
    };
    let network = unmap_ipv4(network);
    let truncated = network.trunc();
    if truncated == network {
        return Ok(truncated);
    }
    Err(GrammarError::with_help(
        format!(
            "{} has host bits set: {host} is a single address",
            quote(text)
        ),
        format!("did you mean `{truncated}` or `{host}`?"),
    ))
}

/// Parses one address.
///
/// # Errors
/// The text is not an address.
pub fn parse_address(text: &str) -> Result<IpAddr, GrammarError> {
    let text = text.trim();
    text.parse::<IpAddr>()
        .map(|address| address.to_canonical())
        .map_err(|_no_more_to_say| GrammarError {
            help: Some("write it as `192.0.2.7` or `2001:db8::1`".into()),
            ..not_an_address(text)
        })
}

fn not_an_address(text: &str) -> GrammarError {
    let help = if text.contains('%') {
        "leave the zone id out"
    } else if text.starts_with('[') {
        "write the address without brackets"
    } else {
        "write it as `10.0.0.0/8`, `192.0.2.7`, `2001:db8::/32`, or name a list: `{ in: NAME }`"
    };
    GrammarError::with_help(format!("{} is not an address", quote(text)), help)
}

fn not_a_length(text: &str, host: &str, bits: &str) -> GrammarError {
    let mask = bits.parse::<Ipv4Addr>().ok().and_then(mask_bits);
    let max = if host.contains(':') { 128 } else { 32 };
    let help = mask.map_or_else(
        || format!("write a number from 0 to {max} after the slash"),
        |bits| format!("write `{host}/{bits}`"),
    );
    GrammarError::with_help(
        format!(
            "{} is not a network: {} is not a prefix length",
            quote(text),
            quote(bits)
        ),
        help,
    )
}

/// `+8` and `08` parse as numbers but are not prefix lengths.
fn is_plain_number(bits: &str) -> bool {
    bits == "0" || !bits.starts_with(['0', '+'])
}

/// Converts an IPv4-mapped IPv6 network to an IPv4 network.
pub(crate) fn unmap_ipv4(network: IpNet) -> IpNet {
    let v4 = match network {
        IpNet::V6(v6) => v6
            .addr()
            .to_ipv4_mapped()
            .zip(v6.prefix_len().checked_sub(96)),
        IpNet::V4(_) => None,
    };
    v4.and_then(|(address, bits)| IpNet::new(address.into(), bits).ok())
        .unwrap_or(network)
}

/// The prefix length of a network mask.
fn mask_bits(mask: Ipv4Addr) -> Option<u32> {
    let bits = mask.to_bits().leading_ones();
    (mask.to_bits().count_ones() == bits).then_some(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        match parse_network(text) {
            Ok(network) => network.to_string(),
            Err(error) => format!("{}; {}", error.message, error.help.unwrap_or_default()),
        }
    }

    #[test]
    fn networks_and_addresses_are_parsed() {
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
    fn invalid_networks_are_rejected_with_a_suggestion() {
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
            ("fe80::1%eth0", "leave the zone id out"),
            ("[::1]", "without brackets"),
            ("", "not an address"),
        ] {
            assert!(read(text).contains(expected), "{text}: {}", read(text));
        }
    }
}
