//! Several networks: the proxies whose word is taken, as operators write them in one line.
//!
//! Must not know: what they say.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::network::{InvalidNetwork, Network};

/// Networks whose word about clients is taken. Unless said otherwise only this machine.
///
/// ```
/// use tollgate_http::TrustedProxies;
///
/// let trusted: TrustedProxies = "10.0.0.0/8, 2001:db8::7".parse()?;
/// assert!(trusted.contain([10, 1, 2, 3].into()));
/// assert!(!trusted.contain([127, 0, 0, 1].into()));
/// assert!(TrustedProxies::default().contain([127, 0, 0, 1].into()));
/// # Ok::<(), tollgate_http::InvalidNetwork>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedProxies(Vec<Network>);

impl TrustedProxies {
    /// Whether an address lies in one of them.
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

    /// Networks with commas between them. Nothing at all is no network.
    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let list = text.split(',').map(str::trim).filter(|one| !one.is_empty());
        list.map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for TrustedProxies {
    /// As they are read.
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
    fn only_this_machine_is_trusted_unless_said_otherwise() {
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
    fn a_list_may_name_everyone_or_no_one_and_a_wrong_network_is_named() {
        let everyone: TrustedProxies = "0.0.0.0/0, ::/0".parse().unwrap();
        assert!(everyone.contains([1, 2, 3, 4].into()));
        assert!(everyone.contains(Ipv6Addr::LOCALHOST.into()));
        let no_one: TrustedProxies = "".parse().unwrap();
        assert!(!no_one.contains([127, 0, 0, 1].into()));
        let wrong = "10.0.0.0/8, nowhere".parse::<TrustedProxies>().unwrap_err();
        assert!(wrong.to_string().contains("\"nowhere\""), "{wrong}");
    }
}
