//! The networks of trusted proxies, written by operators as a comma-separated list.
//!
//! Must not know: forwarding headers.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::network::{InvalidNetwork, Network};

/// Networks of proxies whose forwarding headers are trusted. The default is loopback only.
///
/// ```
/// use tollgate_http::TrustedProxies;
///
/// let trusted: TrustedProxies = "10.0.0.0/8, 2001:db8::7".parse()?;
/// assert!(trusted.contains([10, 1, 2, 3].into()));
/// assert!(!trusted.contains([127, 0, 0, 1].into()));
/// assert!(TrustedProxies::default().contains([127, 0, 0, 1].into()));
/// # Ok::<(), tollgate_http::InvalidNetwork>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedProxies(Vec<Network>);

impl TrustedProxies {
    /// Whether an address is in one of the networks.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }
}

impl Default for TrustedProxies {
    fn default() -> Self {
        Self(Network::LOOPBACK.into())
    }
}

impl From<TrustedProxies> for Vec<Network> {
    fn from(networks: TrustedProxies) -> Self {
        networks.0
    }
}

impl FromStr for TrustedProxies {
    type Err = InvalidNetwork;

    /// Parses networks separated by commas. Empty text is an empty list.
    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let list = text.split(',').map(str::trim).filter(|one| !one.is_empty());
        list.map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for TrustedProxies {
    /// The format that [`FromStr`] parses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, network) in self.0.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { "," })?;
            network.fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    #[test]
    fn only_loopback_is_trusted_by_default() {
        let trusted = TrustedProxies::default();
        for (address, expected) in [
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("128.0.0.1", false),
            ("10.0.0.1", false),
            ("::2", false),
        ] {
            assert_eq!(trusted.contains(address.parse().unwrap()), expected);
        }
        assert_eq!(trusted.to_string(), "127.0.0.0/8,::1/128");
        assert_eq!(trusted.to_string().parse(), Ok(trusted));
    }

    #[test]
    fn a_list_may_hold_all_networks_or_none_and_an_error_quotes_the_wrong_one() {
        let all: TrustedProxies = "0.0.0.0/0, ::/0".parse().unwrap();
        assert!(all.contains([1, 2, 3, 4].into()));
        assert!(all.contains(Ipv6Addr::LOCALHOST.into()));
        let none: TrustedProxies = "".parse().unwrap();
        assert!(!none.contains([127, 0, 0, 1].into()));
        let wrong = "10.0.0.0/8, nowhere".parse::<TrustedProxies>().unwrap_err();
        assert!(wrong.to_string().contains("\"nowhere\""), "{wrong}");
    }
}
