//! The key of a counter: its domain and entries, told apart by their lengths, in room that is made once.
//!
//! The reference joins everything by underscores, so that a caller who controls one value can count as another. Here no
//! two different descriptors share a counter unless the file says so. Must not know: trees, windows.

use std::fmt;
use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher24};

/// How many bytes a key takes at most. What would be longer is digested, never cut.
pub const MAX_COUNTER_KEY_LEN: usize = 512;

/// A length that no part has, which marks a digest.
const DIGEST: [u8; 2] = [0xff; 2];

/// Room for one key.
#[derive(Clone)]
pub struct CounterKey {
    bytes: [u8; MAX_COUNTER_KEY_LEN],
    len: usize,
}

impl CounterKey {
    /// An empty one.
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

    /// Makes the key of these parts. The digest of long ones is keyed by a secret, which all that share a store must
    /// share.
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
            // Lengths first, so that no two lists of parts feed the same bytes.
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
    /// Keys name people and secrets: only the length is shown.
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
    fn what_does_not_fit_is_digested_under_the_secret() {
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
