//! Resolves the client's address behind proxies: walks the forwarding header from the connection towards the client while
//! the addresses belong to trusted proxies.
//!
//! The operator chooses one header. Taking whichever header is present would let a client choose its address. Must not
//! know: header libraries, sockets.

use std::net::IpAddr;
use std::num::NonZeroU8;

use super::AddressKey;
use super::forwarded::{split_last_forwarded, split_last_x_forwarded_for};
use super::network::Network;
use super::node_identifier::parse_address;

/// The walk stops after this many addresses, so that a long header costs little.
const MAX_HOPS: usize = 32;

/// The header in which proxies report the client's address.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum ForwardedHeader {
    /// No header: the connection's peer is the client.
    #[default]
    Peer,
    /// `X-Forwarded-For`: each proxy appends the address that called it.
    XForwardedFor,
    /// `Forwarded` of RFC 7239: the same in `for=` parameters.
    Forwarded,
    /// A header with one address, which the proxy overwrites: `x-real-ip`, `cf-connecting-ip`. Its name, in lowercase.
    Single(Box<str>),
}

impl ForwardedHeader {
    /// The name of the header, in lowercase. `None` for [`Peer`](Self::Peer).
    #[must_use]
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::Peer => None,
            Self::XForwardedFor => Some("x-forwarded-for"),
            Self::Forwarded => Some("forwarded"),
            Self::Single(name) => Some(name),
        }
    }
}

/// Where a client's address came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressSource {
    /// The connection's peer: there is no proxy, or the peer is not trusted.
    Peer,
    /// The header of a trusted proxy.
    Forwarded,
    /// The connection's peer, because the header of a trusted proxy is missing or invalid. Worth counting: either a proxy is
    /// configured differently from this server, or a client forges headers.
    Fallback,
}

/// A client's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress {
    /// The address in canonical form: an IPv4-mapped IPv6 address is an IPv4 address.
    pub address: IpAddr,
    /// Where it came from.
    pub source: AddressSource,
}

/// How client addresses are resolved: which proxies are trusted, which header they write, and how addresses are grouped.
///
/// ```
/// use tollgate_http::{ClientAddressResolver, ForwardedHeader};
///
/// let trusted = vec!["10.0.0.0/8".parse()?];
/// let resolver = ClientAddressResolver::behind_proxies(ForwardedHeader::XForwardedFor, trusted);
/// let proxy = "10.0.0.1".parse().unwrap();
/// let header: [&[u8]; 1] = [b"6.6.6.6, 192.0.2.7, 10.0.0.2"];
/// let client = resolver.resolve(proxy, header);
/// assert_eq!(client.address.to_string(), "192.0.2.7", "a client can forge everything to the left of it");
/// assert_eq!(resolver.key(client.address).as_str(), "192.0.2.7");
/// # Ok::<(), tollgate_http::InvalidNetwork>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAddressResolver {
    source: ForwardedHeader,
    trusted: Vec<Network>,
    hops: Option<NonZeroU8>,
    v4_bits: u8,
    v6_bits: u8,
}

impl Default for ClientAddressResolver {
    /// The connection's peer is the client. IPv6 addresses are grouped by /64.
    fn default() -> Self {
        Self {
            source: ForwardedHeader::Peer,
            trusted: Vec::new(),
            hops: None,
            v4_bits: 32,
            v6_bits: 64,
        }
    }
}

impl ClientAddressResolver {
    /// Resolves clients behind proxies in these networks: the rightmost address that is in none of them.
    #[must_use]
    pub fn behind_proxies(source: ForwardedHeader, trusted: impl Into<Vec<Network>>) -> Self {
        Self {
            source,
            trusted: trusted.into(),
            ..Self::default()
        }
    }

    /// Resolves clients behind exactly `hops` proxies, each of which appends one address: the address that the outermost
    /// proxy appended. Use it only if nobody can bypass the proxies; otherwise add [`Self::with_trusted_proxies`].
    #[must_use]
    pub fn behind_hops(source: ForwardedHeader, hops: NonZeroU8) -> Self {
        Self {
            source,
            hops: Some(hops),
            ..Self::default()
        }
    }

    /// Reads the header only on connections from these networks.
    #[must_use]
    pub fn with_trusted_proxies(mut self, trusted: Vec<Network>) -> Self {
        self.trusted = trusted;
        self
    }

