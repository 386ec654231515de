//! Whose address counts behind proxies: the walk from the connection towards the client, as far as trust goes.
//!
//! One source, chosen in advance: taking whichever field is there lets a client choose. Pure functions of what the
//! transport saw. Must not know: header libraries, sockets.

use std::net::IpAddr;
use std::num::NonZeroU8;

use super::AddressKey;
use super::forwarded::{split_last_forwarded, split_last_x_forwarded_for};
use super::network::Network;
use super::node_identifier::parse_address;

/// The most hops that are walked. Nobody has so many proxies.
const MAX_HOPS: usize = 32;

/// Where a proxy writes whom it serves.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum ForwardedHeader {
    /// Nowhere: whoever is connected is the client.
    #[default]
    Peer,
    /// `X-Forwarded-For`: every proxy adds the address that it was called from.
    XForwardedFor,
    /// `Forwarded` of RFC 7239: the same with more words.
    Forwarded,
    /// A field with one address, which the proxy replaces: `x-real-ip`, `cf-connecting-ip`. Its name, in lowercase.
    Single(Box<str>),
}

impl ForwardedHeader {
    /// The field to read, in lowercase.
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

/// How a client's address was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressSource {
    /// It is the connection's: no proxy, or none that is trusted.
    Peer,
    /// A trusted proxy told it.
    Forwarded,
    /// A trusted proxy told something that names no client, so it is the connection's. Worth counting: either a proxy is
    /// set up differently than we were told, or somebody plays.
    Fallback,
}

/// A client's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress {
    /// The address, canonical: IPv4 in IPv6 clothes is IPv4.
    pub address: IpAddr,
    /// How it was found.
    pub source: AddressSource,
}

/// How clients are told apart by address: which proxies are trusted, where they write, and who counts as one.
///
/// ```
/// use tollgate_http::{ClientAddressResolver, ForwardedHeader};
///
/// let clients = ClientAddressResolver::behind(ForwardedHeader::XForwardedFor, vec!["10.0.0.0/8".parse()?]);
/// let proxy = "10.0.0.1".parse().unwrap();
/// let told: [&[u8]; 1] = [b"6.6.6.6, 192.0.2.7, 10.0.0.2"];
/// let client = clients.client(proxy, told);
/// assert_eq!(client.address.to_string(), "192.0.2.7", "what is left of it, anyone could have written");
/// assert_eq!(clients.key(client.address).as_str(), "192.0.2.7");
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
    /// Whoever is connected is the client.
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
    /// Clients behind proxies in these networks: the first address from the right that is in none of them.
    #[must_use]
    pub fn behind_proxies(source: ForwardedHeader, trusted: impl Into<Vec<Network>>) -> Self {
        Self {
            source,
            trusted: trusted.into(),
            ..Self::default()
        }
    }

    /// Clients behind so many proxies, each of which adds one address: the one that the outermost of them added. Only
    /// where nobody can reach us around the proxies; otherwise add [`Clients::only_from`].
    #[must_use]
    pub fn behind_hops(source: ForwardedHeader, hops: NonZeroU8) -> Self {
        Self {
            source,
            hops: Some(hops),
            ..Self::default()
        }
    }

    /// Believes only connections from these networks.
    #[must_use]
    pub fn with_trusted_proxies(mut self, trusted: Vec<Network>) -> Self {
        self.trusted = trusted;
        self
    }

    /// Counts those as one who share so many leading bits: 32 of IPv4 and 64 of IPv6 unless told otherwise.
    #[must_use]
    pub fn with_prefix_lengths(mut self, v4_bits: u8, v6_bits: u8) -> Self {
        self.v4_bits = v4_bits.min(32);
        self.v6_bits = v6_bits.min(128);
        self
    }

    /// The field that a transport hands to [`Clients::client`], every line of it and nothing else.
    #[must_use]
    pub fn field(&self) -> Option<&str> {
        self.source.field()
    }

    /// The client behind a connection, from the lines of the source's field in the order in which they came.
    ///
    /// What cannot be read stops the walk, and the connection's own address counts. So whoever writes garbage into a
    /// field shares one key with everyone who does so behind the same proxy, and gains none.
    pub fn resolve<'h, L>(&self, peer: IpAddr, lines: L) -> ClientAddress
    where
        L: IntoIterator<Item = &'h [u8]>,
        L::IntoIter: DoubleEndedIterator,
    {
        let peer = peer.to_canonical();
        let by = |address, found| ClientAddress {
            address,
            source: found,
        };
        if !self.is_trusted_peer(peer) {
            return by(peer, AddressSource::Peer);
        }
        let lines = lines.into_iter();
        let told = match &self.source {
            ForwardedHeader::Peer => return by(peer, AddressSource::Peer),
            ForwardedHeader::Single(_) => parse_single(lines),
            ForwardedHeader::XForwardedFor => self.walk(lines, split_last_x_forwarded_for),
            ForwardedHeader::Forwarded => self.walk(lines, split_last_forwarded),
        };
        match told {
            ForwardedAddress::Address(address) => by(address, AddressSource::Forwarded),
            // A proxy that calls for itself says nothing; where hops are counted, something is missing.
            ForwardedAddress::Missing if self.hops.is_none() => by(peer, AddressSource::Peer),
            ForwardedAddress::Missing | ForwardedAddress::Invalid => {
                by(peer, AddressSource::Fallback)
            }
        }
    }

    /// The key that an address is counted under.
    #[must_use]
    pub fn key(&self, address: IpAddr) -> AddressKey {
        AddressKey::new(address, self.v4_bits, self.v6_bits)
    }

    /// Whether a connection from there is one of our proxies.
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
            // Fewer proxies than there should be: whoever came around them may have written any of this.
            Some(_) => ForwardedAddress::Invalid,
            // All are ours: the one that is furthest away asked.
            None => furthest,
        }
    }
}

enum ForwardedAddress {
    Address(IpAddr),
    Missing,
    Invalid,
}

/// The address of a field that has exactly one line with one address.
fn parse_single<'h>(mut lines: impl Iterator<Item = &'h [u8]>) -> ForwardedAddress {
    match (lines.next(), lines.next()) {
        (None, _) => ForwardedAddress::Missing,
        (Some(line), None) => {
            parse_address(line).map_or(ForwardedAddress::Invalid, ForwardedAddress::Address)
        }
        (Some(_), Some(_)) => ForwardedAddress::Invalid,
    }
}
