//! Key names in Redis: `tg2:{digest}:id`, and `tg2:{digest}~id` for leased buckets; at most thirty bytes.
//!
//! The digest is a keyed hash of the key's injective encoding. So callers can choose neither a slot nor a collision,
//! and no personal data is stored. `tg2` is the version of the layout; another version can coexist. Thirty bytes is
//! the longest name that fits the server's 32-byte allocation, so the digest has 120 of its 128 bits: most limit ids take
//! three digits. Must not know: states, scripts.

use std::fmt;
use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher24};
use tollgate_store::{LimitId, StoreKey};

/// The secret that keys are hashed with. All nodes of a fleet share it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyHashSecret([u8; 16]);

impl KeyHashSecret {
    /// A secret from these bytes. Draw them at random, once per fleet.
    #[must_use]
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for KeyHashSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHashSecret(..)")
    }
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Digits of a digest in a name.
const DIGEST_DIGITS: usize = 20;

/// The keyed hash of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameDigest(u128);

impl NameDigest {
    pub(crate) fn new(secret: KeyHashSecret, key: &StoreKey<'_>) -> Self {
        let mut hasher = SipHasher24::new_with_key(&secret.0);
        key.encode(|piece| hasher.write(piece));
        Self(hasher.finish128().as_u128())
    }

    /// The hash of a name that is not secret: the same for every secret.
    pub(crate) fn from_name(name: &[u8]) -> Self {
        let mut hasher = SipHasher24::new();
        hasher.write(name);
        Self(hasher.finish128().as_u128())
    }

    /// An index below `places` for this key.
    pub(crate) fn index_below(self, count: usize) -> usize {
        let count = u128::try_from(count.max(1)).unwrap_or(1);
        usize::try_from(self.0.checked_rem(count).unwrap_or(0)).unwrap_or(0)
    }

    /// The upper 64 bits.
    pub(crate) fn upper_half(self) -> u64 {
        u64::try_from(self.0 >> 64).unwrap_or(u64::MAX)
    }

    /// The upper 120 bits of the digest in base 64.
    pub(crate) fn to_text(self) -> [u8; DIGEST_DIGITS] {
        let mut text = [0; DIGEST_DIGITS];
        for (digit_at, index) in text.iter_mut().zip(0_u32..) {
            // Six bits at a time from the top.
            *digit_at = digit(self.0.rotate_left(6 * (index + 1)));
        }
        text
    }

    /// Appends the name of a limit's state for this key under this hash tag. All names with the same tag are in one
    /// slot. A key that is its own tag has the short name. The separator tells the kinds of states apart.
    fn append_name_under(self, tag: Self, separator: u8, limit: LimitId, name: &mut Vec<u8>) {
        name.extend_from_slice(b"tg2:{");
        name.extend_from_slice(&tag.to_text());
        name.push(b'}');
        if self != tag {
            name.extend_from_slice(&self.to_text());
        }
        name.push(separator);
        let id = u128::from(limit.0.get());
        if id >= 1 << 12 {
            name.push(digit(id >> 12));
        }
        if id >= 1 << 6 {
            name.push(digit(id >> 6));
        }
        name.push(digit(id));
    }
}

/// The digests of a key and of its hash tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyName {
    key: NameDigest,
    tag: NameDigest,
}

impl KeyName {
    pub(crate) fn new(
        secret: KeyHashSecret,
        key: &StoreKey<'_>,
        tag: Option<&StoreKey<'_>>,
    ) -> Self {
        let key = NameDigest::new(secret, key);
        let tag = tag.map_or(key, |tag| NameDigest::new(secret, tag));
        Self { key, tag }
    }

    pub(crate) const fn tag(self) -> NameDigest {
        self.tag
    }

    /// The name of a limit's state for this key.
    pub(crate) fn name(self, limit: LimitId) -> Vec<u8> {
        let mut name = Vec::with_capacity(51);
        self.append_name(limit, &mut name);
        name
    }

    /// Appends the name to `bytes`.
    pub(crate) fn append_name(self, limit: LimitId, bytes: &mut Vec<u8>) {
        self.key.append_name_under(self.tag, b':', limit, bytes);
    }

