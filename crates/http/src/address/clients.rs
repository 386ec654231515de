//! Whose address counts behind proxies: the walk from the connection towards the client, as far as trust goes.
//!
//! One source, chosen in advance: taking whichever field is there lets a client choose. Pure functions of what the
//! transport saw. Must not know: header libraries, sockets.

use std::net::IpAddr;
use std::num::NonZeroU8;

use super::AddressKey;
use super::forwarded::{last_of_forwarded, last_of_list};
use super::network::Network;
use super::node::address;

/// The most hops that are walked. Nobody has so many proxies.
const MOST_HOPS: usize = 32;

/// Where a proxy writes whom it serves.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Source {
    /// Nowhere: whoever is connected is the client.
    #[default]
    Peer,
    /// `X-Forwarded-For`: every proxy adds the address that it was called from.
    XForwardedFor,
    /// `Forwarded` of RFC 7239: the same with more words.
    Forwarded,
    /// A field with one address, which the proxy replaces: `x-real-ip`, `cf-connecting-ip`. Its name, in lowercase.
    One(Box<str>),
}

impl Source {
    /// The field to read, in lowercase.
    #[must_use]
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::Peer => None,
            Self::XForwardedFor => Some("x-forwarded-for"),
            Self::Forwarded => Some("forwarded"),
            Self::One(name) => Some(name),
        }
    }
}

/// How a client's address was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressSource {
    /// It is the connection's: no proxy, or none that is trusted.
    Peer,
    /// A trusted proxy told it.
    Told,
    /// A trusted proxy told something that names no client, so it is the connection's. Worth counting: either a proxy is
    /// set up differently than we were told, or somebody plays.
    Fallback,
}

/// A client's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// The address, canonical: IPv4 in IPv6 clothes is IPv4.
    pub address: IpAddr,
    /// How it was found.
    pub found: AddressSource,
}

/// How clients are told apart by address: which proxies are trusted, where they write, and who counts as one.
///
/// ```
/// use tollgate_http::{Clients, Source};
///
/// let clients = Clients::behind(Source::XForwardedFor, vec!["10.0.0.0/8".parse()?]);
/// let proxy = "10.0.0.1".parse().unwrap();
/// let told: [&[u8]; 1] = [b"6.6.6.6, 192.0.2.7, 10.0.0.2"];
/// let client = clients.client(proxy, told);
/// assert_eq!(client.address.to_string(), "192.0.2.7", "what is left of it, anyone could have written");
/// assert_eq!(clients.key(client.address).as_str(), "192.0.2.7");
/// # Ok::<(), tollgate_http::InvalidNetwork>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clients {
    source: Source,
    trusted: Vec<Network>,
    hops: Option<NonZeroU8>,
    v4_bits: u8,
    v6_bits: u8,
}

impl Default for Clients {
    /// Whoever is connected is the client.
    fn default() -> Self {
        Self {
            source: Source::Peer,
            trusted: Vec::new(),
            hops: None,
            v4_bits: 32,
            v6_bits: 64,
        }
    }
}

impl Clients {
    /// Clients behind proxies in these networks: the first address from the right that is in none of them.
    #[must_use]
    pub fn behind(source: Source, trusted: impl Into<Vec<Network>>) -> Self {
        Self {
            source,
            trusted: trusted.into(),
            ..Self::default()
        }
    }

    /// Clients behind so many proxies, each of which adds one address: the one that the outermost of them added. Only
    /// where nobody can reach us around the proxies; otherwise add [`Clients::only_from`].
    #[must_use]
    pub fn behind_hops(source: Source, hops: NonZeroU8) -> Self {
        Self {
            source,
            hops: Some(hops),
            ..Self::default()
        }
    }

    /// Believes only connections from these networks.
    #[must_use]
    pub fn only_from(mut self, trusted: Vec<Network>) -> Self {
        self.trusted = trusted;
        self
    }

    /// Counts those as one who share so many leading bits: 32 of IPv4 and 64 of IPv6 unless told otherwise.
    #[must_use]
    pub fn sharing(mut self, v4_bits: u8, v6_bits: u8) -> Self {
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
    pub fn client<'h, L>(&self, peer: IpAddr, lines: L) -> Client
    where
        L: IntoIterator<Item = &'h [u8]>,
        L::IntoIter: DoubleEndedIterator,
    {
        let peer = peer.to_canonical();
        let by = |address, found| Client { address, found };
        if !self.believes(peer) {
            return by(peer, AddressSource::Peer);
        }
        let lines = lines.into_iter();
        let told = match &self.source {
            Source::Peer => return by(peer, AddressSource::Peer),
            Source::One(_) => one(lines),
            Source::XForwardedFor => self.walk(lines, last_of_list),
            Source::Forwarded => self.walk(lines, last_of_forwarded),
        };
        match told {
            Told::Address(address) => by(address, AddressSource::Told),
            // A proxy that calls for itself says nothing; where hops are counted, something is missing.
            Told::Nothing if self.hops.is_none() => by(peer, AddressSource::Peer),
            Told::Nothing | Told::Garbage => by(peer, AddressSource::Fallback),
        }
    }

    /// The key that an address is counted under.
    #[must_use]
    pub fn key(&self, address: IpAddr) -> AddressKey {
        AddressKey::of(address, self.v4_bits, self.v6_bits)
    }

    /// Whether a connection from there is one of our proxies.
    fn believes(&self, peer: IpAddr) -> bool {
        self.trusts(peer) || (self.trusted.is_empty() && self.hops.is_some())
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(address))
    }

    fn walk<'h>(
        &self,
        lines: impl DoubleEndedIterator<Item = &'h [u8]>,
        last: impl Fn(&'h [u8]) -> (Option<&'h [u8]>, Option<IpAddr>),
    ) -> Told {
        let mut walked = 0;
        let mut furthest = Told::Nothing;
        for line in lines.rev() {
            let mut rest = Some(line);
            while let Some(text) = rest {
                let (before, address) = last(text);
                let Some(address) = address.filter(|_| walked < MOST_HOPS) else {
                    return Told::Garbage;
                };
                walked += 1;
                let is_client = match self.hops {
                    Some(hops) => walked == usize::from(hops.get()),
                    None => !self.trusts(address),
                };
                if is_client {
                    return Told::Address(address);
                }
                furthest = Told::Address(address);
                rest = before;
            }
        }
        match self.hops {
            // Fewer proxies than there should be: whoever came around them may have written any of this.
            Some(_) => Told::Garbage,
            // All are ours: the one that is furthest away asked.
            None => furthest,
        }
    }
}

enum Told {
    Address(IpAddr),
    Nothing,
    Garbage,
}

/// The address of a field that has exactly one line with one address.
fn one<'h>(mut lines: impl Iterator<Item = &'h [u8]>) -> Told {
    match (lines.next(), lines.next()) {
        (None, _) => Told::Nothing,
        (Some(line), None) => address(line).map_or(Told::Garbage, Told::Address),
        (Some(_), Some(_)) => Told::Garbage,
    }
}
