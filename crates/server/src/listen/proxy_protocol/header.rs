//! Parses the header of the PROXY protocol, versions 1 and 2, as HAProxy's specification has it.
//!
//! Anything that the specification does not allow is an error: two readers must not read different addresses. Must not know:
//! sockets, who may send a header.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::crc32c::crc32c;

/// The longest line of version 1, with its end.
pub(super) const MAX_LINE_LEN: usize = 107;
/// The shortest header of any version: `PROXY UNKNOWN` and the end of its line.
pub(super) const MIN_LEN: usize = 15;
/// The bytes of version 2 before its addresses.
pub(super) const V2_FIXED_LEN: usize = 16;
/// The most bytes behind those. Addresses have at most 216; extensions are a few hundred.
const MAX_V2_PAYLOAD: usize = 2_048;

const V1_PREFIX: &[u8] = b"PROXY ";
const V2_SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The type of the extension with the checksum.
const CHECKSUM_TYPE: u8 = 0x03;

/// Where the connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProxiedSource {
    /// A client of the proxy.
    Client(SocketAddr),
    /// The proxy itself, or a client without an address: the connection keeps the address that it has.
    Connection,
}

/// How a header goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderProgress {
    /// At least this many further bytes belong to it.
    Needs(usize),
    /// It is complete.
    Complete(ProxiedSource),
}

/// What is wrong with a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InvalidProxyHeader(pub(super) &'static str);

impl fmt::Display for InvalidProxyHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid PROXY header: {}", self.0)
    }
}

impl std::error::Error for InvalidProxyHeader {}

type Progress = Result<HeaderProgress, InvalidProxyHeader>;

/// Parses what has been read so far, from the first byte on. The caller reads only as many bytes as are needed, so that none that
/// follow the header are taken.
pub(super) fn parse_header(bytes: &[u8]) -> Progress {
    if bytes.len() < MIN_LEN {
        return Ok(HeaderProgress::Needs(MIN_LEN - bytes.len()));
    }
    if bytes.starts_with(V2_SIGNATURE) {
        return parse_v2(bytes);
    }
    if bytes.starts_with(V1_PREFIX) {
        return parse_v1(bytes);
    }
    Err(InvalidProxyHeader("it has neither signature"))
}

fn parse_v1(bytes: &[u8]) -> Progress {
    let Some(line) = bytes.strip_suffix(b"\r\n") else {
        // A line feed ends no line by itself, and none may follow later.
        return match bytes {
            _ if bytes.contains(&b'\n') => {
                Err(InvalidProxyHeader("the line does not end with CRLF"))
            }
            _ if bytes.len() >= MAX_LINE_LEN => Err(InvalidProxyHeader("the line is too long")),
            _ => Ok(HeaderProgress::Needs(1)),
        };
    };
    if line.contains(&b'\n') || line.contains(&b'\r') {
        return Err(InvalidProxyHeader("the line does not end with CRLF"));
    }
    let text = std::str::from_utf8(line)
        .ok()
        .filter(|text| text.is_ascii())
        .ok_or(InvalidProxyHeader("the line is not ASCII"))?;
    let mut words = text.split(' ').skip(1);
    let family = words.next().unwrap_or_default();
    if family == "UNKNOWN" {
        // The specification says to ignore what follows.
        return Ok(HeaderProgress::Complete(ProxiedSource::Connection));
    }
    let words: Vec<&str> = words.collect();
    let [source, destination, source_port, destination_port] = words.as_slice() else {
        return Err(InvalidProxyHeader(
            "it must have two addresses and two ports",
        ));
    };
    let wrong = InvalidProxyHeader("an address does not fit its family");
    let address = |text: &str| -> Result<IpAddr, InvalidProxyHeader> {
        match family {
            "TCP4" => text.parse().map(IpAddr::V4).map_err(|_invalid| wrong),
            "TCP6" => text.parse().map(IpAddr::V6).map_err(|_invalid| wrong),
            _ => Err(InvalidProxyHeader("the family is unknown")),
        }
    };
    let client = address(source)?;
    address(destination)?;
    let client = SocketAddr::new(client.to_canonical(), port(source_port)?);
    port(destination_port)?;
    Ok(HeaderProgress::Complete(ProxiedSource::Client(client)))
}

