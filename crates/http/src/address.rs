//! Who is asking, when nothing better than an address is known.
//!
//! Must not know: headers. Which address to believe behind proxies is decided before this.

use std::net::{IpAddr, Ipv6Addr};

/// The key that an address is limited under.
///
/// An IPv4 address in IPv6 clothes is the IPv4 address, and an IPv6 address stands for its /64: one subscriber is
/// given at least that many, so a limit on single addresses would limit nobody.
///
/// ```
/// use tollgate_http::address_key;
///
/// assert_eq!(address_key("192.0.2.7".parse().unwrap()), "192.0.2.7");
/// assert_eq!(address_key("::ffff:192.0.2.7".parse().unwrap()), "192.0.2.7");
/// assert_eq!(address_key("2001:db8:1:2:3:4:5:6".parse().unwrap()), "2001:db8:1:2::/64");
/// ```
#[must_use]
pub fn address_key(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => {
            let network = v6.to_bits() & (u128::MAX << 64);
            format!("{}/64", Ipv6Addr::from_bits(network))
        }
    }
}
