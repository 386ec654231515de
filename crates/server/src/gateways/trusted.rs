//! Which peers may say what others asked: networks of proxies, and the client's address behind them.
//!
//! Must not know: HTTP libraries, policies.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use tollgate_policy::model::Network;
use tollgate_policy::words::network;

/// Networks whose word about clients is taken. Unless said otherwise only this machine.
///
/// ```
/// use tollgate_server::Trusted;
///
/// let trusted: Trusted = "10.0.0.0/8, 2001:db8::7".parse()?;
/// assert!(trusted.includes([10, 1, 2, 3].into()));
/// assert!(!trusted.includes([127, 0, 0, 1].into()));
/// # Ok::<(), tollgate_server::InvalidNetwork>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trusted(Box<[Network]>);

impl Default for Trusted {
    fn default() -> Self {
        let v4 = Network {
            address: Ipv4Addr::new(127, 0, 0, 0).into(),
            bits: 8,
        };
        let v6 = Network {
            address: Ipv6Addr::LOCALHOST.into(),
            bits: 128,
        };
        Self([v4, v6].into())
    }
}

impl Trusted {
    /// Whether an address lies in one of the networks.
    #[must_use]
    pub fn includes(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| holds(network, address))
    }

    /// The client's address in a list of addresses that each proxy appended its peer to: the last one that is no proxy of
    /// ours. What a client wrote there itself lies further left and is never reached. A proxy that hides whom it serves
    /// stands for them.
    pub(crate) fn client<'a>(
        &self,
        hops: impl DoubleEndedIterator<Item = &'a str>,
    ) -> Option<IpAddr> {
        let mut client = None;
        for hop in hops.rev() {
            let Some(address) = address(hop) else {
                break;
            };
            client = Some(address);
            if !self.includes(address) {
                break;
            }
        }
        client
    }
}

impl FromStr for Trusted {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let list = text.split(',').map(str::trim).filter(|one| !one.is_empty());
        let read = |one| {
            network(one).map_err(|wrong| InvalidNetwork {
                message: match wrong.help {
                    Some(help) => format!("{}; {help}", wrong.message),
                    None => wrong.message.into(),
                },
            })
        };
        list.map(read).collect::<Result<_, _>>().map(Self)
    }
}

/// A text that names no network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidNetwork {
    message: String,
}

impl fmt::Display for InvalidNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for InvalidNetwork {}

/// An address as proxies write it: alone, in brackets, or with a port.
pub(super) fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = text.strip_prefix('[').map_or(text, |rest| {
        rest.split_once(']').map_or(rest, |(inside, _)| inside)
    });
    let with_port = || text.parse::<std::net::SocketAddr>().ok();
    let address = bare
        .parse()
        .ok()
        .or_else(|| with_port().map(|address| address.ip()))?;
    Some(IpAddr::to_canonical(&address))
}

fn holds(network: &Network, address: IpAddr) -> bool {
    let (whole, one, other) = match (network.address, address) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            (32, u128::from(one.to_bits()), u128::from(other.to_bits()))
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => (128, one.to_bits(), other.to_bits()),
        _ => return false,
    };
    let beyond = 128_u32.min(u32::saturating_sub(whole, network.bits.into()));
    // A shift by the whole width leaves nothing, which is what a network of everything compares.
    one.checked_shr(beyond) == other.checked_shr(beyond)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trusted(text: &str) -> Trusted {
        text.parse().unwrap()
    }

    #[test]
    fn only_this_machine_is_trusted_unless_said_otherwise() {
        let trusted = Trusted::default();
        for (address, expected) in [
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("128.0.0.1", false),
            ("10.0.0.1", false),
            ("::2", false),
        ] {
            assert_eq!(trusted.includes(address.parse().unwrap()), expected);
        }
    }

    #[test]
    fn networks_end_where_they_say() {
        let trusted = trusted("10.0.0.0/9,2001:db8::/33");
        for (address, expected) in [
            ("10.127.255.255", true),
            ("10.128.0.0", false),
            ("2001:db8:7fff::1", true),
            ("2001:db8:8000::", false),
        ] {
            assert_eq!(trusted.includes(address.parse().unwrap()), expected);
        }
        let everyone = "0.0.0.0/0, ::/0".parse::<Trusted>().unwrap();
        assert!(everyone.includes([1, 2, 3, 4].into()));
        assert!(everyone.includes(Ipv6Addr::LOCALHOST.into()));
        assert!(
            !"".parse::<Trusted>()
                .unwrap()
                .includes([127, 0, 0, 1].into())
        );
        let wrong = "10.0.0.0/8, nowhere".parse::<Trusted>().unwrap_err();
        assert!(wrong.to_string().contains("`nowhere`"), "{wrong}");
    }

    #[test]
    fn the_client_is_the_last_that_is_no_proxy_of_ours() {
        let trusted = trusted("10.0.0.0/8");
        for (hops, client) in [
            ("192.0.2.7", Some("192.0.2.7")),
            ("192.0.2.7, 10.0.0.1, 10.0.0.2", Some("192.0.2.7")),
            ("198.51.100.1, 192.0.2.7, 10.0.0.1", Some("192.0.2.7")),
            ("evil, 192.0.2.7:1234, 10.0.0.1", Some("192.0.2.7")),
            ("[2001:db8::1]:99, 10.0.0.1", Some("2001:db8::1")),
            ("unknown, 10.0.0.1", Some("10.0.0.1")),
            ("10.0.0.3, 10.0.0.1", Some("10.0.0.3")),
            ("unknown", None),
            ("", None),
        ] {
            let found = trusted.client(hops.split(','));
            assert_eq!(found, client.map(|text| text.parse().unwrap()), "{hops}");
        }
    }
}
