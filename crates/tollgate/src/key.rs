//! Whose quota it is: anything that is bytes, or several parts that no caller can make look like others.
//!
//! Must not know: limits, how keys are hashed or stored.

use tollgate_store as store;
pub use tollgate_store::{KeyTooLong, MAX_KEY_LEN};

/// A key of several parts. Each counts with its length, so `("a", "bc")` and `("ab", "c")` are different keys, whatever
/// a caller puts into the part that it controls.
///
/// ```
/// use tollgate::{Key, Limiter};
///
/// let limiter = Limiter::per_second(1).build()?;
/// let (tenant, route) = ("tenant-7", "POST /orders");
/// limiter.check(Key::of_parts(&[tenant.as_bytes(), route.as_bytes()])?)?;
/// limiter.check(Key::of_parts(&[tenant.as_bytes(), b"GET /orders"])?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a>(store::StoreKey<'a>);

impl<'a> Key<'a> {
    /// The key of several parts. One part makes the same key as that part by itself.
    ///
    /// # Errors
    /// They are longer than [`MAX_KEY_LEN`] together, with two bytes for each part after the first.
    pub fn from_parts(parts: &'a [&'a [u8]]) -> Result<Self, KeyTooLong> {
        store::StoreKey::from_parts(parts).map(Self)
    }
}

/// What can be used as a key: [`Key`], and everything that is bytes (`&str`, `String`, `Vec<u8>`, `[u8; N]`, …).
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

/// Closed to others: the method's type belongs to the store, and may change with it.
mod sealed {
    pub trait Sealed {}
    impl<T: AsRef<[u8]> + ?Sized> Sealed for T {}
    impl Sealed for super::Key<'_> {}
}

/// A copy of a key, for guards that outlive the call they were made in.
#[derive(Clone, Debug)]
pub(crate) struct OwnedKey(Box<[Box<[u8]>]>);

impl OwnedKey {
    pub(crate) fn from_key(key: &store::StoreKey<'_>) -> Self {
        Self(key.parts().map(Box::from).collect())
    }

    /// Lends the key. It was short enough when it was copied, so the error never comes; it is passed on all the same.
    pub(crate) fn with_key<T, E: From<KeyTooLong>>(
        &self,
        use_it: impl FnOnce(store::StoreKey<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        use_it(store::StoreKey::from_parts(&self.parts())?)
    }

    /// The parts, for those who need the key for longer than a closure.
    pub(crate) fn parts(&self) -> Vec<&[u8]> {
        self.0.iter().map(AsRef::as_ref).collect()
    }
}