    /// The name of the leased bucket of a limit for this key. It is separate, so that nodes that decide exactly and nodes that
    /// lease do not overwrite each other while a policy changes. It is as long as the other name, because one
    /// byte more would take 16 bytes more of the server's memory.
    pub(crate) fn leased_bucket_name(self, limit: LimitId) -> Vec<u8> {
        let mut name = Vec::with_capacity(51);
        // Not a base 64 digit, so it is no other state's name.
        self.key.append_name_under(self.tag, b'~', limit, &mut name);
        name
    }
}

/// The name of the marker that records the refund of a charge on this state.
pub(crate) fn undo_marker_name(name: &[u8], id: u128) -> Vec<u8> {
    // All bits: ids differ in the lowest ones, and a shorter text would take one refund for another.
    [name, b"!", format!("{id:x}").as_bytes()].concat()
}

/// The name of the reservations of this state.
pub(crate) fn ledger_name(name: &[u8]) -> Vec<u8> {
    // Not a base 64 digit, so it is no other limit's name.
    [name, b"."].concat()
}

fn digit(bits: u128) -> u8 {
    let index = usize::try_from(bits & 0b11_1111).unwrap_or(0);
    DIGITS.get(index).copied().unwrap_or(b'A')
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::num::NonZeroU16;

    use super::*;

    const SECRET: KeyHashSecret = KeyHashSecret::new(*b"0123456789abcdef");

    fn id(n: u16) -> LimitId {
        LimitId(NonZeroU16::new(n).unwrap())
    }

    fn name(digest: NameDigest, limit: LimitId) -> Vec<u8> {
        let (key, tag) = (digest, digest);
        KeyName { key, tag }.name(limit)
    }

    #[test]
    fn keys_with_one_tag_differ_and_are_in_one_slot() {
        let key = |text: &'static [u8]| StoreKey::new(text).unwrap();
        let under = |text, tag: Option<&StoreKey<'_>>| {
            let named = KeyName::new(SECRET, &key(text), tag);
            String::from_utf8(named.name(id(1))).unwrap()
        };
        let org = key(b"org");
        let (alice, bob) = (under(b"alice", Some(&org)), under(b"bob", Some(&org)));
        let own = under(b"org", Some(&org));
        assert_eq!(own, under(b"org", None), "its own tag");
        assert_ne!(alice, bob);
        assert_eq!(alice.len(), 48);
        for name in [&alice, &bob] {
            assert_eq!(name[..26], own[..26], "one tag, one slot");
        }
    }

    #[test]
    fn a_name_has_at_most_thirty_bytes() {
        let digest = NameDigest::new(SECRET, &StoreKey::new(b"alice").unwrap());
        assert_eq!(name(digest, id(63)).len(), 28);
        assert_eq!(name(digest, id(64)).len(), 29);
        assert_eq!(name(digest, id(u16::MAX)).len(), 30);
        let (key, tag) = (digest, digest);
        let leased = KeyName { key, tag }.leased_bucket_name(id(u16::MAX));
        assert_eq!(leased.len(), 30);
        assert_ne!(leased, name(digest, id(u16::MAX)));
    }

    /// Markers had only the upper bits of their ids, so a refund was taken for one that was made before.
    #[test]
    fn i11_no_two_refunds_share_a_marker() {
        let markers = (0..128).map(|bit| undo_marker_name(b"name", 1 << bit));
        assert_eq!(markers.collect::<HashSet<_>>().len(), 128);
    }

    #[test]
    fn no_two_limits_share_a_name() {
        let digest = NameDigest::new(SECRET, &StoreKey::new(b"alice").unwrap());
        let names: HashSet<Vec<u8>> = (1..=u16::MAX).map(|n| name(digest, id(n))).collect();
        assert_eq!(names.len(), usize::from(u16::MAX));
    }

    #[test]
    fn names_are_stable_and_depend_on_the_secret() {
        let key = StoreKey::new(b"alice").unwrap();
        let text = String::from_utf8(name(NameDigest::new(SECRET, &key), id(1))).unwrap();
        assert_eq!(text, "tg2:{WCWzpWazBHYc6CkAt3RZ}:B");
        let other = NameDigest::new(KeyHashSecret::new([7; 16]), &key);
        assert_ne!(other, NameDigest::new(SECRET, &key));
    }

    #[test]
    fn the_upper_bits_of_the_digest_are_all_in_the_name() {
        let names: HashSet<Vec<u8>> = (8..128)
            .map(|bit| name(NameDigest(1 << bit), id(1)))
            .chain([name(NameDigest(0), id(1))])
            .collect();
        assert_eq!(names.len(), 121);
    }
}
