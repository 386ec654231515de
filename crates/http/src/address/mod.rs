//! Client addresses: which address of a forwarding header to trust, and the key under which it is counted.
//!
//! `client_address.rs` walks from the connection towards the client, `forwarded.rs` splits headers into hops,
//! `node_identifier.rs` parses one hop, `network.rs` and `trusted_proxies.rs` hold the trusted networks. Must not know: header
//! libraries, sockets.

mod client_address;
mod forwarded;
mod network;
mod node_identifier;
#[cfg(test)]
mod tests;
mod trusted_proxies;

pub use client_address::{AddressSource, ClientAddress, ClientAddressResolver, ForwardedHeader};
pub use network::{InvalidNetwork, Network};
pub use trusted_proxies::TrustedProxies;

use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The key under which an address is counted.
///
/// An IPv4-mapped IPv6 address counts as the IPv4 address. An IPv6 address counts as its /64: one subscriber has at
/// least a /64, so a limit on single addresses would limit nobody.
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
    AddressKey::new(address, 32, 64).as_str().to_owned()
}

/// The key of an address, built without allocating: text such as `192.0.2.7` or `2001:db8:1:2::/64`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AddressKey {
    text: [u8; 48],
    len: usize,
}

impl AddressKey {
    /// The key of all addresses that have these leading bits in common with `address`.
    ///
    /// ```
    /// use tollgate_http::AddressKey;
    ///
    /// let key = AddressKey::new("192.0.2.7".parse().unwrap(), 24, 56);
    /// assert_eq!(key.as_str(), "192.0.2.0/24");
    /// let key = AddressKey::new("2001:db8:1:2:3:4:5:6".parse().unwrap(), 24, 56);
    /// assert_eq!(key.as_str(), "2001:db8:1::/56");
    /// ```
    #[must_use]
    pub fn new(address: IpAddr, v4_bits: u8, v6_bits: u8) -> Self {
        let address = address.to_canonical();
        let (bits, all) = match address {
            IpAddr::V4(_) => (v4_bits, 32),
            IpAddr::V6(_) => (v6_bits, 128),
        };
        let mut key = Self {
            text: [0; 48],
            len: 0,
        };
        // The longest text has 43 characters, so writing never fails.
        key.write_address(mask_address(address, bits), (bits < all).then_some(bits))
            .unwrap_or_default();
        key
    }

    fn write_address(&mut self, network: IpAddr, bits: Option<u8>) -> fmt::Result {
        match network {
            // By hand, because most keys are IPv4 and `fmt` spends several times the instructions on padding.
            IpAddr::V4(v4) => {
                let [first, others @ ..] = v4.octets();
                self.push_number(first)?;
                for octet in others {
                    self.write_char('.')?;
                    self.push_number(octet)?;
                }
            }
            IpAddr::V6(v6) => write!(self, "{v6}")?,
        }
        match bits {
            Some(bits) => {
                self.write_char('/')?;
                self.push_number(bits)
            }
            None => Ok(()),
        }
    }

    fn push_number(&mut self, number: u8) -> fmt::Result {
        let digit = |value: u8| char::from(b'0' + value % 10);
        if number > 99 {
            self.write_char(digit(number / 100))?;
        }
        if number > 9 {
            self.write_char(digit(number / 10))?;
        }
        self.write_char(digit(number))
    }

    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let text = self.text.get(..self.len).unwrap_or_default();
        str::from_utf8(text).unwrap_or_default()
    }
}

/// Keeps the first bits of an address and clears the others. By hand, because it runs for every request.
fn mask_address(address: IpAddr, bits: u8) -> IpAddr {
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

impl Write for AddressKey {
    fn write_char(&mut self, c: char) -> fmt::Result {
        match (self.text.get_mut(self.len), u8::try_from(c)) {
            (Some(slot), Ok(byte)) if byte.is_ascii() => {
                *slot = byte;
                self.len = self.len.saturating_add(1);
                Ok(())
            }
            _ => Err(fmt::Error),
        }
    }

    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len.saturating_add(text.len());
        let room = self.text.get_mut(self.len..end).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

impl fmt::Debug for AddressKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}
