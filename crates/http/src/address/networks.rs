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
/// use tollgate_http::Networks;
///
/// let trusted: Networks = "10.0.0.0/8, 2001:db8::7".parse()?;
/// assert!(trusted.contain([10, 1, 2, 3].into()));
/// assert!(!trusted.contain([127, 0, 0, 1].into()));
/// assert!(Networks::default().contain([127, 0, 0, 1].into()));
/// # Ok::<(), tollgate_http::InvalidNetwork>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Networks(Vec<Network>);

impl Networks {
    /// Whether an address lies in one of them.
    #[must_use]
    pub fn contain(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }
}

impl Default for Networks {
    fn default() -> Self {
        Self(Network::LOOPBACK.into())
    }
}

impl From<Networks> for Vec<Network> {
    fn from(networks: Networks) -> Self {
        networks.0
    }
}

impl FromStr for Networks {
    type Err = InvalidNetwork;

    /// Networks with commas between them. Nothing at all is no network.
    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let list = text.split(',').map(str::trim).filter(|one| !one.is_empty());
        list.map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Networks {
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
        let trusted = Networks::default();
        for (address, expected) in [
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("128.0.0.1", false),
            ("10.0.0.1", false),
            ("::2", false),
        ] {
            assert_eq!(trusted.contain(address.parse().unwrap()), expected);
        }
        assert_eq!(trusted.to_string(), "127.0.0.0/8,::1/128");
        assert_eq!(trusted.to_string().parse(), Ok(trusted));
    }

    #[test]
    fn a_list_may_name_everyone_or_no_one_and_a_wrong_network_is_named() {
        let everyone: Networks = "0.0.0.0/0, ::/0".parse().unwrap();
        assert!(everyone.contain([1, 2, 3, 4].into()));
        assert!(everyone.contain(Ipv6Addr::LOCALHOST.into()));
        let no_one: Networks = "".parse().unwrap();
        assert!(!no_one.contain([127, 0, 0, 1].into()));
        let wrong = "10.0.0.0/8, nowhere".parse::<Networks>().unwrap_err();
        assert!(wrong.to_string().contains("\"nowhere\""), "{wrong}");
    }
}
