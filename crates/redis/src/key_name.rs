//! Names of keys in the server: `tg1:{digest}:id`, thirty bytes for most.
//!
//! The digest is a keyed hash of the injective encoding of the caller's key, so callers choose neither a slot nor a
//! collision, and nothing personal is stored. `tg1` is the version of the layout: another one can live beside it. Thirty
//! bytes are also the longest name that fits the server's allocation of 32. Must not know: states, scripts.

use std::fmt;
use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher24};
use tollgate_store::{LimitId, StoreKey};

/// What keys are hashed with. Shared by a fleet, and shown to nobody.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyHashSecret([u8; 16]);

impl KeyHashSecret {
    /// A secret of these bytes. Draw them at random, once per fleet.
    #[must_use]
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for KeyHashSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The keyed hash of a caller's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameDigest(u128);

impl NameDigest {
    pub(crate) fn new(secret: KeyHashSecret, key: &StoreKey<'_>) -> Self {
        let mut hasher = SipHasher24::new_with_key(&secret.0);
        key.encode(|piece| hasher.write(piece));
        Self(hasher.finish128().as_u128())
    }

    /// Of a name that is no secret: the same whatever the secret is.
    pub(crate) fn from_name(name: &[u8]) -> Self {
        let mut hasher = SipHasher24::new();
        hasher.write(name);
        Self(hasher.finish128().as_u128())
    }

    /// Where this key's calls go, of so many places.
    pub(crate) fn index_below(self, places: usize) -> usize {
        let places = u128::try_from(places.max(1)).unwrap_or(1);
        usize::try_from(self.0.checked_rem(places).unwrap_or(0)).unwrap_or(0)
    }

    /// Half of its bits.
    pub(crate) fn upper_half(self) -> u64 {
        u64::try_from(self.0 >> 64).unwrap_or(u64::MAX)
    }

    /// The digest as digits.
    pub(crate) fn to_text(self) -> [u8; 22] {
        let mut text = [0; 22];
        for (place, index) in text.iter_mut().zip(0_u32..) {
            // Six bits a time from the top; the last digit holds the two that are left.
            let shifted = self.0.rotate_left(6 * (index + 1));
            *place = digit(shifted & if index == 21 { 0b11_0000 } else { 0b11_1111 });
        }
        text
    }

    /// The name of a limit's state under this key, in the place of the tag: whatever has the same tag lies in one slot. A key that is its own tag
    /// has the short name.
    fn append_name_under(self, tag: Self, limit: LimitId, name: &mut Vec<u8>) {
        name.extend_from_slice(b"tg1:{");
        name.extend_from_slice(&tag.to_text());
        name.push(b'}');
        if self != tag {
            name.extend_from_slice(&self.to_text());
        }
        name.push(b':');
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

/// A key as the server knows it, and the tag that it lies under.
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

    /// The name of a limit's state under this key.
    pub(crate) fn name(self, limit: LimitId) -> Vec<u8> {
        let mut name = Vec::with_capacity(55);
        self.append_name(limit, &mut name);
        name
    }

    /// The same, behind what is there already.
    pub(crate) fn append_name(self, limit: LimitId, bytes: &mut Vec<u8>) {
        self.key.append_name_under(self.tag, limit, bytes);
    }
}

/// The name of what says that a charge on the state of this name was given back.
pub(crate) fn undo_marker_name(name: &[u8], id: u128) -> Vec<u8> {
    [name, b"!", &NameDigest(id).to_text()].concat()
}

/// The name of the reservations on the state of this name.
pub(crate) fn ledger_name(name: &[u8]) -> Vec<u8> {
    // Not a digit, so no other limit has this name.
    [name, b"."].concat()
}

/// The name of the book that slices of the state of this name are lent by. It is kept apart, so that nodes which decide exactly
/// and nodes which borrow do not overwrite each other while a policy changes.
pub(crate) fn leased_bucket_name(name: &[u8]) -> Vec<u8> {
    [name, b"~"].concat()
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
    fn under_a_tag_keys_differ_and_lie_together() {
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
        assert_eq!(alice.len(), 52);
        for name in [&alice, &bob] {
            assert_eq!(name[..28], own[..28], "one tag, one slot");
        }
    }

    #[test]
    fn a_name_is_thirty_bytes_for_the_first_sixty_three_limits() {
        let digest = NameDigest::new(SECRET, &StoreKey::new(b"alice").unwrap());
        assert_eq!(name(digest, id(63)).len(), 30);
        assert_eq!(name(digest, id(64)).len(), 31);
        assert_eq!(name(digest, id(u16::MAX)).len(), 32);
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
        assert_eq!(text, "tg1:{WCWzpWazBHYc6CkAt3RZww}:B");
        let other = NameDigest::new(KeyHashSecret::new([7; 16]), &key);
        assert_ne!(other, NameDigest::new(SECRET, &key));
    }

    #[test]
    fn every_bit_of_the_digest_is_in_the_name() {
        let names: HashSet<Vec<u8>> = (0..128)
            .map(|bit| name(NameDigest(1 << bit), id(1)))
            .chain([name(NameDigest(0), id(1))])
            .collect();
        assert_eq!(names.len(), 129);
    }
}
