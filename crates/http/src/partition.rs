//! Partition keys as clients see them: keyed digests, which identify a partition without revealing its key.
//!
//! Must not know: what keys consist of, where the secret comes from.

use siphasher::sip128::SipHasher24;

use crate::text::base64;

/// The digest of a partition key: twelve bytes, sent as sixteen base64 characters. Kept as the parameter that is sent.
///
/// It is the same on every node with the same secret. Without the secret nobody can derive the key from it or verify a
/// guess.
///
/// ```
/// use tollgate_http::PartitionKey;
///
/// let secret = [7; 16];
/// let alice = PartitionKey::digest(&secret, b"alice");
/// assert_eq!(alice, PartitionKey::digest(&secret, b"alice"));
/// assert_ne!(alice, PartitionKey::digest(&secret, b"bob"));
/// assert_ne!(alice, PartitionKey::digest(&[8; 16], b"alice"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PartitionKey([u8; PARAMETER_LEN]);

/// The length of `;pk=:`, sixteen characters and `:`.
const PARAMETER_LEN: usize = 22;

impl PartitionKey {
    /// The digest of `key` under the fleet's `secret`.
    #[must_use]
    pub fn digest(secret: &[u8; 16], key: &[u8]) -> Self {
        let digest = SipHasher24::new_with_key(secret).hash(key).as_bytes();
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = digest;
        let mut parameter = *b";pk=:................:";
        if let Some(text) = parameter.get_mut(5..21) {
            text.copy_from_slice(&base64(&[a, b, c, d, e, f, g, h, i, j, k, l]));
        }
        Self(parameter)
    }

    /// The digest as the parameter `pk` of the draft's fields, with its semicolon.
    pub(crate) const fn as_parameter(&self) -> &[u8; PARAMETER_LEN] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn digests_differ_and_do_not_contain_the_key() {
        let secret = *b"sixteen bytes !!";
        let all: BTreeSet<Vec<u8>> = (0..10_000_u32)
            .map(|n| {
                PartitionKey::digest(&secret, &n.to_be_bytes())
                    .as_parameter()
                    .to_vec()
            })
            .collect();
        assert_eq!(all.len(), 10_000);
        let empty = PartitionKey::digest(&secret, b"");
        assert_eq!(empty.as_parameter().len(), 22);
        let long = PartitionKey::digest(&secret, &[b'x'; 100_000]);
        assert!(long.as_parameter() != empty.as_parameter());
    }
}
