//! Reads hosts: without port, without dots at the end, IPv6 addresses in one spelling, and only what can be a host name or an
//! address.
//!
//! Must not know: paths, conditions.

use std::borrow::Cow;
use std::net::Ipv6Addr;

/// The maximum length of a host, with its port.
const MAX_HOST_LEN: usize = 1_024;

/// Whether this is the canonical form of a host name: one scan, for most requests.
pub(super) fn is_canonical(host: &[u8]) -> bool {
    let is_plain = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_');
    host.len() <= MAX_HOST_LEN && host.iter().all(is_plain) && host.last() != Some(&b'.')
}

/// The host without its port and without dots at the end, which make a name absolute and do not change it. An IPv6 address is
/// spelled as in RFC 5952, with brackets. Names keep their case. `None` if it is neither a name nor an address.
pub(crate) fn canonical(host: &[u8]) -> Option<Cow<'_, [u8]>> {
    if host.len() > MAX_HOST_LEN {
        return None;
    }
    let mut colons = host.iter().filter(|byte| **byte == b':');
    let bytes = match host {
        [b'[', rest @ ..] => {
            let end = rest.iter().position(|byte| *byte == b']')?;
            let (address, port) = rest.split_at_checked(end)?;
            let port = port.get(1..).unwrap_or_default();
            let is_port = port.is_empty() || is_port(port);
            return ipv6(address).filter(|_| is_port);
        }
        // An IPv6 address without brackets has no port.
        _ if colons.nth(1).is_some() => return ipv6(host),
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
    bytes
        .get(..end.map_or(0, |last| last + 1))
        .map(Cow::Borrowed)
}

fn ipv6(text: &[u8]) -> Option<Cow<'static, [u8]>> {
    let address: Ipv6Addr = std::str::from_utf8(text).ok()?.parse().ok()?;
    Some(Cow::Owned(format!("[{address}]").into_bytes()))
}

fn is_port(port: &[u8]) -> bool {
    matches!(port, [b':', digits @ ..] if digits.iter().all(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(host: &str) -> Option<String> {
        canonical(host.as_bytes()).map(|host| String::from_utf8(host.into_owned()).unwrap())
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
            assert_eq!(read(host).as_deref(), Some("a.example"), "{host}");
            assert_eq!(is_canonical(host.as_bytes()), host == "a.example");
        }
        assert_eq!(read("A.example").as_deref(), Some("A.example"));
        assert!(!is_canonical(b"A.example"));
    }

    #[test]
    fn addresses_have_one_spelling() {
        for (host, name) in [
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
            ("::1", "[::1]"),
            ("[0:0::0:1]:", "[::1]"),
            ("[2001:DB8:0:0:0:0:0:A]", "[2001:db8::a]"),
            ("2001:0db8::000a", "[2001:db8::a]"),
            ("[::ffff:192.0.2.7]", "[::ffff:192.0.2.7]"),
            ("[::ffff:c000:207]", "[::ffff:192.0.2.7]"),
            ("192.0.2.7:80", "192.0.2.7"),
        ] {
            assert_eq!(read(host).as_deref(), Some(name));
            assert_eq!(
                is_canonical(host.as_bytes()),
                host == name && !host.contains(':')
            );
        }
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for host in [
            "a b",
            "a/b",
            "a\\b",
            "a@b",
            "a%2eb",
            "a\0b",
            "a,b",
            "a:b",
            "a:80:",
            "[::1",
            "[]",
            "[::1]x",
            "a?b",
            "*",
            "[::1].",
            "[::1%25eth0]",
            "::1:",
            "[a.example]",
        ] {
            assert_eq!(read(host), None, "{host}");
        }
        assert_eq!(canonical(&[b'a'; MAX_HOST_LEN + 1]), None);
        assert!(canonical(&[b'a'; MAX_HOST_LEN]).is_some());
    }
}
