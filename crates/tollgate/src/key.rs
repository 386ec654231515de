//! Keys: any bytes, or several parts that are encoded with their lengths so that two keys never collide.
//!
//! Must not know: limits, how keys are hashed or stored.

use tollgate_store as store;
pub use tollgate_store::{KeyTooLong, MAX_KEY_LEN};

/// A key of several parts. Each part is encoded with its length, so `("a", "bc")` and `("ab", "c")` are different keys.
/// A caller that controls one part cannot imitate another key.
///
/// ```
/// use tollgate::{Key, Limiter};
///
/// let limiter = Limiter::per_second(1).build()?;
/// let (tenant, route) = ("tenant-7", "POST /orders");
/// limiter.check(Key::from_parts(&[tenant.as_bytes(), route.as_bytes()])?)?;
/// limiter.check(Key::from_parts(&[tenant.as_bytes(), b"GET /orders"])?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a>(store::StoreKey<'a>);

impl<'a> Key<'a> {
    /// Makes a key of several parts. A key of one part equals the key that is that part alone.
    ///
    /// # Errors
    /// The key is longer than [`MAX_KEY_LEN`]. Each part after the first adds two bytes.
    pub fn from_parts(parts: &'a [&'a [u8]]) -> Result<Self, KeyTooLong> {
        store::StoreKey::from_parts(parts).map(Self)
    }
}

/// A type that can be used as a key: [`Key`], and every type that is bytes (`&str`, `String`, `Vec<u8>`, `[u8; N]`, …).
pub trait AsKey: sealed::Sealed {
    /// The key as the store sees it.
    #[doc(hidden)]
    fn as_key(&self) -> Result<store::StoreKey<'_>, KeyTooLong>;
}

impl<T: AsRef<[u8]> + ?Sized> AsKey for T {
    #[inline]
    fn as_key(&self) -> Result<store::StoreKey<'_>, KeyTooLong> {
        store::StoreKey::new(self.as_ref())
    }
}

impl AsKey for Key<'_> {
    #[inline]
    fn as_key(&self) -> Result<store::StoreKey<'_>, KeyTooLong> {
        Ok(self.0)
    }
}

/// Seals [`AsKey`]: its method returns a type of the store, which may change.
mod sealed {
    pub trait Sealed {}
    impl<T: AsRef<[u8]> + ?Sized> Sealed for T {}
    impl Sealed for super::Key<'_> {}
}

/// An owned copy of a key, for guards that outlive the call that created them.
#[derive(Clone, Debug)]
pub(crate) struct OwnedKey(Box<[Box<[u8]>]>);

impl OwnedKey {
    pub(crate) fn from_key(key: &store::StoreKey<'_>) -> Self {
        Self(key.parts().map(Box::from).collect())
    }

    /// Calls a closure with the key. The key was valid when it was copied, so `KeyTooLong` does not occur.
    pub(crate) fn with_key<T, E: From<KeyTooLong>>(
        &self,
        operation: impl FnOnce(store::StoreKey<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        operation(store::StoreKey::from_parts(&self.parts())?)
    }

    /// The parts, for callers that need the key for longer than a closure.
    pub(crate) fn parts(&self) -> Vec<&[u8]> {
        self.0.iter().map(AsRef::as_ref).collect()
    }
}
