//! Networks in CIDR notation.
//!
//! Must not know: what networks are used for.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// A network: all addresses with the same leading bits.
///
/// ```
/// use tollgate_http::Network;
///
/// let network: Network = "10.0.0.0/8".parse()?;
/// assert!(network.contains("10.1.2.3".parse().unwrap()));
/// assert!(network.contains("::ffff:10.1.2.3".parse().unwrap()), "the same address, IPv4-mapped");
/// assert!(!network.contains("11.0.0.0".parse().unwrap()));
///
/// let error = "10.0.0.1/8".parse::<Network>().unwrap_err();
/// assert_eq!(error.to_string(), r#"network: "10.0.0.1/8" is not valid: it has bits beyond its length; 10.0.0.0/8 has not"#);
/// # Ok::<(), tollgate_http::InvalidNetwork>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network(
    /// IPv4 if the network is IPv4-mapped, with no host bit set.
    IpNet,
);

impl Network {
    /// The loopback networks.
    pub(super) const LOOPBACK: [Self; 2] = [
        Self(IpNet::V4(Ipv4Net::new_assert(
            Ipv4Addr::new(127, 0, 0, 0),
            8,
        ))),
        Self(IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128))),
    ];

    /// Whether the address is in the network.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        // This runs several times for each request. No host bit is set, so the first bit that differs decides.
        match (self.0, address.to_canonical()) {
            (IpNet::V4(network), IpAddr::V4(address)) => {
                let differ = network.addr().to_bits() ^ address.to_bits();
                differ.leading_zeros() >= network.prefix_len().into()
            }
            (IpNet::V6(network), IpAddr::V6(address)) => {
                let differ = network.addr().to_bits() ^ address.to_bits();
                differ.leading_zeros() >= network.prefix_len().into()
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = InvalidNetwork;

    /// Parses `10.0.0.0/8`, or a single address.
    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let invalid = |reason| InvalidNetwork {
            text: text.chars().take(64).collect(),
            reason,
        };
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address
            .parse()
            .or(Err(invalid(InvalidNetworkReason::Address)))?;
        let alone = IpNet::from(address);
        let network = match length {
            None => alone,
            Some(length) => {
                // A leading zero or plus sign would be a second spelling of the same length.
                let is_plain = length == "0" || !length.starts_with(['0', '+']);
                let bits = length.parse().ok().filter(|_| is_plain);
                bits.and_then(|bits| IpNet::new(address, bits).ok())
                    .ok_or_else(|| invalid(InvalidNetworkReason::Length(alone.max_prefix_len())))?
            }
        };
        if network.trunc() != network {
            return Err(invalid(InvalidNetworkReason::BeyondLength(network.trunc())));
        }
        Ok(Self(unmap_ipv4(network)))
    }
}

/// Turns an IPv4-mapped IPv6 network into the IPv4 network.
fn unmap_ipv4(network: IpNet) -> IpNet {
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

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The text is not a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidNetwork {
    text: String,
    reason: InvalidNetworkReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InvalidNetworkReason {
    Address,
    Length(u8),
    BeyondLength(IpNet),
}

impl fmt::Display for InvalidNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "network: {:?} is not valid: ", self.text)?;
        match self.reason {
            InvalidNetworkReason::Address => f.write_str("it does not begin with an IP address"),
            InvalidNetworkReason::Length(most) => {
                write!(f, "its length must be a number from 0 to {most}")
            }
            InvalidNetworkReason::BeyondLength(network) => {
                write!(f, "it has bits beyond its length; {network} has not")
            }
        }
    }
}

impl std::error::Error for InvalidNetwork {}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn a_network_contains_the_addresses_with_its_leading_bits() {
        let cases = [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("0.0.0.0/0", "255.255.255.255", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "ffff::", true),
            ("::/0", "1.2.3.4", false),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.6", false),
            ("2001:db8::/32", "2001:db8:ffff::1", true),
            ("2001:db8::/32", "2001:db9::", false),
            ("::ffff:10.0.0.0/104", "10.9.9.9", true),
            ("::ffff:10.0.0.0/104", "::ffff:10.9.9.9", true),
            ("::1/128", "::1", true),
        ];
        for (text, address, expected) in cases {
            let contains = network(text).contains(address.parse().unwrap());
            assert_eq!(contains, expected, "{text} {address}");
        }
    }

    #[test]
    fn an_invalid_network_is_refused_with_the_reason() {
        let cases = [
            ("", "it does not begin with an IP address"),
            ("localhost", "it does not begin with an IP address"),
            ("10.0.0.0/33", "its length must be a number from 0 to 32"),
            ("10.0.0.0/", "its length must be a number from 0 to 32"),
            ("10.0.0.0/+8", "its length must be a number from 0 to 32"),
            ("10.0.0.0/08", "its length must be a number from 0 to 32"),
            ("::/129", "its length must be a number from 0 to 128"),
            (
                "10.1.0.0/8",
                "it has bits beyond its length; 10.0.0.0/8 has not",
            ),
            (
                "2001:db8::1/64",
                "it has bits beyond its length; 2001:db8::/64 has not",
            ),
        ];
        for (text, reason) in cases {
            let error = text.parse::<Network>().unwrap_err().to_string();
            assert_eq!(error, format!("network: {text:?} is not valid: {reason}"));
        }
    }

    #[test]
    fn the_displayed_network_parses_back() {
        for text in [
            "10.0.0.0/8",
            "::/0",
            "2001:db8::/32",
            "0.0.0.0/0",
            "192.0.2.7/32",
        ] {
            assert_eq!(network(text).to_string(), text);
        }
        assert_eq!(network("::ffff:10.0.0.0/104").to_string(), "10.0.0.0/8");
    }
}
