//! Networks in CIDR notation: whose word about others is believed.
//!
//! Must not know: why anyone asks.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// All addresses that begin with the same bits.
///
/// ```
/// use tollgate_http::Network;
///
/// let network: Network = "10.0.0.0/8".parse()?;
/// assert!(network.contains("10.1.2.3".parse().unwrap()));
/// assert!(network.contains("::ffff:10.1.2.3".parse().unwrap()), "the same address in other clothes");
/// assert!(!network.contains("11.0.0.0".parse().unwrap()));
///
/// let error = "10.0.0.1/8".parse::<Network>().unwrap_err();
/// assert_eq!(error.to_string(), r#"network: "10.0.0.1/8" is not valid: it has bits beyond its length; 10.0.0.0/8 has not"#);
/// # Ok::<(), tollgate_http::InvalidNetwork>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    /// Canonical, with no bit set beyond the length.
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// This machine.
    pub(super) const LOOPBACK: [Self; 2] = [
        Self {
            address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)),
            bits: 8,
        },
        Self {
            address: IpAddr::V6(Ipv6Addr::LOCALHOST),
            bits: 128,
        },
    ];

    /// Whether the address is one of them.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4() && masked(address, self.bits) == self.address
    }
}

/// The address with only its first bits left.
pub(super) fn masked(address: IpAddr, bits: u8) -> IpAddr {
    let bits = u32::from(bits);
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(bits));
            Ipv4Addr::from_bits(v4.to_bits() & mask.unwrap_or(0)).into()
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(bits));
            Ipv6Addr::from_bits(v6.to_bits() & mask.unwrap_or(0)).into()
        }
    }
}

impl FromStr for Network {
    type Err = InvalidNetwork;

    /// `10.0.0.0/8`, or one address alone.
    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let invalid = |reason| InvalidNetwork {
            text: text.chars().take(64).collect(),
            reason,
        };
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().or(Err(invalid(Reason::Address)))?;
        let all = if address.is_ipv4() { 32 } else { 128 };
        let bits = match length {
            None => all,
            // Two spellings of one length would be one too many.
            Some(length) if length.len() > 1 && length.starts_with('0') => {
                return Err(invalid(Reason::Length(all)));
            }
            Some(length) => {
                let is_digits = length.bytes().all(|byte| byte.is_ascii_digit());
                let bits = length.parse().ok().filter(|bits| is_digits && *bits <= all);
                bits.ok_or_else(|| invalid(Reason::Length(all)))?
            }
        };
        let network = masked(address, bits);
        if network != address {
            return Err(invalid(Reason::BeyondLength { network, bits }));
        }
        // An IPv4 network in IPv6 clothes is the IPv4 network, as its addresses are.
        let plain = network.to_canonical();
        if plain.is_ipv4() && network.is_ipv6() && bits >= 96 {
            return Ok(Self {
                address: plain,
                bits: bits - 96,
            });
        }
        Ok(Self {
            address: network,
            bits,
        })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// Text that is no network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidNetwork {
    text: String,
    reason: Reason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Address,
    Length(u8),
    BeyondLength { network: IpAddr, bits: u8 },
}

impl fmt::Display for InvalidNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "network: {:?} is not valid: ", self.text)?;
        match self.reason {
            Reason::Address => f.write_str("it does not begin with an IP address"),
            Reason::Length(most) => write!(f, "its length must be a number from 0 to {most}"),
            Reason::BeyondLength { network, bits } => {
                write!(f, "it has bits beyond its length; {network}/{bits} has not")
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
    fn networks_contain_what_begins_like_them() {
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
    fn what_is_no_network_is_named_with_the_reason() {
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
    fn what_is_shown_reads_back() {
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