    /// Groups addresses by their leading bits. The default is 32 bits for IPv4 and 64 bits for IPv6.
    #[must_use]
    pub fn with_prefix_lengths(mut self, v4_bits: u8, v6_bits: u8) -> Self {
        self.v4_bits = v4_bits.min(32);
        self.v6_bits = v6_bits.min(128);
        self
    }

    /// The header that a transport passes to [`resolve`](Self::resolve): all of its lines and no other header.
    #[must_use]
    pub fn field(&self) -> Option<&str> {
        self.source.field()
    }

    /// The client's address behind a connection, from the lines of the header in the order in which they arrived.
    ///
    /// An invalid hop stops the walk, and the connection's peer counts as the client. So all clients that send garbage behind
    /// one proxy share one key, and none gains a key.
    pub fn resolve<'h, L>(&self, peer: IpAddr, lines: L) -> ClientAddress
    where
        L: IntoIterator<Item = &'h [u8]>,
        L::IntoIter: DoubleEndedIterator,
    {
        let peer = peer.to_canonical();
        let from = |address, found| ClientAddress {
            address,
            source: found,
        };
        if !self.is_trusted_peer(peer) {
            return from(peer, AddressSource::Peer);
        }
        let lines = lines.into_iter();
        let forwarded = match &self.source {
            ForwardedHeader::Peer => return from(peer, AddressSource::Peer),
            ForwardedHeader::Single(_) => parse_single(lines),
            ForwardedHeader::XForwardedFor => self.walk(lines, split_last_x_forwarded_for),
            ForwardedHeader::Forwarded => self.walk(lines, split_last_forwarded),
        };
        match forwarded {
            ForwardedAddress::Address(address) => from(address, AddressSource::Forwarded),
            // A proxy's own request has no header. If hops are counted, a missing header is an error.
            ForwardedAddress::Missing if self.hops.is_none() => from(peer, AddressSource::Peer),
            ForwardedAddress::Missing | ForwardedAddress::Invalid => {
                from(peer, AddressSource::Fallback)
            }
        }
    }

    /// The key under which an address is counted.
    #[must_use]
    pub fn key(&self, address: IpAddr) -> AddressKey {
        AddressKey::new(address, self.v4_bits, self.v6_bits)
    }

    /// Whether a connection from `peer` comes from a trusted proxy.
    fn is_trusted_peer(&self, peer: IpAddr) -> bool {
        self.is_trusted_address(peer) || (self.trusted.is_empty() && self.hops.is_some())
    }

    fn is_trusted_address(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(address))
    }

    fn walk<'h>(
        &self,
        lines: impl DoubleEndedIterator<Item = &'h [u8]>,
        last: impl Fn(&'h [u8]) -> (Option<&'h [u8]>, Option<IpAddr>),
    ) -> ForwardedAddress {
        let mut walked = 0;
        let mut furthest = ForwardedAddress::Missing;
        for line in lines.rev() {
            let mut rest = Some(line);
            while let Some(text) = rest {
                let (before, address) = last(text);
                let Some(address) = address.filter(|_| walked < MAX_HOPS) else {
                    return ForwardedAddress::Invalid;
                };
                walked += 1;
                let is_client = match self.hops {
                    Some(hops) => walked == usize::from(hops.get()),
                    None => !self.is_trusted_address(address),
                };
                if is_client {
                    return ForwardedAddress::Address(address);
                }
                furthest = ForwardedAddress::Address(address);
                rest = before;
            }
        }
        match self.hops {
            // Fewer hops than configured: the request bypassed a proxy, and its client may have forged all of them.
            Some(_) => ForwardedAddress::Invalid,
            // All hops are trusted: the outermost sent the request itself.
            None => furthest,
        }
    }
}

enum ForwardedAddress {
    Address(IpAddr),
    Missing,
    Invalid,
}

/// The address of a header that must have exactly one line with one address.
fn parse_single<'h>(mut lines: impl Iterator<Item = &'h [u8]>) -> ForwardedAddress {
    match (lines.next(), lines.next()) {
        (None, _) => ForwardedAddress::Missing,
        (Some(line), None) => {
            parse_address(line).map_or(ForwardedAddress::Invalid, ForwardedAddress::Address)
        }
        (Some(_), Some(_)) => ForwardedAddress::Invalid,
    }
}
