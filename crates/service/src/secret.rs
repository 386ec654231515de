//! The secret that keys every digest: drawn at random, or shared by a fleet.
//!
//! Must not know: what is digested, where secrets are kept.

use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use siphasher::sip128::{Hasher128 as _, SipHasher24};

/// Anything shorter can be guessed.
const MIN_BYTES: usize = 16;
/// Says what the secret is used for here, so that nobody else who has it makes the same keys of it.
const PURPOSE: &[u8; 16] = b"tollgate digests";

/// What the fingerprint of a secret is the digest of. If it changes, nodes of two versions seem to have different secrets.
const FINGERPRINT: &[u8] = b"tollgate fleet fingerprint";

/// Keys every digest that leaves the process. Those who share it make the same digests of the same values.
///
/// ```
/// use tollgate_service::Secret;
///
/// assert!(Secret::shared(b"sixteen bytes or more").is_ok());
/// assert!(Secret::shared(b"too short").is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub(crate) [u8; 16]);

impl Secret {
    /// One that nobody else has.
    #[must_use]
    pub fn random() -> Self {
        // A fresh hasher is keyed by the operating system's randomness; how its bits fall is all that is asked of it.
        let half = || u128::from(RandomState::new().hash_one(0_u8));
        Self((half() << 64 | half()).to_be_bytes())
    }

    /// One that others make of the same text.
    ///
    /// # Errors
    /// It is too short to be one.
    pub fn from_shared_text(text: &[u8]) -> Result<Self, InvalidSecret> {
        if text.len() < MIN_BYTES {
            return Err(InvalidSecret);
        }
        let mut hasher = SipHasher24::new_with_key(PURPOSE);
        hasher.write(text);
        Ok(Self(hasher.finish128().as_bytes()))
    }

    /// Tells it from other secrets without telling what it is: for the other nodes of a fleet, and for pages.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(FINGERPRINT);
        let [a, b, c, d, e, f, g, h, ..] = hasher.finish128().as_bytes();
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

impl Secret {
    /// The bytes of the secret, which key digests.
    #[must_use]
    pub const fn bytes(self) -> [u8; 16] {
        self.0
    }

    /// Keys the names of keys in a shared store. It is derived from the secret and not the secret itself: clients see
    /// digests by the secret, and nobody should find names by them.
    #[must_use]
    pub fn derive_key_name_secret(self) -> [u8; 16] {
        let Self(secret) = self;
        let mut hasher = SipHasher24::new_with_key(&secret);
        hasher.write(b"names of keys in the shared store");
        hasher.finish128().as_bytes()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// It is too short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidSecret;

impl fmt::Display for InvalidSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it must have at least {MIN_BYTES} bytes")
    }
}

impl std::error::Error for InvalidSecret {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_is_the_same_secret_and_another_is_not() {
        let shared = |text: &str| Secret::from_shared_text(text.as_bytes());
        let one = shared("correct horse battery staple").unwrap();
        assert_eq!(shared("correct horse battery staple"), Ok(one));
        assert_ne!(shared("correct horse battery stable"), Ok(one));
        assert_eq!(shared("fifteen bytes.."), Err(InvalidSecret));
        assert_ne!(Secret::random(), Secret::random());
        assert_eq!(format!("{one:?}"), "Secret");
        assert_eq!(
            one.fingerprint(),
            shared("correct horse battery staple")
                .unwrap()
                .fingerprint()
        );
        assert_ne!(one.fingerprint(), Secret::random().fingerprint());
        assert_eq!(one.derive_key_name_secret(), one.derive_key_name_secret());
        assert_ne!(one.derive_key_name_secret(), one.0);
    }
}