/// A port in decimal, without sign and leading zeros.
fn port(text: &str) -> Result<u16, InvalidProxyHeader> {
    let is_canonical = text == "0" || !text.starts_with(['0', '+']);
    let port = text.parse().ok().filter(|_| is_canonical);
    port.ok_or(InvalidProxyHeader("a port is not a number up to 65535"))
}

fn parse_v2(bytes: &[u8]) -> Progress {
    let Some((&[version, family, high, low], _)) = bytes
        .get(V2_SIGNATURE.len()..)
        .and_then(|rest| rest.split_first_chunk::<4>())
    else {
        return Ok(HeaderProgress::Needs(
            V2_FIXED_LEN.saturating_sub(bytes.len()),
        ));
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > MAX_V2_PAYLOAD {
        return Err(InvalidProxyHeader("it is too long"));
    }
    let is_local = match version {
        0x20 => true,
        0x21 => false,
        _ => return Err(InvalidProxyHeader("version or command is unknown")),
    };
    let payload = bytes.get(V2_FIXED_LEN..).unwrap_or_default();
    if payload.len() < length {
        return Ok(HeaderProgress::Needs(length - payload.len()));
    }
    // The addresses of a local connection are to be skipped, whatever their family.
    let (source, extensions) = match family {
        _ if is_local => return Ok(HeaderProgress::Complete(ProxiedSource::Connection)),
        0x00 => (ProxiedSource::Connection, payload),
        0x11 => {
            let (block, extensions) = block::<12>(payload)?;
            let [a, b, c, d, _, _, _, _, high, low, _, _] = *block;
            (
                client(Ipv4Addr::new(a, b, c, d).into(), high, low),
                extensions,
            )
        }
        0x21 => {
            let (block, extensions) = block::<36>(payload)?;
            let address = block.first_chunk::<16>().copied().unwrap_or_default();
            let [.., high, low, _, _] = *block;
            (
                client(Ipv6Addr::from(address).into(), high, low),
                extensions,
            )
        }
        // A client of a Unix socket of the proxy has no address.
        0x31 => (ProxiedSource::Connection, block::<216>(payload)?.1),
        _ => {
            return Err(InvalidProxyHeader(
                "the family or the transport is not for streams",
            ));
        }
    };
    check_extensions(bytes, extensions)?;
    Ok(HeaderProgress::Complete(source))
}

const fn client(address: IpAddr, high: u8, low: u8) -> ProxiedSource {
    let port = u16::from_be_bytes([high, low]);
    ProxiedSource::Client(SocketAddr::new(address.to_canonical(), port))
}

fn block<const N: usize>(payload: &[u8]) -> Result<(&[u8; N], &[u8]), InvalidProxyHeader> {
    let split = payload.split_first_chunk();
    split.ok_or(InvalidProxyHeader("it is too short for its addresses"))
}

/// Checks that the extensions fill the header exactly, and its checksum if it has one.
fn check_extensions(header: &[u8], mut extensions: &[u8]) -> Result<(), InvalidProxyHeader> {
    let broken = InvalidProxyHeader("an extension is cut off");
    let mut checksum = None;
    while !extensions.is_empty() {
        let (&[kind, high, low], rest) = extensions.split_first_chunk().ok_or(broken)?;
        let length = usize::from(u16::from_be_bytes([high, low]));
        let (value, rest) = rest.split_at_checked(length).ok_or(broken)?;
        if kind == CHECKSUM_TYPE {
            let value = value
                .first_chunk::<4>()
                .filter(|_| length == 4)
                .ok_or(broken)?;
            let from_end = rest.len() + length;
            let at = header.len().checked_sub(from_end).ok_or(broken)?;
            if checksum.replace((u32::from_be_bytes(*value), at)).is_some() {
                return Err(InvalidProxyHeader("it has two checksums"));
            }
        }
        extensions = rest;
    }
    let Some((expected, at)) = checksum else {
        return Ok(());
    };
    // The checksum is that of the header with zeros in its place.
    let mut copy = header.to_vec();
    if let Some(place) = copy.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<4>) {
        *place = [0; 4];
    }
    match crc32c(&copy) == expected {
        true => Ok(()),
        false => Err(InvalidProxyHeader("the checksum is wrong")),
    }
}
