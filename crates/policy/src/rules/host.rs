//! Reads hosts: without port, without dots at the end, and only what can be a host name or an address.
//!
//! Must not know: paths, conditions.

use std::net::Ipv6Addr;

/// The maximum length of a host, with its port.
const MAX_HOST_LEN: usize = 1_024;

/// A host, trimmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TrimmedHost<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) has_uppercase: bool,
}

/// Whether this is the canonical form of a host name: one scan, for most requests.
pub(super) fn is_canonical(host: &[u8]) -> bool {
    let is_plain = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_');
    host.len() <= MAX_HOST_LEN && host.iter().all(is_plain) && host.last() != Some(&b'.')
}

/// The host without its port and without dots at the end, which make a name absolute and do not change it. `None` if it
/// is neither a name nor an address.
pub(super) fn trim(host: &[u8]) -> Option<TrimmedHost<'_>> {
    if host.len() > MAX_HOST_LEN {
        return None;
    }
    let mut colons = host.iter().filter(|byte| **byte == b':');
    let bytes = match host {
        [b'[', ..] => {
            let end = host.iter().position(|byte| *byte == b']')?;
            let (address, port) = host.split_at_checked(end + 1)?;
            let inner = address.get(1..end).unwrap_or_default();
            let is_port = port.is_empty() || is_port(port);
            (is_port && is_ipv6(inner)).then_some(address)?
        }
        // An IPv6 address without brackets has no port.
        _ if colons.nth(1).is_some() => is_ipv6(host).then_some(host)?,
        _ => {
            let name = match host.iter().position(|byte| *byte == b':') {
                Some(colon) => {
                    let (name, port) = host.split_at_checked(colon)?;
                    is_port(port).then_some(name)?
                }
                None => host,
            };
            let is_name_byte = |byte: &u8| {
                byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | 0x80..)
            };
            name.iter().all(is_name_byte).then_some(name)?
        }
    };
    let end = bytes.iter().rposition(|byte| *byte != b'.');
    let bytes = bytes.get(..end.map_or(0, |last| last + 1))?;
    Some(TrimmedHost {
        bytes,
        has_uppercase: bytes.iter().any(u8::is_ascii_uppercase),
    })
}

fn is_ipv6(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
}

fn is_port(port: &[u8]) -> bool {
    matches!(port, [b':', digits @ ..] if digits.iter().all(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trimmed(host: &str) -> Option<&str> {
        trim(host.as_bytes()).map(|host| std::str::from_utf8(host.bytes).unwrap())
    }

    #[test]
    fn every_spelling_of_a_host_is_trimmed_to_the_same_name() {
        for host in [
            "a.example",
            "a.example.",
            "a.example:443",
            "a.example.:443",
            "a.example:",
            "a.example..",
        ] {
            assert_eq!(trimmed(host), Some("a.example"), "{host}");
            assert_eq!(is_canonical(host.as_bytes()), host == "a.example");
        }
        assert!(trim(b"A.example").is_some_and(|host| host.has_uppercase));
        assert!(!is_canonical(b"A.example"));
    }

    #[test]
    fn addresses_keep_their_colons() {
        for (host, name) in [
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
            ("::1", "::1"),
            ("192.0.2.7:80", "192.0.2.7"),
        ] {
            assert_eq!(trimmed(host), Some(name));
        }
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for host in [
            "a b", "a/b", "a\\b", "a@b", "a%2eb", "a\0b", "a,b", "a:b", "a:80:", "[::1", "[]",
            "[::1]x", "a?b", "*",
        ] {
            assert_eq!(trimmed(host), None, "{host}");
        }
        assert_eq!(trim(&[b'a'; MAX_HOST_LEN + 1]), None);
        assert!(trim(&[b'a'; MAX_HOST_LEN]).is_some());
    }
}
