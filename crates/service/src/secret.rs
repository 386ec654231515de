//! The secret of all keyed digests: random, or shared by a fleet.
//!
//! Must not know: what is digested, where secrets are stored.

use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use siphasher::sip128::{Hasher128 as _, SipHasher24};

/// A shorter secret could be guessed.
const MIN_BYTES: usize = 16;
/// Separates the keys of this program from those that other programs derive from the same secret.
const PURPOSE: &[u8; 16] = b"tollgate digests";

/// The input of the fingerprint's digest. If it changes, nodes of two versions seem to have different secrets.
const FINGERPRINT: &[u8] = b"tollgate fleet fingerprint";

/// The key of every digest that leaves the process. Processes with the same secret compute the same digests.
///
/// ```
/// use tollgate_service::Secret;
///
/// assert!(Secret::from_shared_text(b"sixteen bytes or more").is_ok());
/// assert!(Secret::from_shared_text(b"too short").is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub(crate) [u8; 16]);

impl Secret {
    /// A random secret.
    #[must_use]
    pub fn random() -> Self {
        // A fresh hasher is keyed by the operating system's randomness.
        let half = || u128::from(RandomState::new().hash_one(0_u8));
        Self((half() << 64 | half()).to_be_bytes())
    }

    /// A secret that is derived from a text, the same in every process.
    ///
    /// # Errors
    /// The text is too short.
    pub fn from_shared_text(text: &[u8]) -> Result<Self, InvalidSecret> {
        if text.len() < MIN_BYTES {
            return Err(InvalidSecret);
        }
        let mut hasher = SipHasher24::new_with_key(PURPOSE);
        hasher.write(text);
        Ok(Self(hasher.finish128().as_bytes()))
    }

    /// Identifies the secret without revealing it: for the other nodes of a fleet, and for admin pages.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(FINGERPRINT);
        let [a, b, c, d, e, f, g, h, ..] = hasher.finish128().as_bytes();
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

impl Secret {
    /// The bytes of the secret.
    #[must_use]
    pub const fn bytes(self) -> [u8; 16] {
        self.0
    }

    /// The secret that hashes key names in a shared store. It differs from the secret itself, because clients see digests
    /// of the latter and must not be able to find key names by them.
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

/// The text is too short.
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
    fn the_same_text_gives_the_same_secret() {
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
