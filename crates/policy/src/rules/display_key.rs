//! A key as people read it: the values that it was made of, where they are in it.
//!
//! What was digested stays a digest. Must not know: requests, secrets.

use std::fmt::Write as _;
use std::net::IpAddr;

use super::KeySpec;
use super::key_buffer::{EncodedPart, decode_parts};
use crate::attributes::Attribute;

/// What is shown of one value at most, in characters.
const MAX_SHOWN: usize = 64;

impl KeySpec {
    /// The values of a key that was made by this recipe, in the order of its parts: `alice, POST`. A value that is missing is
    /// `(none)`, one that was digested is `#` and the digest. Where only the beginning of a long key is given, an ellipsis
    /// stands for the rest.
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
        // Writing to a text cannot fail.
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

    fn recipe(names: &[&str]) -> KeySpec {
        let part = |name: &&str| KeyPart::new(Attribute::parse(name).unwrap().into());
        KeySpec::new(names.iter().map(part).collect())
    }

    fn key(recipe: &KeySpec, values: &[&str]) -> Vec<u8> {
        let mut buffer = KeyBuffer::new();
        recipe
            .write_key_of_values(values, [7; 16], &mut buffer)
            .unwrap();
        buffer.as_bytes().to_vec()
    }

    #[test]
    fn values_and_addresses_are_shown_as_they_were_given() {
        let recipe = recipe(&["header.user", "ip", "method"]);
        let key = key(&recipe, &["alice\n", "203.0.113.7", "POST"]);
        assert_eq!(recipe.display_key(&key), "alice\\n, 203.0.113.7, POST");
    }

    #[test]
    fn a_hashed_value_stays_a_digest() {
        let mut recipe = recipe(&["header.secret"]);
        recipe.parts[0].hash = true;
        let shown = recipe.display_key(&key(&recipe, &["hunter2"]));
        assert!(shown.starts_with('#') && shown.len() == 33, "{shown}");
        assert!(!shown.contains("hunter2"));
    }

    #[test]
    fn the_beginning_of_a_key_is_shown_with_an_ellipsis() {
        let recipe = recipe(&["header.user", "method"]);
        let key = key(&recipe, &["alice", "POST"]);
        assert_eq!(recipe.display_key(&key[..key.len() - 1]), "alice, …");
        assert_eq!(recipe.display_key(&[]), "");
    }
}
