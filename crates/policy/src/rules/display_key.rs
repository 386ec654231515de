//! Displays a key for people: its values, as far as the key contains them.
//!
//! Digests are displayed as digests. Must not know: requests, secrets.

use std::fmt::Write as _;
use std::net::IpAddr;

use super::KeySpec;
use super::key_buffer::{EncodedPart, decode_parts};
use crate::attributes::Attribute;

/// The maximum number of characters displayed per value.
const MAX_SHOWN: usize = 64;

impl KeySpec {
    /// The values of a key with this spec, in the order of its parts: `alice, POST`. A missing value is `(none)`, a
    /// digest is `#` and its hexadecimal digits. A truncated key ends with an ellipsis.
    #[must_use]
    pub fn display_key(&self, key: &[u8]) -> String {
        let mut shown = String::new();
        let mut attributes = self.parts.iter().map(|part| &part.attribute.value);
        for part in decode_parts(key) {
            if !shown.is_empty() {
                shown.push_str(", ");
            }
            let attribute = attributes.next();
            match part {
                EncodedPart::Missing => shown.push_str("(none)"),
                EncodedPart::Digest(digest) => push_digest(&mut shown, digest),
                EncodedPart::Present(value) if attribute == Some(&Attribute::Ip) => {
                    push_address(&mut shown, value);
                }
                EncodedPart::Present(value) => push_value(&mut shown, value),
                EncodedPart::Truncated => shown.push('…'),
            }
        }
        shown
    }
}

fn push_digest(shown: &mut String, digest: &[u8]) {
    shown.push('#');
    for byte in digest {
        // Writing to a `String` cannot fail.
        let _infallible = write!(shown, "{byte:02x}");
    }
}

fn push_address(shown: &mut String, octets: &[u8]) {
    let address = match (<[u8; 4]>::try_from(octets), <[u8; 16]>::try_from(octets)) {
        (Ok(v4), _) => IpAddr::from(v4),
        (_, Ok(v6)) => IpAddr::from(v6),
        _ => return push_value(shown, octets),
    };
    let _infallible = write!(shown, "{address}");
}

fn push_value(shown: &mut String, value: &[u8]) {
    let text = String::from_utf8_lossy(value);
    shown.extend(text.chars().take(MAX_SHOWN).flat_map(char::escape_debug));
    if text.chars().nth(MAX_SHOWN).is_some() {
        shown.push('…');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::KeyPart;
    use crate::rules::KeyBuffer;

    fn key_spec(names: &[&str]) -> KeySpec {
        let part = |name: &&str| KeyPart::new(Attribute::parse(name).unwrap().into());
        KeySpec::new(names.iter().map(part).collect())
    }

    fn key(key_spec: &KeySpec, values: &[&str]) -> Vec<u8> {
        let mut buffer = KeyBuffer::new();
        key_spec
            .write_key_of_values(values, [7; 16], &mut buffer)
            .unwrap();
        buffer.as_bytes().to_vec()
    }

    #[test]
    fn values_and_addresses_are_displayed_as_text() {
        let key_spec = key_spec(&["header.user", "ip", "method"]);
        let key = key(&key_spec, &["alice\n", "203.0.113.7", "POST"]);
        assert_eq!(key_spec.display_key(&key), "alice\\n, 203.0.113.7, POST");
    }

    #[test]
    fn a_hashed_value_stays_a_digest() {
        let mut key_spec = key_spec(&["header.secret"]);
        key_spec.parts[0].hash = true;
        let shown = key_spec.display_key(&key(&key_spec, &["hunter2"]));
        assert!(shown.starts_with('#') && shown.len() == 33, "{shown}");
        assert!(!shown.contains("hunter2"));
    }

    #[test]
    fn a_truncated_key_is_displayed_with_an_ellipsis() {
        let key_spec = key_spec(&["header.user", "method"]);
        let key = key(&key_spec, &["alice", "POST"]);
        assert_eq!(key_spec.display_key(&key[..key.len() - 1]), "alice, …");
        assert_eq!(key_spec.display_key(&[]), "");
    }
}
