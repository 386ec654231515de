//! The key of a counter: the domain and entries, each with a length prefix, in a fixed-size buffer.
//!
//! envoyproxy/ratelimit joins them by underscores, so that a caller who controls one value can count as another. Here two
//! descriptors share a counter only if the file says so. Must not know: trees, windows.

use std::fmt;
use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher24};

/// The longest key in bytes. A longer key is replaced by its digest, never cut.
pub const MAX_COUNTER_KEY_LEN: usize = 512;

/// Marks a digest: a length that no part has.
const DIGEST: [u8; 2] = [0xff; 2];

/// A buffer for one key.
#[derive(Clone)]
pub struct CounterKey {
    bytes: [u8; MAX_COUNTER_KEY_LEN],
    len: usize,
}

impl CounterKey {
    /// An empty key.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            bytes: [0; MAX_COUNTER_KEY_LEN],
            len: 0,
        }
    }

    /// The key.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Builds the key of these parts. `secret` keys the digest of long keys; all processes that share a store must use the
    /// same.
    pub(super) fn fill<'a>(
        &mut self,
        secret: [u8; 16],
        parts: impl Iterator<Item = &'a str> + Clone,
    ) {
        self.len = 0;
        let fits = parts.clone().all(|part| {
            u16::try_from(part.len())
                .is_ok_and(|len| self.push(&len.to_be_bytes()) && self.push(part.as_bytes()))
        });
        if fits {
            return;
        }
        let mut digest = SipHasher24::new_with_key(&secret);
        for part in parts {
            // Length prefixes, so that two lists of parts never have the same digest.
            digest.write(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
            digest.write(part.as_bytes());
        }
        self.len = 0;
        self.push(&DIGEST);
        self.push(&digest.finish128().as_bytes());
    }

    fn push(&mut self, bytes: &[u8]) -> bool {
        let end = self.len.saturating_add(bytes.len());
        match self.bytes.get_mut(self.len..end) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.len = end;
                true
            }
            None => false,
        }
    }
}

impl Default for CounterKey {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for CounterKey {
    /// Keys may contain personal data and secrets, so only the length is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CounterKey({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(parts: &[&str], secret: u8) -> Vec<u8> {
        let mut key = CounterKey::new();
        key.fill([secret; 16], parts.iter().copied());
        key.as_bytes().to_vec()
    }

    #[test]
    fn parts_that_read_the_same_when_joined_are_different_keys() {
        assert_ne!(key(&["d", "a_b", "c"], 0), key(&["d", "a", "b_c"], 0));
        assert_ne!(key(&["d", "a", ""], 0), key(&["d", "a"], 0));
        assert_eq!(key(&["d", "a"], 0), key(&["d", "a"], 1));
    }

    #[test]
    fn a_key_that_is_too_long_is_replaced_by_a_keyed_digest() {
        let long = "x".repeat(MAX_COUNTER_KEY_LEN);
        let fits = "x".repeat(MAX_COUNTER_KEY_LEN - 5);
        assert_eq!(key(&["d", &fits], 0).len(), MAX_COUNTER_KEY_LEN);
        let digested = key(&["d", &long], 0);
        assert_eq!(digested.len(), 18);
        assert_ne!(digested, key(&["d", &long], 1));
        assert_ne!(digested, key(&["d", &format!("{long}x")], 0));
        assert_ne!(digested, key(&["dx", &long[1..]], 0));
        let huge = "x".repeat(70_000);
        assert_ne!(key(&[&huge], 0), key(&[&huge[1..]], 0));
    }
}
