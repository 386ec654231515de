//! The digests of keys that this thread rendered lately: most traffic comes from few keys, and a digest costs more than
//! everything else that is written for a limit.
//!
//! The cache is small and has one place for each key, so a flood of keys only replaces entries. An entry is used only for
//! exactly its key and secret. Must not know: what keys consist of.

use std::cell::RefCell;

use arrayvec::ArrayVec;
use tollgate_http::PartitionKey;

/// Entries of a thread: a power of two. All of them take 6 kB.
const ENTRIES: usize = 64;
/// Longer keys are not cached.
const MAX_KEY_LEN: usize = 48;

struct CachedDigest {
    secret: [u8; 16],
    key: ArrayVec<u8, MAX_KEY_LEN>,
    digest: PartitionKey,
}

/// The digest of `key` under `secret`.
pub(super) fn digest(secret: &[u8; 16], key: &[u8]) -> PartitionKey {
    thread_local! {
        static DIGESTS: RefCell<[Option<CachedDigest>; ENTRIES]> =
            const { RefCell::new([const { None }; ENTRIES]) };
    }
    if key.len() > MAX_KEY_LEN {
        return PartitionKey::digest(secret, key);
    }
    DIGESTS.with_borrow_mut(|digests| {
        let Some(entry) = digests.get_mut(index(key)) else {
            return PartitionKey::digest(secret, key);
        };
        if let Some(known) = entry
            && known.key.as_slice() == key
            && known.secret == *secret
        {
            return known.digest;
        }
        let digest = PartitionKey::digest(secret, key);
        *entry = Some(CachedDigest {
            secret: *secret,
            key: key.iter().copied().collect(),
            digest,
        });
        digest
    })
}

/// The place of a key. Keys differ mostly at their ends; keys that meet only replace each other.
fn index(key: &[u8]) -> usize {
    let end = match key.last_chunk::<8>() {
        Some(end) => u64::from_le_bytes(*end),
        None => key
            .iter()
            .fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    let mixed = end.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - ENTRIES.ilog2());
    usize::try_from(mixed).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys that share a place, the same key under another secret, and keys of every length.
    #[test]
    fn a_cached_digest_is_that_of_its_key_and_secret() {
        let secrets = [[1; 16], [2; 16]];
        let mut keys: Vec<Vec<u8>> = (0..=MAX_KEY_LEN + 2).map(|len| vec![b'k'; len]).collect();
        keys.extend((0..1_000_u32).map(|number| number.to_be_bytes().to_vec()));
        for _ in 0..2 {
            for key in &keys {
                for secret in &secrets {
                    let expected = PartitionKey::digest(secret, key);
                    assert_eq!(digest(secret, key), expected);
                    assert_eq!(digest(secret, key), expected, "again");
                }
            }
        }
        let places = keys.iter().map(|key| index(key));
        assert!(places.max().unwrap() < ENTRIES);
        assert_eq!(
            index(&keys[20]),
            index(&keys[30]),
            "some keys share a place"
        );
    }
}
