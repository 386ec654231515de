//! Names of keys in the server: `tg1:{digest}:id`, thirty bytes for most.
//!
//! The digest is a keyed hash of the injective encoding of the caller's key, so callers choose neither a slot nor a
//! collision, and nothing personal is stored. `tg1` is the version of the layout: another one can live beside it. Thirty
//! bytes are also the longest name that fits the server's allocation of 32. Must not know: states, scripts.

use std::fmt;
use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher24};
use tollgate_store::{Key, LimitId};

/// What keys are hashed with. Shared by a fleet, and shown to nobody.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret([u8; 16]);

impl Secret {
    /// A secret of these bytes. Draw them at random, once per fleet.
    #[must_use]
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The keyed hash of a caller's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digest(u128);

impl Digest {
    pub(crate) fn of(secret: Secret, key: &Key<'_>) -> Self {
        let mut hasher = SipHasher24::new_with_key(&secret.0);
        key.encode(|piece| hasher.write(piece));
        Self(hasher.finish128().as_u128())
    }

    /// Where this key's calls go, of so many places.
    pub(crate) fn place(self, places: usize) -> usize {
        let places = u128::try_from(places.max(1)).unwrap_or(1);
        usize::try_from(self.0.checked_rem(places).unwrap_or(0)).unwrap_or(0)
    }

    /// The name of a limit's state under this key.
    pub(crate) fn name(self, limit: LimitId) -> Vec<u8> {
        let mut name = Vec::with_capacity(33);
        name.extend_from_slice(b"tg1:{");
        for index in 0..22_u32 {
            // Six bits a time from the top; the last digit holds the two that are left.
            let shifted = self.0.rotate_left(6 * (index + 1));
            name.push(digit(
                shifted & if index == 21 { 0b11_0000 } else { 0b11_1111 },
            ));
        }
        name.extend_from_slice(b"}:");
        let id = u128::from(limit.0.get());
        if id >= 1 << 12 {
            name.push(digit(id >> 12));
        }
        if id >= 1 << 6 {
            name.push(digit(id >> 6));
        }
        name.push(digit(id));
        name
    }

    /// The name of the reservations on that state.
    pub(crate) fn ledger_name(self, limit: LimitId) -> Vec<u8> {
        let mut name = self.name(limit);
        // Not a digit, so no other limit has this name.
        name.push(b'.');
        name
    }
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

    const SECRET: Secret = Secret::new(*b"0123456789abcdef");

    fn id(n: u16) -> LimitId {
        LimitId(NonZeroU16::new(n).unwrap())
    }

    #[test]
    fn a_name_is_thirty_bytes_for_the_first_sixty_three_limits() {
        let digest = Digest::of(SECRET, &Key::of(b"alice").unwrap());
        assert_eq!(digest.name(id(63)).len(), 30);
        assert_eq!(digest.name(id(64)).len(), 31);
        assert_eq!(digest.name(id(u16::MAX)).len(), 32);
    }

    #[test]
    fn no_two_limits_share_a_name() {
        let digest = Digest::of(SECRET, &Key::of(b"alice").unwrap());
        let names: HashSet<Vec<u8>> = (1..=u16::MAX).map(|n| digest.name(id(n))).collect();
        assert_eq!(names.len(), usize::from(u16::MAX));
    }

    #[test]
    fn names_are_stable_and_depend_on_the_secret() {
        let key = Key::of(b"alice").unwrap();
        let name = String::from_utf8(Digest::of(SECRET, &key).name(id(1))).unwrap();
        assert_eq!(name, "tg1:{WCWzpWazBHYc6CkAt3RZww}:B");
        let other = Digest::of(Secret::new([7; 16]), &key);
        assert_ne!(other, Digest::of(SECRET, &key));
    }

    #[test]
    fn every_bit_of_the_digest_is_in_the_name() {
        let names: HashSet<Vec<u8>> = (0..128)
            .map(|bit| Digest(1 << bit).name(id(1)))
            .chain([Digest(0).name(id(1))])
            .collect();
        assert_eq!(names.len(), 129);
    }
}
