//! The network that a client is counted by: an IPv4 address, or the /64 of an IPv6 address.
//!
//! Must not know: sockets, what is counted.

use std::net::IpAddr;

/// The bit that tells IPv6 networks from IPv4 addresses. The bits of a /64 end below it.
const IPV6: u128 = 1 << 127;

/// An IPv4 address or the /64 of an IPv6 address: a client can use every address of its /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ClientNetwork(u128);

impl From<IpAddr> for ClientNetwork {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self(u128::from(v4.to_bits())),
            IpAddr::V6(v6) => Self(v6.to_bits() >> 64 | IPV6),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_ipv6_network_are_one_client_and_ipv4_addresses_are_not() {
        let network = |text: &str| ClientNetwork::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:1"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_eq!(network("192.0.2.1"), network("::ffff:192.0.2.1"));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
        assert_ne!(network("0.0.0.1"), network("0:0:0:1::"));
    }
}
